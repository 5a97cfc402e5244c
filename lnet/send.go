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
	typeNak    uint8 = 4 // the refused advert, or header and 0, and a reason: 4 bytes

	tagFirst uint8 = 1

	reasonRefused, reasonNoMatch = 0, 1
)

// op is a message descriptor (figure 6.15): a message and what is known of it. NI.mu guards it.
type op struct {
	peer   *peer
	md     *MD // nil for an answer
	hdr    Header
	event  Event // what its events have in common
	region *atu.Region
	target bool    // a peer's message
	remote atu.NLA // of the memory of the target's peer

	chargeable bool // takes credits
	charged    bool // has them
	sent       bool // EventSend is posted
	waits      bool // for an ACK or REPLY
	err        error
	deadline   time.Time // zero: the NIC ends it
	number     uint64    // Handle.Object
	key        key       // in NI.expected

	mtt       uint8 // of the only piece
	data      []byte
	sentBytes int // bytes of data sent
}

// Request says what Put and Get move.
type Request struct {
	Target     fabric.NodeID
	Portal     int
	MatchBits  uint64
	Offset     int    // in a descriptor with ManageRemote
	Start, Len int    // in the memory descriptor; a Len of 0 means all from Start
	HdrData    uint64 // Put: for the target's event
	Ack        bool   // Put: LNET_ACK_REQ
}

// Put sends bytes of a memory descriptor to a peer (LNetPut). If it returns nil, events follow:
// EventSend when the memory has been read, and EventAck if r.Ack. Their order is not defined. One
// event with Err ends an operation that fails. The error of Put wraps fabric.ErrInvalid or
// fabric.ErrClosed.
func (ni *NI) Put(d *MD, r Request) error { return ni.startOp(d, MessagePut, r) }

// Get asks a peer for bytes into a memory descriptor (LNetGet). If it returns nil, EventSend and
// EventReply follow, or one event with Err. Its errors are those of Put.
func (ni *NI) Get(d *MD, r Request) error {
	r.Ack, r.HdrData = true, 0 // the REPLY
	return ni.startOp(d, MessageGet, r)
}

func (ni *NI) startOp(d *MD, t MessageType, r Request) error {
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
	h := Header{Dst: NIDOf(r.Target), Src: ni.ID(), Type: t, Handle: NoHandle, MatchBits: r.MatchBits,
		HdrData: r.HdrData, Portal: uint32(r.Portal), Offset: uint32(r.Offset)}
	access, writer := atu.Read, rma.Responder
	if t == MessageGet {
		h.Length, access, writer = uint32(r.Len), atu.Write, rma.Completer
	} else {
		h.PayloadLength = uint32(r.Len)
	}
	o := &op{md: d, chargeable: true, waits: r.Ack, deadline: time.Now().Add(ni.cfg.Timeout), event: Event{
		Peer: r.Target, Portal: r.Portal, MatchBits: r.MatchBits, HdrData: r.HdrData, Length: r.Len, Offset: r.Start,
	}}
	var start atu.NLA
	if r.Len > ni.cfg.Immediate { // and so not 0
		region, err := d.desc.registerPart(ni.nic.ATU(), ni.cfg.VPID, r.Start, r.Len, access)
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
	defer ni.sendAndUnlock()
	if ni.closed || d.unlinked {
		o.closeRegion()
		return fmt.Errorf("lnet: the interface or descriptor is not in use any more: %w", fabric.ErrClosed)
	}
	d.beginOp()
	ni.last++
	o.number, o.peer = ni.last, ni.peerOf(r.Target)
	if o.waits {
		h.Handle = Handle{ni.cookie, o.number}
		ni.answers[o.number] = o
	}
	o.hdr = h
	o.data, _ = h.AppendBinary(make([]byte, 0, AdvertLen)) // the lengths are possible
	switch {
	case o.region != nil:
		ni.expectNotification(o, writer, rma.LastFragment(start, r.Len))
		o.data, o.mtt = appendNLA(o.data, start), typeAdvert
	case t == MessagePut:
		d.desc.eachPiece(r.Start, r.Len, func(b []byte) { o.data = append(o.data, b...) })
	}
	ni.enqueueOp(o)
	return nil
}

// expectNotification has a notification find o. It must do so before the peer or the RMA unit can
// act. The caller holds mu.
func (ni *NI) expectNotification(o *op, w rma.Writer, last atu.NLA) {
	o.key = key{w, o.peer.node, last}
	ni.expected[o.key], ni.ops[o] = o, struct{}{}
}

// detachOp takes o out of everything by which it can be found. The caller holds mu.
func (ni *NI) detachOp(o *op) {
	delete(ni.expected, o.key) // no two have the same address
	delete(ni.answers, o.number)
	delete(ni.ops, o)
	if i := slices.Index(o.peer.queue, o); i >= 0 {
		ni.dequeueAt(o.peer, i)
		ni.due = append(ni.due, o.peer)
	}
}

// enqueueOp sends o after the messages that wait for its peer; but a NAK, which takes no credits,
// before those that wait for credits, which may wait for the peer's NAK. The caller holds mu.
func (ni *NI) enqueueOp(o *op) {
	at := len(o.peer.queue)
	if !o.chargeable {
		for at > 0 && o.peer.queue[at-1].chargeable && !o.peer.queue[at-1].charged {
			at--
		}
	}
	o.peer.queue = slices.Insert(o.peer.queue, at, o)
	ni.ops[o] = struct{}{}
	ni.due = append(ni.due, o.peer)
}

// sendAnswer sends a message to a peer because of one of its own. The caller holds mu.
func (ni *NI) sendAnswer(o *op) {
	if o.peer.answers >= maxAnswers || ni.closed {
		ni.stats.AnswersDropped++
		return
	}
	o.peer.answers++
	o.deadline = time.Now().Add(ni.cfg.Timeout)
	ni.enqueueOp(o)
}

// dequeueAt removes a message from a peer's queue. The caller holds mu.
func (ni *NI) dequeueAt(p *peer, i int) {
	if p.queue[i].md == nil {
		p.answers--
	}
	p.queue = slices.Delete(p.queue, i, i+1)
}

// sendWaiting sends the messages that wait for a peer, as far as there are credits. The caller
// holds mu.
func (ni *NI) sendWaiting(p *peer) {
	for len(p.queue) > 0 {
		o := p.queue[0]
		if o.chargeable && !o.charged {
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
			o.charged = true
		}
		err := ni.transmitOp(o)
		if errors.Is(err, fabric.ErrAgain) {
			return // OnCredit calls
		}
		if err != nil {
			ni.failOp(o, err) // which takes it off the queue
			continue
		}
		ni.dequeueAt(p, 0)
		if o.mtt != typeAdvert { // else a notification follows
			ni.finishSend(o)
		}
	}
}

// transmitOp sends the rest of a message.
func (ni *NI) transmitOp(o *op) error {
	for o.sentBytes < len(o.data) {
		d := velo.Descriptor{Dst: o.peer.node, VPID: ni.cfg.VPID, Type: o.mtt}
		n := min(velo.MaxPayload, len(o.data)-o.sentBytes)
		if d.Type == 0 {
			d.Type = typePiece
			if o.sentBytes+n == len(o.data) {
				d.Type = typeLast
			}
			if o.sentBytes == 0 {
				d.Tag = tagFirst
			}
		}
		if err := ni.velo.Send(d, o.data[o.sentBytes:o.sentBytes+n]); err != nil {
			return err
		}
		o.sentBytes += n
	}
	return nil
}

// returnCredits gives the credits of a message back. The caller holds mu.
func (ni *NI) returnCredits(o *op) {
	if !o.charged {
		return
	}
	o.charged, o.chargeable = false, false
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
		ni.endOp(o)
		return
	}
	o.sent = true
	ni.returnCredits(o)
	e := o.event
	e.Type = EventSend
	ni.queueEvent(o.md, e)
}

// failOp ends an operation with an error. The caller holds mu.
func (ni *NI) failOp(o *op, err error) {
	o.err = err
	ni.detachOp(o)
	ni.endOp(o)
}

// endOp ends an operation as soon as no transfer runs on its memory: credits, events,
// descriptor. The caller holds mu.
func (ni *NI) endOp(o *op) {
	ni.detachOp(o)
	if o.region != nil && !o.region.Revoke() {
		ni.closing = append(ni.closing, o)
		return
	}
	o.closeRegion()
	ni.returnCredits(o)
	if o.err != nil {
		ni.stats.Failed++
	}
	if o.md == nil {
		return
	}
	e := o.event
	e.Err, e.Unlinked = o.err, o.md.endOp()
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
	ni.queueEvent(o.md, e)
}

// closeRegion releases memory on which no transfer of a peer runs.
func (o *op) closeRegion() {
	if o.region != nil {
		_ = o.region.Close() // only a second Close fails
		o.region = nil
	}
}
