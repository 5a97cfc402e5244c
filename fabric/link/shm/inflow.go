package shm

import (
	"sync/atomic"

	"exnet/fabric/link"
	"exnet/foreign"
	"exnet/internal/shm"
)

// inflow carries the messages of a mailbox of the peer to one of this node: it
// moves messages from the ring to the mailbox, and carries the credits back.
type inflow struct {
	// l is nil when the link is down: mailboxes remember their flows, and must not
	// keep links.
	l        atomic.Pointer[Link]
	id       uint16
	word     uint64 // source and flow number of status words
	limit    uint64
	received uint64 // messages that came; belongs to the pump

	dead     atomic.Bool
	reported atomic.Uint64 // the peer's want that was answered last
	inbox    link.Inbox
}

// sourceMask are the bits of a status word that the link answers for.
const sourceMask = kindMask | flowMask<<flowShift | phaseBit

// acceptFlow is called by the pump: it opens the mailbox for the flow in m.
func (l *Link) acceptFlow(m *message) (*inflow, bool) {
	if m.id >= MaxFlows || l.inflowByID(uint64(m.id)) != nil || !m.from.Valid() || !m.to.Valid() {
		return nil, false
	}
	f := &inflow{id: m.id}
	f.l.Store(l)
	for int(m.id) >= len(l.ins) {
		l.ins = append(l.ins, nil)
	}
	l.ins[m.id] = f
	t, err := l.nic.AcceptFlow(l.peer, m.from, m.to, f)
	if err != nil {
		f.dead.Store(true)
		return f, true
	}
	f.inbox.Target = t
	// The mailbox may have been opened anew since the peer looked, with fewer
	// credits than the peer saw.
	f.limit = max(uint64(t.Limit()), l.offered[m.to].Load())
	f.word = uint64(l.peer) | uint64(t.ID())<<flowShift
	return f, true
}

// inflowByID is the flow with a number of the peer's, or nil. It belongs to the pump.
func (l *Link) inflowByID(id uint64) *inflow {
	if id >= uint64(len(l.ins)) {
		return nil
	}
	return l.ins[id]
}

// deliverMessage moves a message to the mailbox. It belongs to the pump. It returns false
// if the peer sends without credit.
func (l *Link) deliverMessage(f *inflow, status uint64, p foreign.Memory) bool {
	if f.dead.Load() {
		return true
	}
	f.received++
	if f.received-l.near.ack[f.id].Load() > f.limit {
		return false
	}
	status = status&^sourceMask | f.word
	if f.inbox.Deliver(status, p.Part(0, int(min(status>>lenShift&lenMask, link.VELOPayload)))) {
		l.count.parked.Add(1)
	}
	return true
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
	l := f.l.Load()
	if l == nil {
		return
	}
	shm.Publish()
	l.near.ack[f.id].Swap(total) // and no Store: see package shm
	w := l.far.want[f.id].Load()
	if w != 0 && int64(total-w) >= 0 && f.reported.Swap(w) != w {
		l.wakePeer()
	}
}

// Down implements link.Credit.
func (f *inflow) Down() {
	f.dead.Store(true)
	if l := f.l.Load(); l != nil {
		l.out.sendMessage(&message{kind: kindDown, id: f.id})
	}
}
