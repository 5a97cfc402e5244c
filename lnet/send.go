package lnet

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// Types of VELO messages (MTT). Of a message in pieces all but the last have typePiece; the user
// tag of the first one is tagFirst.
const (
	typeAdvert uint8 = 1 // header and NLA: a rendezvous
	typePiece  uint8 = 2
	typeLast   uint8 = 3
	typeNak    uint8 = 4 // the refused advert, or header and 0, and a reason

	tagFirst uint8 = 1
)

// op is a message descriptor (figure 6.15): a message and what is known of it.
type op struct {
	peer   *peer
	md     *MD // nil for an answer
	hdr    Header
	event  Event // what its events have in common
	region *atu.Region
	target bool    // a peer's message
	remote atu.NLA // of the memory of the target's peer

	chargeable bool // takes credits
	credited   bool // guarded by NI.mu; has them
	sent       bool // guarded by NI.mu; EventSend is posted
	waits      bool // guarded by NI.mu; for an ACK or REPLY
	err        error
	deadline   time.Time
	number     uint64 // Handle.Object

	queue *map[key]*op // guarded by NI.mu; the descriptor queue that it is in
	key   key

	mtt  uint8 // of the only piece
	data []byte
	at   int // bytes of data sent
}

// PutRequest says where the bytes of a Put go.
type PutRequest struct {
	Target     fabric.NodeID
	Portal     int
	MatchBits  uint64
	Offset     int    // in a descriptor with ManageRemote
	HdrData    uint64 // for the target's event
	Ack        bool   // LNET_ACK_REQ
	Start, Len int    // in the memory descriptor; a Len of 0 means all from Start
}

// GetRequest says which bytes a Get asks for.
type GetRequest struct {
	Target     fabric.NodeID
	Portal     int
	MatchBits  uint64
	Offset     int // in a descriptor with ManageRemote
	Start, Len int // where they go in the memory descriptor; a Len of 0 means all from Start
}

// Put sends bytes of a memory descriptor to a peer (LNetPut). If it returns nil, events follow:
// EventSend when the memory has been read, and EventAck if r.Ack. Their order is not defined. One
// event with Err ends an operation that fails. The error of Put wraps fabric.ErrInvalid or
// fabric.ErrClosed.
func (ni *NI) Put(d *MD, r PutRequest) error {
	h := Header{Type: MessagePut, Handle: NoHandle, MatchBits: r.MatchBits, HdrData: r.HdrData}
	return ni.start(d, h, r, r.Ack)
}

// Get asks a peer for bytes into a memory descriptor (LNetGet). If it returns nil, EventSend and
// EventReply follow, or one event with Err. Its errors are those of Put.
func (ni *NI) Get(d *MD, r GetRequest) error {
	h := Header{Type: MessageGet, MatchBits: r.MatchBits}
	p := PutRequest{Target: r.Target, Portal: r.Portal, Offset: r.Offset, Start: r.Start, Len: r.Len}
	return ni.start(d, h, p, true)
}

func (ni *NI) start(d *MD, h Header, r PutRequest, waits bool) error {
	size := d.desc.size()
	if r.Start >= 0 && r.Start <= size && r.Len == 0 {
		r.Len = size - r.Start
	}
	switch {
	case d.ni != ni:
		return fmt.Errorf("lnet: the descriptor belongs to another interface: %w", fabric.ErrInvalid)
	case r.Start < 0 || r.Len < 0 || r.Start > size || r.Len > size-r.Start || r.Len > MaxPayload:
		return fmt.Errorf("lnet: %d bytes at %d of a descriptor of %d bytes; at most %d: %w", r.Len, r.Start, size, MaxPayload, fabric.ErrInvalid)
	case r.Portal < 0 || r.Portal >= Portals || r.Offset < 0 || r.Offset > 1<<31:
		return fmt.Errorf("lnet: portal %d, offset %d: %w", r.Portal, r.Offset, fabric.ErrInvalid)
	}
	h.Dst, h.Src, h.Portal, h.Offset = NIDOf(r.Target), ni.ID(), uint32(r.Portal), uint32(r.Offset)
	access := atu.Read
	if h.Type == MessageGet {
		h.Length, access = uint32(r.Len), atu.Write
	} else {
		h.PayloadLength = uint32(r.Len)
	}
	o := &op{md: d, chargeable: true, waits: waits, deadline: time.Now().Add(ni.cfg.Timeout), event: Event{
		Peer: r.Target, Portal: r.Portal, MatchBits: r.MatchBits, HdrData: r.HdrData, Length: r.Len, Offset: r.Start,
	}}
	var start atu.NLA
	if r.Len > ni.cfg.Immediate { // and so not 0
		region, err := d.desc.register(ni.nic.ATU(), ni.cfg.VPID, r.Start, r.Len, access)
		if err == nil {
			o.region = region
			start, err = region.Lend(r.Target)
		}
		if err != nil {
			o.closeRegion()
			return fmt.Errorf("lnet: register memory: %w", err)
		}
	}
	ni.mu.Lock()
	defer ni.unlock()
	if ni.closed || d.unlinked {
		o.closeRegion()
		return fmt.Errorf("lnet: the interface or descriptor is not in use any more: %w", fabric.ErrClosed)
	}
	d.attach()
	ni.last++
	o.number, o.peer = ni.last, ni.peer(r.Target)
	if waits {
		h.Handle = Handle{ni.cookie, o.number}
		ni.answers[o.number] = o
	}
	o.hdr = h
	o.data, _ = h.AppendBinary(make([]byte, 0, AdvertLen)) // start has checked the lengths
	switch {
	case o.region != nil:
		writer := rma.Responder
		if h.Type == MessageGet {
			writer = rma.Completer
		}
		ni.attach(o, writer, rma.LastFragment(start, r.Len))
		o.data, o.mtt = appendNLA(o.data, start), typeAdvert
	case h.Type == MessagePut:
		d.desc.parts(r.Start, r.Len, func(b []byte) { o.data = append(o.data, b...) })
	}
	ni.pending[o] = struct{}{}
	ni.enqueue(o)
	return nil
}

// attach puts o into the descriptor queue of the notification that it expects. It must be there
// before the peer or the RMA unit can act. The caller holds mu.
func (ni *NI) attach(o *op, w rma.Writer, last atu.NLA) {
	o.queue, o.key = &ni.queues[w-rma.Requester], key{o.peer.node, last}
	(*o.queue)[o.key] = o
}

// detach takes o out of everything by which it can be found. The caller holds mu.
func (ni *NI) detach(o *op) {
	if o.queue != nil {
		delete(*o.queue, o.key)
		o.queue = nil
	}
	if o.number != 0 {
		delete(ni.answers, o.number)
	}
	delete(ni.pending, o)
	if i := slices.Index(o.peer.queue, o); i >= 0 {
		o.peer.queue = slices.Delete(o.peer.queue, i, i+1)
		ni.due = append(ni.due, o.peer)
		ni.left(o)
	}
}

// enqueue sends o after the messages that wait for its peer. The caller holds mu.
func (ni *NI) enqueue(o *op) {
	o.peer.queue = append(o.peer.queue, o)
	ni.due = append(ni.due, o.peer)
}

// answer sends a message to a peer because of one of its own. The caller holds mu.
func (ni *NI) answer(o *op) {
	if o.peer.answers >= maxPeerAnswers || ni.closed {
		ni.stats.dropped.Add(1)
		return
	}
	o.peer.answers++
	o.deadline = time.Now().Add(ni.cfg.Timeout)
	ni.pending[o] = struct{}{}
	ni.enqueue(o)
}

// left counts a message that is not in its peer's queue any more. The caller holds mu.
func (ni *NI) left(o *op) {
	if o.md == nil {
		o.peer.answers--
	}
}

// pump sends the messages that wait for a peer, as far as there are credits. The caller holds mu.
func (ni *NI) pump(p *peer) {
	for len(p.queue) > 0 {
		o := p.queue[0]
		if o.chargeable && !o.credited {
			if p.credits == 0 {
				return
			}
			if ni.tx == 0 {
				if !p.hungry {
					p.hungry = true
					ni.hungry = append(ni.hungry, p)
				}
				return
			}
			p.credits--
			ni.tx--
			o.credited = true
		}
		err := ni.transmit(o)
		if errors.Is(err, fabric.ErrAgain) {
			return // OnCredit calls
		}
		if err != nil {
			ni.fail(o, err) // which takes it off the queue
			continue
		}
		p.queue = slices.Delete(p.queue, 0, 1)
		ni.left(o)
		switch {
		case o.mtt == typeAdvert: // a notification follows
		case o.md == nil:
			ni.end(o)
		default:
			ni.finishSend(o)
		}
	}
}

// transmit sends the rest of a message.
func (ni *NI) transmit(o *op) error {
	for o.at < len(o.data) {
		d := velo.Descriptor{Dst: o.peer.node, VPID: ni.cfg.VPID, Type: o.mtt}
		n := min(velo.MaxPayload, len(o.data)-o.at)
		if d.Type == 0 {
			d.Type = typePiece
			if o.at+n == len(o.data) {
				d.Type = typeLast
			}
			if o.at == 0 {
				d.Tag = tagFirst
			}
		}
		if err := ni.velo.Send(d, o.data[o.at:o.at+n]); err != nil {
			return err
		}
		ni.stats.sent.Add(1)
		o.at += n
	}
	return nil
}

// uncredit gives the credits of a message back. The caller holds mu.
func (ni *NI) uncredit(o *op) {
	if !o.credited {
		return
	}
	o.credited, o.chargeable = false, false
	o.peer.credits++
	ni.tx++
	ni.due = append(ni.due, o.peer)
	if len(ni.hungry) > 0 {
		p := ni.hungry[0]
		ni.hungry, p.hungry = ni.hungry[1:], false
		ni.due = append(ni.due, p)
	}
}

// finishSend ends the sending of an initiator's message, and the operation unless it waits for an
// answer. The caller holds mu.
func (ni *NI) finishSend(o *op) {
	if !o.waits {
		ni.end(o)
		return
	}
	o.sent = true
	ni.uncredit(o)
	e := o.event
	e.Type = EventSend
	ni.post(o.md, e)
}

// fail ends an operation with an error. The caller holds mu.
func (ni *NI) fail(o *op, err error) {
	o.err = err
	ni.detach(o)
	ni.end(o)
}

// end ends an operation as soon as no transfer runs on its memory: credits, events, descriptor.
// The caller holds mu.
func (ni *NI) end(o *op) {
	ni.detach(o)
	if o.region != nil && !o.region.Revoke() {
		ni.closing = append(ni.closing, o)
		return
	}
	o.closeRegion()
	ni.uncredit(o)
	if o.err != nil {
		ni.stats.failed.Add(1)
	}
	if o.md == nil {
		return
	}
	e := o.event
	e.Err, e.Unlinked = o.err, o.md.release()
	switch {
	case o.target && o.hdr.Type == MessagePut:
		e.Type = EventPut
	case o.target:
		e.Type = EventGet
	case !o.waits || !o.sent && o.err != nil:
		e.Type = EventSend
	case o.hdr.Type == MessagePut:
		e.Type = EventAck
	default:
		e.Type = EventReply
	}
	ni.post(o.md, e)
}

// closeRegion releases memory on which no transfer of a peer runs.
func (o *op) closeRegion() {
	if o.region != nil {
		_ = o.region.Close() // only a second Close fails
		o.region = nil
	}
}
