package shm

import (
	"fmt"
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/internal/shm"
)

var (
	errFull  = fmt.Errorf("shm: ring full: %w", fabric.ErrAgain)
	errDown  = fmt.Errorf("shm: %w", fabric.ErrPeerDown)
	errNoBox = fmt.Errorf("shm: mailbox not open: %w", fabric.ErrPeerDown)
	errFlows = fmt.Errorf("shm: link has no flow numbers left: %w", fabric.ErrPeerDown)
)

// outflow carries the messages of a mailbox of this node to one of the peer.
type outflow struct {
	l        *Link
	id       uint16
	limit    int
	from, to fabric.VPID
	credit   link.Credit
	opened   atomic.Bool // the peer has been told about the flow
	starved  atomic.Bool // a message was refused for lack of space
	watched  atomic.Bool // Watch was called

	mu sync.Mutex // held while the flow is opened
}

// OpenFlow implements link.Port. Nothing is sent yet: the peer's segment says
// which mailboxes are open.
func (p port) OpenFlow(from, to fabric.VPID, c link.Credit) (link.Flow, error) {
	l := p.Link
	if l.down.Load() {
		return nil, errDown
	}
	limit := l.far.box[to].Load()
	if limit == 0 || limit > 1<<16 {
		return nil, errNoBox
	}
	l.flowMu.Lock()
	defer l.flowMu.Unlock()
	old := *l.outs.Load()
	if len(old) == MaxFlows {
		return nil, errFlows
	}
	f := &outflow{l: l, id: uint16(len(old)), limit: int(limit), from: from, to: to, credit: c}
	list := append(old, f) // readers of the old slice do not look beyond its end
	l.outs.Store(&list)
	return f, nil
}

// ID implements link.Flow.
func (f *outflow) ID() uint16 { return f.id }

// Limit implements link.Flow.
func (f *outflow) Limit() int { return f.limit }

// Reserve implements link.Flow.
func (f *outflow) Reserve() (*[link.VELOPayload]byte, uint64, error) {
	if f.l.down.Load() {
		return nil, 0, errDown
	}
	if f.opened.Load() || f.announceFlow() {
		if s, pos := f.l.out.reserveSlot(); s != nil {
			return &s.Payload, pos, nil
		}
	}
	f.starved.Store(true)
	if f.opened.Load() || f.announceFlow() {
		if s, pos := f.l.out.reserveOrWait(); s != nil {
			return &s.Payload, pos, nil
		}
	}
	if f.l.down.Load() {
		return nil, 0, errDown
	}
	return nil, 0, errFull
}

// announceFlow tells the peer of the flow, before its first message.
func (f *outflow) announceFlow() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opened.Load() {
		return true
	}
	s, pos := f.l.out.reserveOrWait()
	if s == nil {
		return false
	}
	m := message{kind: kindOpen, id: f.id, from: f.from, to: f.to, n: f.limit}
	m.put(&s.Payload)
	publishSlot(s, pos, uint64(kindOpen), msgLen)
	f.opened.Store(true)
	return true
}

// ahead is how far behind the slot that was written another is fetched to be written.
// The next one the peer polls already: to fetch that costs more than it saves.
const ahead = 2

// Commit implements link.Flow.
func (f *outflow) Commit(pos, status uint64) {
	publishSlot(&f.l.out.ring[pos%RingSlots], pos, status&^kindMask|uint64(kindVELO), int(status>>lenShift&lenMask))
	shm.PrefetchSlot(&f.l.out.ring[(pos+ahead)%RingSlots].Status)
}

// Raise implements link.Flow.
func (f *outflow) Raise() { f.l.ringBell() }

// Consumed implements link.Remote.
func (f *outflow) Consumed() uint64 {
	defer shm.Observe()
	return f.l.far.ack[f.id].Load()
}

// Watch implements link.Remote.
func (f *outflow) Watch(total uint64) {
	f.watched.Store(true)
	f.l.near.want[f.id].Swap(total) // and no Store: see package shm
}

var (
	_ link.Remote            = (*outflow)(nil)
	_ [link.VELOPayload]byte = [msgLen]byte{}
)

// lookAgain is what a side does when the peer has counted up its events: it hands
// credits to those who wait, and space to those whose messages were refused.
func (l *Link) lookAgain() {
	l.lookProbe()
	space := l.out.resumeQueue()
	for _, f := range *l.outs.Load() {
		if f.watched.Load() {
			f.credit.Return(f.Consumed())
		}
		if space && f.starved.Load() && f.starved.CompareAndSwap(true, false) {
			f.credit.Resume()
		}
	}
}
