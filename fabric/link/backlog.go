package link

import (
	"sync"
	"sync/atomic"

	"exnet/foreign"
)

// Backlog holds messages of a flow for which the mailbox had no slot, in their order: as many as
// the flow has credits, at most. Messages of other flows do not wait behind them.
//
// Concurrency: all methods may be called from many goroutines. Add is called in the order of the
// messages.
type Backlog struct {
	some    atomic.Bool
	mu      sync.Mutex
	waiting []parked // guarded by mu
}

type parked struct {
	status  uint64
	payload [VELOPayload]byte
}

// Some reports whether messages are waiting, which later ones must not overtake.
func (b *Backlog) Some() bool { return b.some.Load() }

// Add copies a message that the mailbox refused, and reports true; or place, which puts a message
// into the mailbox and returns false if it is full, accepts it after all. Resume may come at any
// time.
func (b *Backlog) Add(status uint64, p foreign.Memory, place func(uint64, foreign.Memory) bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 && place(status, p) {
		return false
	}
	b.some.Store(true)
	m := parked{status: status}
	p.CopyTo(m.payload[:])
	b.waiting = append(b.waiting, m)
	return true
}

// Resume places what the mailbox has room for by now, and reports whether that was anything.
func (b *Backlog) Resume(place func(uint64, foreign.Memory) bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(b.waiting) && place(b.waiting[n].status, foreign.Of(b.waiting[n].payload[:])) {
		n++
	}
	b.waiting = append(b.waiting[:0], b.waiting[n:]...)
	if len(b.waiting) == 0 {
		b.some.Store(false)
	}
	return n > 0
}
