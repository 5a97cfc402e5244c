package rma

import (
	"sync/atomic"

	"exnet/fabric/atu"
	"exnet/fabric/internal/irq"
	"exnet/fabric/link"
)

// cacheLine separates fields that different cores write. It has the size of two
// lines, because the hardware fetches pairs.
type cacheLine [128]byte

// queue is a notification queue: a ring with many writers and one reader. Room is
// reserved before an operation starts, half of it for own operations and half for
// peers', so the ring is never full when a notification is written.
type queue struct {
	entries []entry
	mask    uint64
	share   int64 // room for own operations, and for peers': half each
	batch   int64 // room that is freed at a time
	overrun atomic.Bool
	links   *link.Set // links that may have more notifications, or nil
	line    irq.Line
	_       cacheLine

	tail    atomic.Uint64
	ownRoom atomic.Int64 // room taken by own operations, until read
	foreign atomic.Int64 // room taken by peers' operations, until read
	_       cacheLine

	// The reader's. It frees room in batches: the atomic addition costs more than the
	// rest of reading a notification.
	head                 uint64
	ownRead, foreignRead int64
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
		batch:   int64(min(max(n/16, 1), 16)),
	}
}

// phase is the phase bit of the entry at pos: 1 in the first lap.
func (q *queue) phase(pos uint64) uint64 {
	if pos&uint64(len(q.entries)) == 0 {
		return phaseBit
	}
	return 0
}

// reserveOwn reserves room for the notification of an own operation.
func (q *queue) reserveOwn() bool {
	if q.ownRoom.Add(1) > q.share {
		q.ownRoom.Add(-1)
		return false
	}
	return true
}

// reserveForeign reserves room for the notification of a peer's operation. It returns
// false, and records an overrun, if there is none.
func (q *queue) reserveForeign() bool {
	if !q.roomForeign() {
		q.overrun.Store(true)
		return false
	}
	return true
}

// roomForeign is reserveForeign for a notification that can wait: it records no overrun.
func (q *queue) roomForeign() bool {
	if q.foreign.Add(1) > q.share {
		q.foreign.Add(-1)
		return false
	}
	return true
}

// isForeign reports whether n takes room of the peers' half: the responder of a GET
// and the completer of a PUT report a peer's operation.
func isForeign(n *Notification) bool {
	return n.Writer == Responder || n.Writer == Completer && n.Command != CommandGet
}

// writeReserved writes a notification for which room was reserved, and raises the interrupt.
func (q *queue) writeReserved(n Notification) {
	pos := q.tail.Add(1) - 1
	e := &q.entries[pos&q.mask]
	e.local = n.Local
	e.word.Store(n.word() | q.phase(pos))
	q.line.Raise()
}

// enableInterrupt enables the interrupt and reports whether there are notifications. It uses
// the reader's fields first, because the handler may be the next reader.
func (q *queue) enableInterrupt() bool {
	q.freeRead()
	h := q.head
	q.line.Enable()
	return (q.entries[h&q.mask].word.Load()^q.phase(h))&phaseBit == 0
}

func (q *queue) read() (Notification, bool) {
	e := &q.entries[q.head&q.mask]
	w := e.word.Load()
	if (w^q.phase(q.head))&phaseBit != 0 {
		q.freeRead()
		if q.links == nil || !q.links.Poll() {
			return Notification{}, false
		}
		// The handler of an interrupt may have been the next reader.
		e = &q.entries[q.head&q.mask]
		if w = e.word.Load(); (w^q.phase(q.head))&phaseBit != 0 {
			return Notification{}, false
		}
	}
	n := notificationOf(w, e.local)
	q.head++
	if isForeign(&n) {
		q.foreignRead++
	} else {
		q.ownRead++
	}
	if q.ownRead+q.foreignRead >= q.batch {
		q.freeRead()
	}
	return n, true
}

// freeRead frees the room of the notifications that were read since the last flush.
func (q *queue) freeRead() {
	if q.ownRead != 0 {
		q.ownRoom.Add(-q.ownRead)
		q.ownRead = 0
	}
	if q.foreignRead != 0 {
		q.foreign.Add(-q.foreignRead)
		q.foreignRead = 0
	}
}
