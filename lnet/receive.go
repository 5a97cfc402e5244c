package lnet

import (
	"encoding/binary"

	"exnet/fabric/atu"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

func appendNLA(b []byte, a atu.NLA) []byte { return binary.LittleEndian.AppendUint64(b, uint64(a)) }

// handleMessage handles a VELO message, and reports whether it keeps to the protocol. It borrows b.
// The caller holds mu.
func (ni *NI) handleMessage(st velo.Status, b []byte) bool {
	p := ni.peerOf(st.Src)
	if st.SrcVPID != ni.cfg.VPID || st.Multicast {
		return false
	}
	if st.Type == typePiece || st.Type == typeLast {
		if b = p.assemblePiece(st, b); b == nil {
			return p.open
		}
	}
	var h Header
	if h.UnmarshalBinary(b) != nil {
		return false
	}
	from, to, rest := h.Src, h.Dst, b[HeaderLen:]
	if st.Type == typeNak { // it sends the header back
		from, to = to, from
	}
	if from != NIDOf(st.Src) || to != ni.ID() {
		return false
	}
	switch {
	case st.Type == typeNak && len(rest) == 12:
		ni.nakReceived(p, h, atu.NLA(binary.LittleEndian.Uint64(rest)), binary.LittleEndian.Uint32(rest[8:]))
	case st.Type == typeAdvert && len(rest) == AdvertLen-HeaderLen && h.PayloadLength+h.Length > 0 &&
		(h.Type == MessagePut || h.Type == MessageGet):
		ni.answerAdvert(p, h, atu.NLA(binary.LittleEndian.Uint64(rest)))
	case st.Type != typeLast || len(rest) != int(h.PayloadLength):
		return false
	case h.Type == MessagePut:
		ni.receivePut(p, h, rest)
	case h.Type == MessageGet && h.Length <= MaxImmediate:
		ni.receiveGet(p, h)
	case h.Type != MessageGet:
		ni.answerReceived(p, h, rest)
	default:
		return false
	}
	return true
}

// assemblePiece adds a piece to its message, and returns the message if it is whole.
func (p *peer) assemblePiece(st velo.Status, b []byte) []byte {
	first, last := st.Tag == tagFirst, st.Type == typeLast
	if first {
		p.buf = p.buf[:0]
	}
	if !first && !p.open || !last && len(b) != velo.MaxPayload || len(p.buf)+len(b) > HeaderLen+MaxImmediate {
		p.open = false
		return nil
	}
	p.buf, p.open = append(p.buf, b...), !last
	if !last {
		return nil
	}
	return p.buf
}

// answerAdvert answers an advert: a PUT's with a GET, a GET's with a PUT.
func (ni *NI) answerAdvert(p *peer, h Header, remote atu.NLA) {
	n, access := int(h.PayloadLength+h.Length), atu.Write
	if h.Type == MessageGet {
		access = atu.Read
	}
	if p.transfers == maxTransfers {
		ni.sendNAK(p, h, remote, ErrRefused)
		return
	}
	o := ni.matchMessage(p, h, n)
	if o == nil {
		ni.sendNAK(p, h, remote, ErrNoMatch)
		return
	}
	o.remote = remote
	p.transfers++
	var err error
	if o.region, err = o.md.desc.registerPart(ni.nic.ATU(), ni.cfg.VPID, o.event.Offset, n, access); err == nil {
		err = ni.startTransfer(o, n)
	}
	if err != nil {
		ni.endTransfer(o, err)
	}
}

// startTransfer starts the RMA operation of a peer's message.
func (ni *NI) startTransfer(o *op, n int) error {
	local := o.region.NLA()
	if o.hdr.Type == MessageGet {
		ni.expectNotification(o, rma.Requester, rma.LastFragment(local, n))
		return ni.rma.Put(rma.PutReq{Local: local, Remote: o.remote, Len: n, Node: o.peer.node, VPID: ni.cfg.VPID,
			Notify: rma.NotifyRequester | rma.NotifyCompleter})
	}
	ni.expectNotification(o, rma.Completer, rma.LastFragment(local, n))
	return ni.rma.Get(rma.GetReq{Local: local, Remote: o.remote, Len: n, Node: o.peer.node, VPID: ni.cfg.VPID,
		Notify: rma.NotifyCompleter | rma.NotifyResponder})
}

// endTransfer ends a peer's message, whose RMA operation has ended.
func (ni *NI) endTransfer(o *op, err error) {
	o.peer.transfers--
	if err != nil {
		ni.failOp(o, err)
		ni.sendNAK(o.peer, o.hdr, o.remote, ErrRefused)
		return
	}
	ni.endOp(o)
	if o.hdr.Type == MessagePut {
		ni.sendACK(o)
	}
}

// receivePut takes a PUT whose bytes came by VELO.
func (ni *NI) receivePut(p *peer, h Header, data []byte) {
	o := ni.matchMessage(p, h, len(data))
	if o == nil {
		if h.Handle != NoHandle {
			ni.sendNAK(p, h, 0, ErrNoMatch)
		}
		return
	}
	o.md.desc.eachPiece(o.event.Offset, len(data), func(b []byte) { data = data[copy(b, data):] })
	ni.endOp(o)
	ni.sendACK(o)
}

// receiveGet answers a GET by VELO.
func (ni *NI) receiveGet(p *peer, h Header) {
	o := ni.matchMessage(p, h, int(h.Length))
	if o == nil {
		ni.sendNAK(p, h, 0, ErrNoMatch)
		return
	}
	r := Header{Dst: h.Src, Src: h.Dst, Type: MessageReply, Handle: h.Handle, PayloadLength: h.Length}
	b, _ := r.AppendBinary(nil)
	o.md.desc.eachPiece(o.event.Offset, o.event.Length, func(part []byte) { b = append(b, part...) })
	ni.endOp(o)
	ni.sendAnswer(&op{peer: p, chargeable: true, data: b})
}

// sendACK sends the ACK of a PUT that has arrived, if its initiator wants one.
func (ni *NI) sendACK(o *op) {
	if o.hdr.Handle == NoHandle || o.md.desc.Options&AckDisable != 0 {
		return
	}
	h := Header{Dst: o.hdr.Src, Src: o.hdr.Dst, Type: MessageAck, Handle: o.hdr.Handle,
		MatchBits: o.hdr.MatchBits, Length: o.hdr.PayloadLength}
	b, _ := h.AppendBinary(nil)
	ni.sendAnswer(&op{peer: o.peer, chargeable: true, data: b})
}

// sendNAK refuses a message: it sends its header back.
func (ni *NI) sendNAK(p *peer, h Header, nla atu.NLA, why error) {
	ni.stats.Naks++
	reason := uint32(reasonRefused)
	if why == ErrNoMatch {
		reason = reasonNoMatch
	}
	b, _ := h.AppendBinary(nil)
	ni.sendAnswer(&op{peer: p, mtt: typeNak, data: binary.LittleEndian.AppendUint32(appendNLA(b, nla), reason)})
}

// nakReceived ends the operation that a peer's NAK names, by its handle or its advert.
func (ni *NI) nakReceived(p *peer, h Header, nla atu.NLA, reason uint32) {
	o := ni.answers[h.Handle.Object]
	if h.Handle == NoHandle && h.PayloadLength > 0 {
		o = ni.expected[key{rma.Responder, p.node, rma.LastFragment(nla, int(h.PayloadLength))}]
	}
	if o == nil || o.peer != p || o.hdr != h {
		ni.stats.Unmatched++
		return
	}
	err := ErrRefused
	if reason == reasonNoMatch {
		err = ErrNoMatch
	}
	ni.failOp(o, err)
}

// answerReceived handles an ACK, or a REPLY whose bytes came by VELO.
func (ni *NI) answerReceived(p *peer, h Header, data []byte) {
	o := ni.answers[h.Handle.Object]
	put := h.Type == MessageAck
	switch {
	case o == nil || o.peer != p || h.Handle != o.hdr.Handle || put != (o.hdr.Type == MessagePut),
		put && h.Length != o.hdr.PayloadLength,
		!put && (o.region != nil || len(data) != int(o.hdr.Length)),
		o.region == nil && !o.sent: // a guess, before the question has left
		ni.stats.Unmatched++
		return
	}
	if put && !o.sent { // before the responder's notification
		delete(ni.answers, o.number)
		o.waits = false
		e := o.event
		e.Type = EventAck
		ni.queueEvent(o.md, e)
		return
	}
	if !put {
		o.md.desc.eachPiece(o.event.Offset, len(data), func(b []byte) { data = data[copy(b, data):] })
	}
	ni.endOp(o)
}

// endNotified ends the bulk transfer of a message. The caller holds mu.
func (ni *NI) endNotified(n rma.Notification) {
	o := ni.expected[key{n.Writer, n.Node, n.Local}]
	command := rma.CommandGet
	if o != nil && o.hdr.Type == MessageGet {
		command = rma.CommandPut
	}
	if o == nil || n.Len != o.event.Length || n.VPID != ni.cfg.VPID || n.Command != command {
		ni.stats.Unmatched++
		return
	}
	delete(ni.expected, o.key)
	o.key = key{}
	if o.target {
		ni.endTransfer(o, n.Status.Err())
		return
	}
	ni.finishSend(o)
	if o.hdr.Type == MessageGet {
		ni.endOp(o)
	}
}
