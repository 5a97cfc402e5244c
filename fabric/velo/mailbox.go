package velo

import (
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/internal/irq"
	"exnet/fabric/link"
)

// cacheLine separates fields that different cores write. It has the size of two
// lines, because the hardware fetches pairs.
type cacheLine [128]byte

// slot is one slot of a mailbox.
type slot struct {
	status  atomic.Uint64
	payload [MaxPayload]byte
}

// mailbox is the receiving side of an endpoint: a ring of slots with many
// writers and one reader.
type mailbox struct {
	slots   []slot
	mask    uint64
	credits int
	batch   int // slots that are freed, and credits that are returned, at a time
	closed  atomic.Bool
	starved atomic.Bool // a flow was refused because the ring was full
	flows   atomic.Pointer[[]*inflow]
	links   *link.Set // links that may have more messages, or nil
	line    irq.Line
	_       cacheLine

	// What the writers write.
	tail     atomic.Uint64 // slots reserved
	headSeen atomic.Uint64 // a former value of head, or the present one
	_        cacheLine

	// What the reader writes. It frees slots and returns credits in batches: each
	// is an atomic store that costs more than the rest of reading a message.
	head  atomic.Uint64 // slots freed
	pos   uint64        // slots read
	fed   uint64        // pos when feed last woke a flow
	cur   *inflow       // of the message that peekMessage lent
	last  *inflow       // of the messages read since the last flush, or nil
	count mailboxCounters
	_     cacheLine

	// gone: some of ending may be free by now.
	gone atomic.Bool

	mu sync.Mutex // serialises accept, close and the end of flows
	// +checklocks:mu
	list []*inflow // what flows points to
	// +checklocks:mu
	ending []*inflow // with messages that may be unread
	// +checklocks:mu
	free []*inflow // without
	// +checklocks:mu
	open map[fabric.NodeID]int // flows that are not free
}

// maxOpen is how many flows of one node a mailbox has: a node that opens flows without end takes
// no numbers from the others.
const maxOpen = (maxFlow + 1) / 4

type mailboxCounters struct {
	badSlot atomic.Uint64 // impossible length or source of a message
	badFlow atomic.Uint64 // flow number that was never assigned
	void    atomic.Uint64 // slots that were reserved and not used
}

// inflow is the target's side of a flow: a cache line that senders read, and one
// that the reader writes.
type inflow struct {
	box     *mailbox
	credit  link.Credit
	src     fabric.NodeID
	srcVPID fabric.VPID
	id      uint16
	starved atomic.Bool
	_       [20]byte
	end     uint64 // guarded by box.mu: tail when it ended

	consumed uint64
	_        [56]byte
}

func newMailbox(slots, credits int) *mailbox {
	m := &mailbox{
		slots:   make([]slot, slots),
		mask:    uint64(slots - 1),
		credits: credits,
		batch:   min(max(credits/8, 1), 16),
	}
	m.flows.Store(new([]*inflow))
	return m
}

// phaseAt is the phase bit of the message at pos. It is 1 in the first lap, so that
// a fresh ring has no message.
func (m *mailbox) phaseAt(pos uint64) uint64 {
	if pos&uint64(len(m.slots)) == 0 {
		return phaseBit
	}
	return 0
}

// openFlow opens a flow of the mailbox from of src.
func (m *mailbox) openFlow(src fabric.NodeID, from fabric.VPID, c link.Credit) (*inflow, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed.Load() {
		return nil, errMailboxClosed
	}
	if m.open[src] >= maxOpen || len(m.free) == 0 && len(m.list) > maxFlow {
		return nil, errFlows
	}
	if m.open == nil {
		m.open = make(map[fabric.NodeID]int)
	}
	m.open[src]++
	if n := len(m.free); n > 0 { // the reader finds it by a message, or starved
		f := m.free[n-1]
		m.free = m.free[:n-1]
		f.src, f.srcVPID, f.credit, f.consumed = src, from, c, 0
		return f, nil
	}
	f := &inflow{box: m, src: src, srcVPID: from, id: uint16(len(m.list)), credit: c}
	m.list = append(m.list, f) // readers of the old slice do not look beyond its end
	list := m.list
	m.flows.Store(&list)
	return f, nil
}

// End implements link.Ending.
func (f *inflow) End() {
	m := f.box
	m.mu.Lock()
	defer m.mu.Unlock()
	f.end = m.tail.Load()
	m.ending = append(m.ending, f)
	m.gone.Store(true)
}

// freeEnded frees the flows that have ended and of which no message is left. The reader calls it
// when it has read everything.
func (m *mailbox) freeEnded() {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := m.ending[:0]
	for _, f := range m.ending {
		if m.pos < f.end {
			left = append(left, f)
			continue
		}
		f.starved.Store(false)
		if m.open[f.src]--; m.open[f.src] == 0 {
			delete(m.open, f.src)
		}
		f.credit = ended{} // that of the link goes
		m.free = append(m.free, f)
	}
	m.ending = left
	m.gone.Store(len(m.ending) > 0)
}

// ended is the credit of a flow that has ended.
type ended struct{}

func (ended) Return(uint64) {}
func (ended) Resume()       {}
func (ended) Down()         {}

// close refuses new messages and flows, and notifies the sources.
func (m *mailbox) close() {
	m.mu.Lock()
	m.closed.Store(true)
	credits := make([]link.Credit, len(m.list))
	for i, f := range m.list {
		credits[i] = f.credit
	}
	m.mu.Unlock()
	for _, c := range credits {
		c.Down()
	}
}

// ID implements link.Flow.
func (f *inflow) ID() uint16 { return f.id }

// Limit implements link.Flow.
func (f *inflow) Limit() int { return f.box.credits }

// Reserve implements link.Flow.
func (f *inflow) Reserve() (*[MaxPayload]byte, uint64, error) {
	m := f.box
	for {
		if m.closed.Load() {
			return nil, 0, errMailboxClosed
		}
		t := m.tail.Load()
		if t-m.headSeen.Load() > m.mask && !m.hasRoom(f, t) {
			return nil, 0, errFull
		}
		if m.tail.CompareAndSwap(t, t+1) {
			return &m.slots[t&m.mask].payload, t, nil
		}
	}
}

// hasRoom reads head and reports whether the ring has a free slot. If not, f is woken
// later.
func (m *mailbox) hasRoom(f *inflow, tail uint64) bool {
	full := func() bool {
		h := m.head.Load()
		m.headSeen.Store(h)
		return tail-h > m.mask
	}
	if !full() {
		return true
	}
	f.starved.Store(true)
	m.starved.Store(true)
	return !full() // the reader may have missed the flags
}

// Commit implements link.Flow.
func (f *inflow) Commit(pos, status uint64) {
	m := f.box
	m.slots[pos&m.mask].status.Store(status&^phaseBit | m.phaseAt(pos))
}

// Raise implements link.Flow.
func (f *inflow) Raise() { f.box.line.Raise() }

// enableInterrupt enables the interrupt and reports whether the next slot is filled. It reads
// the reader's fields first, because the handler may be the next reader.
func (m *mailbox) enableInterrupt() bool {
	m.returnCredits()
	pos := m.pos
	m.line.Enable()
	return m.isFilled(pos)
}

// isFilled reports whether the slot at pos has been written.
func (m *mailbox) isFilled(pos uint64) bool {
	return (m.slots[pos&m.mask].status.Load()^m.phaseAt(pos))&phaseBit == 0
}

// peekMessage lends the oldest valid message, and skips and counts the others.
func (m *mailbox) peekMessage() (Status, []byte, bool) {
	looked := false // the links were asked for more
	for {
		sl := &m.slots[m.pos&m.mask]
		w := sl.status.Load()
		if (w^m.phaseAt(m.pos))&phaseBit != 0 {
			m.returnCredits()
			if looked || m.links == nil || !m.links.Poll() {
				if m.gone.Load() {
					m.freeEnded()
				}
				return Status{}, nil, false
			}
			looked = true
			continue
		}
		st := statusOf(w)
		flows := *m.flows.Load()
		if int(st.Flow) >= len(flows) {
			m.count.badFlow.Add(1)
			m.returnCredits()
			m.pos++
			m.head.Store(m.pos)
			continue
		}
		f := flows[st.Flow]
		m.cur = f
		switch {
		case st.isValid() && st.Src == f.src && st.SrcVPID == f.srcVPID:
			return st, sl.payload[:st.Len:st.Len], true
		case st.Len == 0: // abandoned by a multicast that another member refused
			m.count.void.Add(1)
		default:
			m.count.badSlot.Add(1)
		}
		m.freeSlot()
	}
}

// freeSlot frees the slot that peekMessage lent, and returns the credit.
func (m *mailbox) freeSlot() {
	f := m.cur
	if f == nil {
		return
	}
	m.cur = nil
	if f != m.last {
		m.returnCredits()
		m.last = f
	}
	m.pos++
	f.consumed++
	if m.pos-m.head.Load() >= uint64(m.batch) {
		m.returnCredits()
	}
}

// returnCredits frees the slots that were read since the last flush and returns their
// credits. All of them belong to one flow.
//
// No source waits for an unflushed slot alone: a batch is smaller than the credits
// of a flow and the slots of the ring, so a refused source has unread messages, and
// the reader calls flush after it has read them.
func (m *mailbox) returnCredits() {
	f := m.last
	if f == nil {
		return
	}
	m.last = nil
	m.head.Store(m.pos)
	f.credit.Return(f.consumed)
	if m.starved.Load() {
		m.feedFlows()
	}
}

// feedFlows wakes the flows that a full ring refused, when half of the ring is free, or
// when a quarter of it was read since feed last woke flows.
func (m *mailbox) feedFlows() {
	n := uint64(len(m.slots))
	if m.pos-m.fed < n/4 && m.tail.Load()-m.pos > n/2 {
		return
	}
	if !m.starved.CompareAndSwap(true, false) {
		return
	}
	m.fed = m.pos
	for _, f := range *m.flows.Load() {
		if f.starved.Load() && f.starved.CompareAndSwap(true, false) {
			f.credit.Resume()
		}
	}
}
