package velo

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/internal/irq"
	"exnet/fabric/link"
)

// cacheLine keeps apart what different cores write. Two lines, because the
// hardware fetches pairs.
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
	lap     uint8 // bits.Len(len(slots)) - 1
	credits int
	closed  atomic.Bool
	starved atomic.Bool // a flow was refused because the ring was full
	flows   atomic.Pointer[[]*inflow]
	line    irq.Line
	_       cacheLine

	// What the writers write.
	tail     atomic.Uint64 // slots reserved
	headSeen atomic.Uint64 // a head that was true once
	_        cacheLine

	// What the reader writes.
	head  atomic.Uint64 // slots freed
	cur   *inflow       // of the message that peek lent
	count mailboxCounters
	_     cacheLine

	mu sync.Mutex // serialises accept and close
	// +checklocks:mu
	list []*inflow // what flows points to
}

type mailboxCounters struct {
	badSlot atomic.Uint64 // length or source of a message cannot be
	badFlow atomic.Uint64 // flow number that was never given out
	void    atomic.Uint64 // slots that were reserved and then not used
}

// inflow is the target's side of a flow.
type inflow struct {
	box     *mailbox
	src     fabric.NodeID
	srcVPID fabric.VPID
	id      uint16
	starved atomic.Bool
	credit  link.Credit
	_       cacheLine

	consumed uint64 // the reader's
}

func newMailbox(slots, credits int) *mailbox {
	m := &mailbox{
		slots:   make([]slot, slots),
		mask:    uint64(slots - 1),
		lap:     uint8(bits.Len(uint(slots)) - 1),
		credits: credits,
	}
	m.flows.Store(new([]*inflow))
	return m
}

// phase is the phase bit of the message at pos. It is 1 in the first lap, so that
// a fresh ring has no message.
func (m *mailbox) phase(pos uint64) uint64 { return (pos>>m.lap + 1) << 63 }

// accept opens a flow of the mailbox from of src.
func (m *mailbox) accept(src fabric.NodeID, from fabric.VPID, c link.Credit) (*inflow, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed.Load() {
		return nil, errMailboxClosed
	}
	if len(m.list) > maxFlow {
		return nil, errFlows
	}
	f := &inflow{box: m, src: src, srcVPID: from, id: uint16(len(m.list)), credit: c}
	m.list = append(m.list, f) // readers of the old slice do not look beyond its end
	list := m.list
	m.flows.Store(&list)
	return f, nil
}

// close refuses what comes from now on, and tells the sources.
func (m *mailbox) close() {
	m.mu.Lock()
	m.closed.Store(true)
	list := m.list
	m.mu.Unlock()
	for _, f := range list {
		f.credit.Down()
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
		if t-m.headSeen.Load() > m.mask && !m.room(f, t) {
			return nil, 0, errFull
		}
		if m.tail.CompareAndSwap(t, t+1) {
			return &m.slots[t&m.mask].payload, t, nil
		}
	}
}

// room looks at the reader's head, and has f woken later if the ring is full.
func (m *mailbox) room(f *inflow, tail uint64) bool {
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
	m.slots[pos&m.mask].status.Store(status&^phaseBit | m.phase(pos))
}

// Raise implements link.Flow.
func (f *inflow) Raise() { f.box.line.Raise() }

// pending reports whether the next slot is filled.
func (m *mailbox) pending() bool {
	h := m.head.Load()
	return (m.slots[h&m.mask].status.Load()^m.phase(h))&phaseBit == 0
}

// peek lends the oldest valid message, and skips and counts the others.
func (m *mailbox) peek() (Status, []byte, bool) {
	for {
		h := m.head.Load()
		sl := &m.slots[h&m.mask]
		w := sl.status.Load()
		if (w^m.phase(h))&phaseBit != 0 {
			return Status{}, nil, false
		}
		st := statusOf(w)
		flows := *m.flows.Load()
		if int(st.Flow) >= len(flows) {
			m.count.badFlow.Add(1)
			m.free(h)
			continue
		}
		m.cur = flows[st.Flow]
		if st.Len == 0 { // taken back by a multicast that another member refused
			m.count.void.Add(1)
			m.advance()
			continue
		}
		if !st.valid() || st.Src != m.cur.src || st.SrcVPID != m.cur.srcVPID {
			m.count.badSlot.Add(1)
			m.advance()
			continue
		}
		return st, sl.payload[:st.Len:st.Len], true
	}
}

// advance frees the slot that peek lent, and returns the credit.
func (m *mailbox) advance() {
	f := m.cur
	if f == nil {
		return
	}
	m.cur = nil
	m.free(m.head.Load())
	f.consumed++
	f.credit.Return(f.consumed)
}

// free frees the slot at the head h.
func (m *mailbox) free(h uint64) {
	m.head.Store(h + 1)
	if m.starved.Load() {
		m.feed(h + 1)
	}
}

// feed wakes the flows that a full ring has refused, when half of the ring is
// free or a quarter has been read since the last time.
func (m *mailbox) feed(head uint64) {
	n := uint64(len(m.slots))
	if head%max(n/4, 1) != 0 && m.tail.Load()-head > n/2 {
		return
	}
	if !m.starved.CompareAndSwap(true, false) {
		return
	}
	for _, f := range *m.flows.Load() {
		if f.starved.Load() && f.starved.CompareAndSwap(true, false) {
			f.credit.Resume()
		}
	}
}
