package stream

import (
	"errors"
	"fmt"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/velo"
	"exnet/foreign"
)

var (
	errFull  = fmt.Errorf("stream: send queue is full: %w", fabric.ErrAgain)
	errDown  = fmt.Errorf("stream: %w", fabric.ErrPeerDown)
	errNoBox = fmt.Errorf("stream: mailbox not open: %w", fabric.ErrPeerDown)
	errFlows = fmt.Errorf("stream: link has no flow numbers left: %w", fabric.ErrPeerDown)
)

// port is the Link as its NIC's way to the peer.
type port struct{ *Link }

// slot is a VELO message that is being written.
type slot struct {
	payload   [link.VELOPayload]byte
	status    uint64
	committed bool
}

// outflow carries the messages of a mailbox of this node to one of the peer.
type outflow struct {
	l      *Link
	id     uint16
	limit  int
	credit link.Credit
	dead   atomic.Bool

	consumed atomic.Uint64 // by the peer; the pump writes it
	sent     atomic.Uint64 // committed
	wanted   atomic.Uint64 // Watch's total; 0: none

	slots   []*slot // guarded by outbox.mu: reserved, the oldest first
	base    uint64  // guarded by outbox.mu: position of the oldest
	starved bool    // guarded by outbox.mu: a message was refused for lack of space
}

// OpenFlow implements link.Port. The peer has said which mailboxes are open.
func (p port) OpenFlow(from, to fabric.VPID, c link.Credit) (link.Flow, error) {
	l := p.Link
	if l.down.Load() {
		return nil, errDown
	}
	limit := l.boxes[to].Load()
	if limit == 0 {
		return nil, errNoBox
	}
	l.flowMu.Lock()
	defer l.flowMu.Unlock()
	old := *l.outs.Load()
	if len(old) == maxFlows {
		return nil, errFlows
	}
	f := &outflow{l: l, id: uint16(len(old)), limit: int(limit), credit: c}
	list := append(old, f) // readers of the old slice do not look beyond its end
	l.outs.Store(&list)
	l.out.addMessage(&message{kind: kindOpen, flow: f.id, from: from, to: to})
	return f, nil
}

// ID implements link.Flow.
func (f *outflow) ID() uint16 { return f.id }

// Limit implements link.Flow.
func (f *outflow) Limit() int { return f.limit }

// Reserve implements link.Flow.
func (f *outflow) Reserve() (*[link.VELOPayload]byte, uint64, error) {
	switch {
	case f.l.down.Load():
		return nil, 0, errDown
	case f.dead.Load():
		return nil, 0, errNoBox
	}
	o := &f.l.out
	o.mu.Lock()
	if len(o.ctl) > ctlLimit {
		f.starved, o.starved = true, true
		o.mu.Unlock()
		f.l.dirty.Store(true)
		f.l.wakeServer()
		return nil, 0, errFull
	}
	var s *slot
	if n := len(o.free); n > 0 {
		s, o.free = o.free[n-1], o.free[:n-1]
	} else {
		s = new(slot)
	}
	pos := f.base + uint64(len(f.slots))
	f.slots = append(f.slots, s)
	o.mu.Unlock()
	return &s.payload, pos, nil
}

// Commit implements link.Flow. It only queues the message: Raise sends it, or the
// driver when it is about to wait.
func (f *outflow) Commit(pos, status uint64) {
	o := &f.l.out
	o.mu.Lock()
	s := f.slots[pos-f.base]
	s.status, s.committed = status, true
	n := 0
	for ; n < len(f.slots) && f.slots[n].committed; n++ {
		s := f.slots[n]
		size := min(velo.WordLen(s.status), link.VELOPayload)
		o.addLocked(&message{kind: kindVELO, flow: f.id, word: s.status, payload: s.payload[:size]})
		s.committed = false
		o.free = append(o.free, s)
	}
	if n > 0 {
		f.slots = f.slots[:copy(f.slots, f.slots[n:])]
		f.base += uint64(n)
		f.sent.Add(uint64(n))
	}
	o.mu.Unlock()
	f.l.count.TxMessages.Add(uint64(n))
	f.l.dirty.Store(true)
}

// Raise implements link.Flow. The peer raises the interrupt when the message comes.
func (f *outflow) Raise() { f.l.scheduleSend() }

// Consumed implements link.Remote.
func (f *outflow) Consumed() uint64 { return f.consumed.Load() }

// Watch implements link.Remote.
func (f *outflow) Watch(total uint64) { f.wanted.Store(total) }

// noteReturned is called by the pump: the peer has consumed total messages. True:
// Credit.Return is due.
func (f *outflow) noteReturned(total uint64) (due bool, err error) {
	if old := f.consumed.Load(); total < old || total > f.sent.Load() {
		return false, fmt.Errorf("%d messages of %d consumed, %d before", total, f.sent.Load(), old)
	}
	f.consumed.Store(total)
	w := f.wanted.Load()
	return w != 0 && total >= w && f.wanted.CompareAndSwap(w, 0), nil
}

// resumeFlows tells the flows that were refused a slot that there are some again.
func (l *Link) resumeFlows() {
	for _, f := range *l.outs.Load() {
		l.out.mu.Lock()
		starved := f.starved
		f.starved = false
		l.out.mu.Unlock()
		if starved {
			f.credit.Resume()
		}
	}
}

var _ link.Remote = (*outflow)(nil)

// inflow carries the messages of a mailbox of the peer to one of this node.
type inflow struct {
	// l is nil when the link is down: mailboxes remember their flows, and must not
	// keep links.
	l        atomic.Pointer[Link]
	id       uint16
	limit    uint64
	received uint64        // the pump's
	acked    atomic.Uint64 // consumed here
	dead     atomic.Bool
	raised   bool // the pump's: Raise is due
	listed   bool // guarded by outbox.mu: among its returns

	inbox link.Inbox
}

var _ link.Credit = (*inflow)(nil)

// acceptFlow is called by the pump: it opens the mailbox for a flow of the peer.
func (l *Link) acceptFlow(m *message) error {
	if int(m.flow) != len(l.ins) {
		return fmt.Errorf("flow %d after %d", m.flow, len(l.ins))
	}
	f := &inflow{id: m.flow}
	f.l.Store(l)
	l.ins = append(l.ins, f)
	t, err := l.nic.AcceptFlow(l.cfg.Peer, m.from, m.to, f)
	if err != nil {
		f.dead.Store(true)
		l.queueMessage(&message{kind: kindDown, flow: f.id})
		return nil
	}
	f.inbox.Target = t
	// The mailbox may have been opened anew since the peer was told, with fewer
	// credits than it knows of.
	f.limit = max(uint64(t.Limit()), l.offered[m.to].Load())
	return nil
}

// deliverMessage is called by the pump: it moves a message to the mailbox.
func (l *Link) deliverMessage(m *message) error {
	if int(m.flow) >= len(l.ins) {
		return fmt.Errorf("message of flow %d, which was not opened", m.flow)
	}
	l.count.RxMessages.Add(1)
	f := l.ins[m.flow]
	if f.dead.Load() {
		return nil
	}
	if f.received++; f.received-f.acked.Load() > f.limit {
		return errors.New("message without credit")
	}
	status := velo.WordFrom(m.word, l.cfg.Peer, f.inbox.Target.ID())
	if f.inbox.Deliver(status, foreign.Of(m.payload)) {
		l.count.Parked.Add(1)
	}
	if !f.raised {
		f.raised = true
		l.calls.addCall(call{do: callRaise, in: f})
	}
	return nil
}

// Resume implements link.Credit.
func (f *inflow) Resume() { f.inbox.Resume() }

// noteDown is called when the link is down: only what waits is still to be placed.
func (f *inflow) noteDown() {
	f.l.Store(nil)
	f.inbox.NoteDown()
}

// Return implements link.Credit.
func (f *inflow) Return(total uint64) {
	f.acked.Store(total)
	if l := f.l.Load(); l != nil {
		l.out.giveBack(f)
		l.scheduleSend()
	}
}

// Down implements link.Credit.
func (f *inflow) Down() {
	f.dead.Store(true)
	if l := f.l.Load(); l != nil {
		l.queueMessage(&message{kind: kindDown, flow: f.id})
		l.scheduleSend()
	}
}
