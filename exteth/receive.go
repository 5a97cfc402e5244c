package exteth

import (
	"exnet/fabric"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/foreign"
)

// assembly is an eager frame of which some messages have arrived.
type assembly struct {
	buf   []byte
	index uint8 // of the next message
	open  bool
}

// PollVELO handles up to budget messages from the mailbox (path 5a of figure
// 5.15). It returns how many it handled, and how many bytes the frames have that
// they completed or advertised.
func (p *Port) PollVELO(budget int) (messages, bytes int) {
	for messages < budget {
		st, payload, ok := p.velo.Peek()
		if !ok {
			break
		}
		switch {
		case st.SrcVPID != p.cfg.VPID:
			// From another process of that node (frame-format.md, section 1).
			p.stats.RxBadMessage.Add(1)
		case st.Type == TypeEager, st.Type == TypeEagerLast:
			bytes += p.receiveEager(st, payload)
		case st.Type == TypeAdvert:
			n, ok := p.receiveAdvert(st, payload)
			if !ok { // no free transfer: PollRMA frees one
				p.starved = true
				return messages, bytes
			}
			bytes += n
		default:
			p.stats.RxBadMessage.Add(1)
		}
		p.velo.Advance()
		messages++
	}
	return messages, bytes
}

// Starved reports whether PollVELO left messages in the mailbox because no transfer
// was free. The poller then waits for Config.OnWork, not for an interrupt.
func (p *Port) Starved() bool { return p.starved }

// receiveEager adds a message to its frame. With the last one it delivers the frame
// and returns its length; otherwise it returns 0. A frame of a single message is
// delivered from the mailbox slot without a copy.
func (p *Port) receiveEager(st velo.Status, payload []byte) int {
	pr := p.peers.peerOf(st.Src)
	a := &pr.unicast
	if st.Multicast {
		a = &pr.group
	}
	last := st.Type == TypeEagerLast
	if st.Tag&tagFirst != 0 {
		if a.open {
			p.stats.RxIncomplete.Add(1)
		}
		a.open, a.index, a.buf = st.Tag&tagIndexMask == 0, 0, a.buf[:0]
	}
	switch {
	case !a.open || st.Tag&tagIndexMask != a.index:
		// A message is missing, so this one belongs to no frame.
		if a.open {
			p.stats.RxIncomplete.Add(1)
		}
		p.stats.RxOrphan.Add(1)
		a.open = false
		return 0
	case !last && len(payload) != velo.MaxPayload, len(a.buf)+len(payload) > p.cfg.MaxFrame:
		p.stats.RxBadSize.Add(1)
		a.open = false
		return 0
	}
	frame := payload
	if !last || st.Tag&tagFirst == 0 {
		a.buf = append(a.buf, payload...)
		a.index = (a.index + 1) & tagIndexMask
		frame = a.buf
	}
	if !last {
		return 0
	}
	a.open = false
	return p.deliverEager(st, frame)
}

// deliverEager gives a whole eager frame to the Receiver and returns its length, or 0
// if it drops the frame. st is the status of its last message.
func (p *Port) deliverEager(st velo.Status, frame []byte) int {
	if len(frame) < EthernetHeaderLen {
		p.stats.RxBadSize.Add(1)
		return 0
	}
	var off Offload
	if st.Tag&tagChecksum != 0 {
		start, offset, ok := checksumAt(frame[EthernetHeaderLen:])
		if !ok {
			p.stats.RxBadOffload.Add(1)
			return 0
		}
		off = Offload{Flags: OffloadNeedsChecksum, CsumStart: uint16(start), CsumOffset: uint16(offset)}
	}
	if st.Multicast {
		p.stats.RxGroup.Add(1)
	} else {
		p.stats.RxEager.Add(1)
	}
	p.deliverFrame(st.Src, off, foreign.Private(frame))
	return len(frame)
}

func (p *Port) deliverFrame(src fabric.NodeID, off Offload, frame foreign.Frame) error {
	p.stats.RxBytes.Add(uint64(frame.Len()))
	err := p.cfg.Receiver.ReceiveFrame(src, off, frame)
	if err != nil {
		p.stats.RxRefused.Add(1)
	}
	return err
}

// receiveAdvert GETs the frame that a peer advertises, and returns the frame's length,
// or 0 if it drops the advert. It returns false if no transfer is free: the advert then
// stays in the mailbox.
func (p *Port) receiveAdvert(st velo.Status, payload []byte) (int, bool) {
	var ad Advert
	if err := ad.UnmarshalBinary(payload); err != nil || int(ad.Length) > p.cfg.MaxFrame || st.Multicast {
		p.stats.RxBadAdvert.Add(1)
		return 0, true
	}
	if ad.Offload.Check(int(ad.Length)-EthernetHeaderLen) != nil {
		p.stats.RxBadOffload.Add(1)
		return 0, true
	}
	pr := p.peers.peerOf(st.Src)
	if pr.transfers >= maxPeerTransfers {
		p.stats.RxNoTransfer.Add(1)
		if len(pr.waiting) == maxPeerLoans {
			p.stats.RxExcess.Add(1)
			return 0, true
		}
		pr.waiting = append(pr.waiting, ad)
		return int(ad.Length), true
	}
	t := p.sink.takeTransfer(pr)
	if t == nil {
		p.stats.RxNoTransfer.Add(1)
		return 0, false
	}
	p.fetchFrame(t, ad)
	return int(ad.Length), true
}

// fetchFrame GETs a frame into the window of t.
func (p *Port) fetchFrame(t *transfer, ad Advert) {
	t.off, t.length, t.written, t.delivered = ad.Offload, int(ad.Length), 0, false
	err := p.rma.Get(rma.GetReq{
		Local:  p.sink.addressOf(t),
		Remote: ad.NLA,
		Len:    t.length,
		Node:   t.peer.node,
		VPID:   p.cfg.VPID,
		Class:  ad.Class,
		Notify: rma.NotifyCompleter | rma.NotifyResponder,
	})
	if err != nil { // refused before it began: no notification follows
		p.stats.RxGetFailed.Add(1)
		p.transferDone(t)
	}
}

// transferDone ends a transfer, and begins one for the oldest waiting advert of the peer.
func (p *Port) transferDone(t *transfer) {
	pr := t.peer
	if len(pr.waiting) == 0 {
		p.sink.putTransfer(t)
		return
	}
	ad := pr.waiting[0]
	pr.waiting = append(pr.waiting[:0], pr.waiting[1:]...)
	p.fetchFrame(t, ad)
}

// PollRMA handles up to budget notifications (path 5b of figure 5.15). It returns how
// many it handled, and how many bytes their transfers moved.
func (p *Port) PollRMA(budget int) (notifications, bytes int) {
	for notifications < budget {
		n, ok := p.rma.Next()
		if !ok {
			break
		}
		notifications++
		bytes += n.Len
		switch n.Writer {
		case rma.Responder:
			p.onFetched(n)
		case rma.Completer:
			p.matchTransfer(n)
		default:
			p.stats.Unmatched.Add(1)
		}
	}
	if p.starved && notifications > 0 {
		p.starved = false
		p.cfg.OnWork()
	}
	return notifications, bytes
}

// onFetched matches a responder notification with the buffer that was read, and
// frees it.
func (p *Port) onFetched(n rma.Notification) {
	if !p.freeLent(p.peers.peerOf(n.Node), n.Local) {
		p.stats.Unmatched.Add(1)
	}
}

// matchTransfer matches a completer notification with its transfer.
func (p *Port) matchTransfer(n rma.Notification) {
	t := p.sink.matchTransfer(n)
	if t == nil {
		p.stats.Unmatched.Add(1)
		return
	}
	if t.delivered { // deliver counted it if the Receiver refused it
		p.stats.RxRendezvous.Add(1)
	} else {
		p.stats.RxGetFailed.Add(1)
	}
	p.transferDone(t)
}
