package wire

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/velo"
)

// port is the way to the peer.
type port struct{ *Link }

var _ link.Port = port{}

// outflow carries the messages of a mailbox of this node to one of the peer.
type outflow struct {
	l      *Link
	number uint32
	credit link.Credit
	opened chan struct{} // closed when the answer is there, or the link down

	// Set before opened is closed.
	id    uint16
	limit int
	slots []outslot

	dead     atomic.Bool
	closed   sync.Once
	mu       sync.Mutex
	reserved uint64        // guarded by mu
	sent     uint64        // guarded by mu
	consumed atomic.Uint64 // by the peer
}

type outslot struct {
	payload   [link.VELOPayload]byte
	status    uint64
	committed bool
}

// OpenFlow implements link.Port. It waits for the peer's answer, at most as long as
// it takes to find the link down.
func (p port) OpenFlow(from, to fabric.VPID, c link.Credit) (link.Flow, error) {
	l := p.Link
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		return nil, errDown
	}
	if len(l.outs) == maxFlows {
		l.mu.Unlock()
		return nil, errFlows
	}
	f := &outflow{l: l, number: uint32(len(l.outs)), credit: c, opened: make(chan struct{})}
	l.outs = append(l.outs, f)
	l.appendMessage(&message{kind: kindOpen, number: f.number, from: from, to: to})
	l.transmitQueued(time.Now())
	l.mu.Unlock()

	late := time.NewTimer(2 * l.cfg.DownAfter)
	defer late.Stop()
	select {
	case <-f.opened:
	case <-late.C:
		return nil, errDown
	}
	switch {
	case f.limit > 0:
		return f, nil
	case l.Err() != nil:
		return nil, errDown
	}
	return nil, errNoBox
}

// mailboxAnswered is the reader's: the peer has opened the mailbox, or not.
func (f *outflow) mailboxAnswered(id uint16, limit int) error {
	select {
	case <-f.opened:
		return fmt.Errorf("flow %d opened twice", f.number)
	default:
	}
	if limit > maxCredits {
		return fmt.Errorf("flow of %d credits", limit)
	}
	f.id, f.limit = id, limit
	f.slots = make([]outslot, limit)
	f.dead.Store(limit == 0)
	f.closed.Do(func() { close(f.opened) })
	return nil
}

func (f *outflow) close() {
	f.dead.Store(true)
	f.closed.Do(func() { close(f.opened) })
}

// hasUnconsumed reports whether messages are not consumed.
func (f *outflow) hasUnconsumed() bool {
	select {
	case <-f.opened:
	default:
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.dead.Load() && f.sent != f.consumed.Load()
}

// ID implements link.Flow.
func (f *outflow) ID() uint16 { return f.id }

// Limit implements link.Flow.
func (f *outflow) Limit() int { return f.limit }

// Reserve implements link.Flow. There are as many slots as credits.
func (f *outflow) Reserve() (*[link.VELOPayload]byte, uint64, error) {
	if f.dead.Load() {
		return nil, 0, errDown
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	pos := f.reserved
	if pos-f.sent >= uint64(len(f.slots)) {
		return nil, 0, fmt.Errorf("wire: more messages than credits: %w", fabric.ErrInvalid)
	}
	f.reserved++
	return &f.slots[pos%uint64(len(f.slots))].payload, pos, nil
}

// Commit implements link.Flow.
func (f *outflow) Commit(pos, status uint64) {
	l := f.l
	l.mu.Lock()
	defer l.mu.Unlock()
	f.mu.Lock()
	s := &f.slots[pos%uint64(len(f.slots))]
	s.status, s.committed = status, true
	for f.sent != f.reserved {
		s := &f.slots[f.sent%uint64(len(f.slots))]
		if !s.committed {
			break
		}
		n := min(velo.WordLen(s.status), link.VELOPayload)
		l.appendMessage(&message{kind: kindVELO, number: f.number, word: s.status, data: s.payload[:n]})
		s.committed = false
		f.sent++
	}
	f.mu.Unlock()
	l.transmitQueued(time.Now())
}

// Raise implements link.Flow. The peer raises the interrupt when the message comes.
func (f *outflow) Raise() {}

// noteReturned is the reader's: the peer has consumed total messages.
func (f *outflow) noteReturned(total uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.consumed.Load(); total < old || total > f.sent {
		return fmt.Errorf("%d messages of %d consumed, %d before", total, f.sent, old)
	}
	f.consumed.Store(total)
	return nil
}

// inflow carries the messages of a mailbox of the peer to one of this node.
type inflow struct {
	l        atomic.Pointer[Link] // nil when the link is down
	number   uint32
	target   link.Flow // nil: nobody was there
	received uint64    // the reader's
	acked    atomic.Uint64
	dead     atomic.Bool
	raised   atomic.Bool // a call of Raise is queued
	ended    atomic.Bool // the mailbox was told
	// pending is the Return that waits to be sent; nil: none does.
	pending []byte // guarded by the link's mu

	mu sync.Mutex
	// backlog has the messages for which the mailbox had no slot: as many as there are
	// credits, at most.
	backlog []parked // guarded by mu
}

type parked struct {
	status  uint64
	payload []byte
}

var _ link.Credit = (*inflow)(nil)

// acceptFlow is the reader's: it opens the mailbox for a flow of the peer.
func (l *Link) acceptFlow(m *message) error {
	if int(m.number) != len(l.ins) || m.number >= maxFlows {
		return fmt.Errorf("flow %d after %d", m.number, len(l.ins))
	}
	f := &inflow{number: m.number}
	f.l.Store(l)
	l.ins = append(l.ins, f)
	answer := &message{kind: kindOpened, number: m.number}
	if t, err := l.nic.AcceptFlow(l.peer, m.from, m.to, f); err == nil {
		f.target = t
		answer.id, answer.n = t.ID(), uint32(t.Limit())
	}
	l.queueMessage(answer)
	return nil
}

// deliverMessage is the reader's: it moves a message to the mailbox.
func (l *Link) deliverMessage(m *message) error {
	if int(m.number) >= len(l.ins) || l.ins[m.number].target == nil {
		return fmt.Errorf("message of flow %d, which is not open", m.number)
	}
	f := l.ins[m.number]
	if f.dead.Load() {
		return nil
	}
	if f.received++; f.received-f.acked.Load() > uint64(f.target.Limit()) {
		return errors.New("message without credit")
	}
	if velo.WordLen(m.word) != len(m.data) {
		return fmt.Errorf("message of %d bytes with the status of %d", len(m.data), velo.WordLen(m.word))
	}
	status := velo.WordFrom(m.word, l.peer, f.target.ID())
	f.mu.Lock()
	if len(f.backlog) > 0 || !f.placeMessage(status, m.data) {
		f.backlog = append(f.backlog, parked{status, append([]byte(nil), m.data...)})
	}
	f.mu.Unlock()
	f.raiseInterrupt(l)
	return nil
}

// raiseInterrupt has the interrupt raised, once for all that came meanwhile.
func (f *inflow) raiseInterrupt(l *Link) {
	if f.raised.CompareAndSwap(false, true) {
		l.up.queueCall(func() {
			f.raised.Store(false)
			f.target.Raise()
		})
	}
}

// placeMessage puts a message into the mailbox; false if it is full.
func (f *inflow) placeMessage(status uint64, p []byte) bool {
	slot, pos, err := f.target.Reserve()
	if err != nil {
		return !errors.Is(err, fabric.ErrAgain) // closed: the message is lost
	}
	copy(slot[:], p)
	f.target.Commit(pos, status)
	return true
}

// Resume implements link.Credit.
func (f *inflow) Resume() {
	f.mu.Lock()
	n := 0
	for n < len(f.backlog) && f.placeMessage(f.backlog[n].status, f.backlog[n].payload) {
		n++
	}
	f.backlog = append(f.backlog[:0], f.backlog[n:]...)
	f.finishLocked()
	f.mu.Unlock()
	if l := f.l.Load(); l != nil && n > 0 {
		f.raiseInterrupt(l) // not here: the caller is the mailbox's reader
	}
}

// noteDown is called when the link is down: only what waits is still to be placed.
func (f *inflow) noteDown() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.l.Store(nil)
	f.finishLocked()
}

// finishLocked ends the flow in the mailbox, once, when the link is down and nothing waits. It
// belongs to the holder of mu.
func (f *inflow) finishLocked() {
	if f.target != nil && f.l.Load() == nil && len(f.backlog) == 0 && f.ended.CompareAndSwap(false, true) {
		link.End(f.target)
	}
}

// Return implements link.Credit.
func (f *inflow) Return(total uint64) {
	f.acked.Store(total)
	l := f.l.Load()
	if l == nil {
		return
	}
	m := message{kind: kindReturn, number: f.number, word: total}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closing:
		return
	case f.pending != nil: // says more now
		m.append(f.pending[:0])
		return
	}
	f.pending = m.append(nil)
	l.appendQueued(kindReturn, queued{f.pending, f})
	l.transmitQueued(time.Now())
}

// Down implements link.Credit.
func (f *inflow) Down() {
	f.dead.Store(true)
	if l := f.l.Load(); l != nil {
		l.queueMessage(&message{kind: kindDown, number: f.number})
	}
}
