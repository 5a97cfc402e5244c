package lnet

import (
	"encoding/binary"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

func appendNLA(b []byte, a atu.NLA) []byte { return binary.LittleEndian.AppendUint64(b, uint64(a)) }

// receive handles a VELO message. It borrows b.
func (ni *NI) receive(st velo.Status, b []byte) {
	ni.stats.received.Add(1)
	ni.mu.Lock()
	p := ni.peer(st.Src)
	ni.unlock()
	if st.SrcVPID != ni.cfg.VPID || st.Multicast {
		ni.stats.bad.Add(1)
		return
	}
	if st.Type == typePiece || st.Type == typeLast {
		b = p.assemble(st, b)
		if b == nil {
			if !p.open {
				ni.stats.bad.Add(1)
			}
			return
		}
	}
	var h Header
	var nla atu.NLA
	ok := h.UnmarshalBinary(b) == nil
	switch {
	case !ok:
	case st.Type == typeNak:
		ok = len(b) == nakLen && h.Dst == NIDOf(st.Src) && h.Src == ni.ID()
	case st.Type == typeAdvert:
		ok = len(b) == AdvertLen && h.PayloadLength+h.Length > 0 && (h.Type == MessagePut || h.Type == MessageGet)
	default:
		ok = st.Type == typeLast && len(b)-HeaderLen == int(h.PayloadLength)
	}
	if !ok || st.Type != typeNak && (h.Src != NIDOf(st.Src) || h.Dst != ni.ID()) {
		ni.stats.bad.Add(1)
		return
	}
	if st.Type != typeLast {
		nla = atu.NLA(binary.LittleEndian.Uint64(b[HeaderLen:]))
	}
	switch {
	case st.Type == typeNak:
		ni.refused(p, h, nla, b[AdvertLen:])
	case st.Type == typeAdvert:
		ni.rendezvous(p, h, nla)
	case h.Type == MessagePut:
		ni.receivePut(p, h, b[HeaderLen:])
	case h.Type == MessageGet:
		ni.receiveGet(p, h)
	default:
		ni.answered(p, h, b[HeaderLen:])
	}
}

// assemble adds a piece to its message, and returns the message if it is whole.
func (p *peer) assemble(st velo.Status, b []byte) []byte {
	first, last := st.Tag == tagFirst, st.Type == typeLast
	if first && last {
		p.open = false
		return b
	}
	if first {
		p.open, p.buf = true, p.buf[:0]
	}
	if !p.open || !last && len(b) != velo.MaxPayload || len(p.buf)+len(b) > HeaderLen+MaxImmediate {
		p.open = false
		return nil
	}
	p.buf = append(p.buf, b...)
	if !last {
		return nil
	}
	p.open = false
	return p.buf
}

// targetOp returns the operation of a peer's message on a descriptor.
func targetOp(p *peer, h Header, d *MD, off, n int) *op {
	return &op{peer: p, md: d, hdr: h, target: true, event: Event{
		Peer: p.node, Portal: int(h.Portal), MatchBits: h.MatchBits, HdrData: h.HdrData, Length: n, Offset: off,
	}}
}

// rendezvous answers an advert: a PUT's with a GET, a GET's with a PUT.
func (ni *NI) rendezvous(p *peer, h Header, remote atu.NLA) {
	n, want, access := int(h.PayloadLength), OpPut, atu.Write
	if h.Type == MessageGet {
		n, want, access = int(h.Length), OpGet, atu.Read
	}
	if ni.transfers == maxTransfers || p.transfers == maxPeerTransfers {
		ni.nak(p, h, remote, ErrRefused)
		return
	}
	ni.mu.Lock()
	d, off := ni.match(p.node, &h, n, want)
	ni.unlock()
	if d == nil {
		ni.nak(p, h, remote, ErrNoMatch)
		return
	}
	o := targetOp(p, h, d, off, n)
	region, err := d.desc.register(ni.nic.ATU(), ni.cfg.VPID, off, n, access)
	if err == nil {
		o.region = region
		err = ni.transfer(o, n, remote)
	}
	if err != nil {
		ni.mu.Lock()
		ni.fail(o, err)
		ni.unlock()
		ni.nak(p, h, remote, ErrRefused)
		return
	}
	p.transfers++
	ni.transfers++
}

// transfer starts the RMA operation of a peer's message.
func (ni *NI) transfer(o *op, n int, remote atu.NLA) error {
	local, writer := o.region.NLA(), rma.Completer
	if o.hdr.Type == MessageGet {
		writer = rma.Requester
	}
	o.remote = remote
	ni.mu.Lock()
	ni.attach(o, writer, rma.LastFragment(local, n))
	ni.unlock()
	if o.hdr.Type == MessageGet {
		ni.stats.puts.Add(1)
		return ni.rma.Put(rma.PutReq{Local: local, Remote: remote, Len: n, Node: o.peer.node, VPID: ni.cfg.VPID,
			Notify: rma.NotifyRequester | rma.NotifyCompleter})
	}
	ni.stats.gets.Add(1)
	return ni.rma.Get(rma.GetReq{Local: local, Remote: remote, Len: n, Node: o.peer.node, VPID: ni.cfg.VPID,
		Notify: rma.NotifyCompleter | rma.NotifyResponder})
}

// receivePut takes a PUT whose bytes came by VELO.
func (ni *NI) receivePut(p *peer, h Header, data []byte) {
	ni.mu.Lock()
	d, off := ni.match(p.node, &h, len(data), OpPut)
	ni.unlock()
	if d == nil {
		if h.Handle != NoHandle {
			ni.nak(p, h, 0, ErrNoMatch)
		}
		return
	}
	d.desc.parts(off, len(data), func(b []byte) { data = data[copy(b, data):] })
	ni.mu.Lock()
	defer ni.unlock()
	o := targetOp(p, h, d, off, int(h.PayloadLength))
	ni.end(o)
	ni.acknowledge(o)
}

// receiveGet answers a GET by VELO.
func (ni *NI) receiveGet(p *peer, h Header) {
	n := int(h.Length)
	if n > MaxImmediate {
		ni.stats.bad.Add(1)
		return
	}
	ni.mu.Lock()
	d, off := ni.match(p.node, &h, n, OpGet)
	ni.unlock()
	if d == nil {
		ni.nak(p, h, 0, ErrNoMatch)
		return
	}
	r := Header{Dst: h.Src, Src: h.Dst, Type: MessageReply, Handle: h.Handle, PayloadLength: uint32(n)}
	b, _ := r.AppendBinary(nil)
	d.desc.parts(off, n, func(part []byte) { b = append(b, part...) })
	ni.mu.Lock()
	defer ni.unlock()
	ni.end(targetOp(p, h, d, off, n))
	ni.answer(&op{peer: p, chargeable: true, data: b})
}

// acknowledge sends the ACK of a PUT that has arrived, if its initiator wants one. The caller
// holds mu.
func (ni *NI) acknowledge(o *op) {
	if o.hdr.Handle == NoHandle || o.md.desc.Options&AckDisable != 0 {
		return
	}
	h := Header{Dst: o.hdr.Src, Src: o.hdr.Dst, Type: MessageAck, Handle: o.hdr.Handle,
		MatchBits: o.hdr.MatchBits, Length: o.hdr.PayloadLength}
	b, _ := h.AppendBinary(nil)
	ni.answer(&op{peer: o.peer, chargeable: true, data: b})
}

// nak refuses a message: it sends its header back.
func (ni *NI) nak(p *peer, h Header, nla atu.NLA, why error) {
	ni.mu.Lock()
	defer ni.unlock()
	ni.nakLocked(p, h, nla, why)
}

// nakLocked is nak for a caller that holds mu.
func (ni *NI) nakLocked(p *peer, h Header, nla atu.NLA, why error) {
	ni.stats.naks.Add(1)
	reason := uint32(0)
	if why == ErrNoMatch {
		reason = 1
	}
	b, _ := h.AppendBinary(nil)
	b = binary.LittleEndian.AppendUint32(appendNLA(b, nla), reason)
	ni.answer(&op{peer: p, mtt: typeNak, data: b})
}

// refused ends the operation that a peer's NAK names.
func (ni *NI) refused(p *peer, h Header, nla atu.NLA, reason []byte) {
	ni.mu.Lock()
	defer ni.unlock()
	var o *op
	switch n := int(h.PayloadLength + h.Length); {
	case nla == 0:
		o = ni.awaiting(p, h)
	case n == 0:
	case h.Type == MessagePut:
		o = ni.queues[rma.Responder-rma.Requester][key{p.node, rma.LastFragment(nla, n)}]
	case h.Type == MessageGet:
		o = ni.queues[rma.Completer-rma.Requester][key{p.node, rma.LastFragment(nla, n)}]
	}
	if o == nil && nla != 0 && h.Type == MessagePut {
		o = ni.awaiting(p, h) // it was read, and could not be written
	}
	if o == nil || o.target || o.hdr.Type != h.Type {
		ni.stats.unmatched.Add(1)
		return
	}
	err := ErrRefused
	if binary.LittleEndian.Uint32(reason) == 1 {
		err = ErrNoMatch
	}
	ni.fail(o, err)
}

// awaiting returns the operation whose answer has the handle of h, or nil. The caller holds mu.
func (ni *NI) awaiting(p *peer, h Header) *op {
	o := ni.answers[h.Handle.Object]
	if o == nil || h.Handle.Interface != ni.cookie || o.peer != p {
		return nil
	}
	return o
}

// answered handles an ACK, or a REPLY whose bytes came by VELO.
func (ni *NI) answered(p *peer, h Header, data []byte) {
	ni.mu.Lock()
	defer ni.unlock()
	o := ni.awaiting(p, h)
	put := h.Type == MessageAck
	switch {
	case o == nil || put != (o.hdr.Type == MessagePut),
		put && h.Length != o.hdr.PayloadLength,
		!put && (o.region != nil || len(data) != int(o.hdr.Length)),
		o.region == nil && !o.sent: // a guess, before the question has left
		ni.stats.unmatched.Add(1)
		return
	}
	if put && o.region != nil && !o.sent { // before the responder's notification
		delete(ni.answers, o.number)
		o.waits = false
		e := o.event
		e.Type = EventAck
		ni.post(o.md, e)
		return
	}
	if !put {
		o.md.desc.parts(o.event.Offset, len(data), func(b []byte) { data = data[copy(b, data):] })
	}
	ni.end(o)
}

// notified matches a notification with its operation, by the descriptor queue of its writer.
func (ni *NI) notified(n rma.Notification) {
	ni.mu.Lock()
	var o *op
	if n.Writer >= rma.Requester && n.Writer <= rma.Responder {
		o = ni.queues[n.Writer-rma.Requester][key{n.Node, n.Local}]
	}
	if o == nil || n.Len != o.event.Length || n.VPID != ni.cfg.VPID ||
		(n.Command == rma.CommandGet) != (o.hdr.Type == MessagePut) || n.Command == rma.CommandPutImmediate {
		ni.stats.unmatched.Add(1)
		ni.unlock()
		return
	}
	defer ni.unlock()
	if !o.target {
		ni.arrived(o)
		return
	}
	o.peer.transfers--
	ni.transfers--
	if n.Status != fabric.StatusOK {
		ni.fail(o, n.Status.Err())
		ni.nakLocked(o.peer, o.hdr, o.remote, ErrRefused)
		return
	}
	ni.end(o)
	if o.hdr.Type == MessagePut {
		ni.acknowledge(o)
	}
}

// arrived ends the bulk transfer of an initiator's message. The caller holds mu.
func (ni *NI) arrived(o *op) {
	delete(*o.queue, o.key)
	o.queue = nil
	if !o.waits || o.hdr.Type == MessageGet {
		if o.hdr.Type == MessageGet {
			ni.finishSend(o)
		}
		ni.end(o)
		return
	}
	if !o.region.Revoke() { // the peer reads it again
		ni.fail(o, ErrRefused)
		return
	}
	o.closeRegion()
	ni.finishSend(o)
}
