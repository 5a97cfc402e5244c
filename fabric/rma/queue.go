package rma

import (
	"sync/atomic"

	"exnet/fabric/atu"
	"exnet/fabric/internal/irq"
)

// cacheLine keeps apart what different cores write. Two lines, because the
// hardware fetches pairs.
type cacheLine [128]byte

// queue is a notification queue: a ring with many writers and one reader. Room is
// taken before an operation starts, half of it for own operations and half for
// peers', so that a write never meets a full ring.
type queue struct {
	entries []entry
	mask    uint64
	share   int64 // len(entries)/2
	overrun atomic.Bool
	line    irq.Line
	_       cacheLine

	tail    atomic.Uint64
	own     atomic.Int64 // room taken by own operations, until read
	foreign atomic.Int64 // room taken by peers' operations, until read
	_       cacheLine

	head atomic.Uint64 // the reader's
}

type entry struct {
	word  atomic.Uint64 // written last
	local atu.NLA
}

func newQueue(n int) *queue {
	return &queue{
		entries: make([]entry, n),
		mask:    uint64(n - 1),
		share:   int64(n / 2),
	}
}

// phase is the phase bit of the entry at pos: 1 in the first lap.
func (q *queue) phase(pos uint64) uint64 {
	if pos&uint64(len(q.entries)) == 0 {
		return phaseBit
	}
	return 0
}

// reserveOwn takes room for the notification of an own operation.
func (q *queue) reserveOwn() bool {
	if q.own.Add(1) > q.share {
		q.own.Add(-1)
		return false
	}
	return true
}

// reserveForeign takes room for the notification of a peer's operation. False is
// an overrun.
func (q *queue) reserveForeign() bool {
	if q.foreign.Add(1) > q.share {
		q.foreign.Add(-1)
		q.overrun.Store(true)
		return false
	}
	return true
}

// isForeign reports in which half n counts: a peer's operation is reported by
// the responder of a GET or the completer of a PUT.
func isForeign(n *Notification) bool {
	return n.Writer == Responder || n.Writer == Completer && n.Command != CommandGet
}

// write writes a notification that room was taken for, and raises the interrupt.
func (q *queue) write(n Notification) {
	pos := q.tail.Add(1) - 1
	e := &q.entries[pos&q.mask]
	e.local = n.Local
	e.word.Store(n.word() | q.phase(pos))
	q.line.Raise()
}

// enable enables the interrupt and reports whether there are notifications. The
// reader's field is read before: the handler may be the next reader.
func (q *queue) enable() bool {
	h := q.head.Load()
	q.line.Enable()
	return (q.entries[h&q.mask].word.Load()^q.phase(h))&phaseBit == 0
}

func (q *queue) next() (Notification, bool) {
	h := q.head.Load()
	e := &q.entries[h&q.mask]
	w := e.word.Load()
	if (w^q.phase(h))&phaseBit != 0 {
		return Notification{}, false
	}
	n := notificationOf(w, e.local)
	q.head.Store(h + 1)
	if isForeign(&n) {
		q.foreign.Add(-1)
	} else {
		q.own.Add(-1)
	}
	return n, true
}
