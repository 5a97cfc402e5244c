package client

import "sync/atomic"

// Habit is how long the connections of a process last that it offers a segment to. Such an offer
// costs as much as some hundred small requests on TCP. While connections that were offered one end
// early, the next ones should be offered theirs later, and once they last, earlier again (SPEC
// 5.1). The zero value is ready. Safe for concurrent use.
type Habit struct {
	ends atomic.Int32 // early ones, less earlyEnds for each that lasted
}

const (
	earlyEnds   = 4 // for a step
	steps       = 6
	lastedSends = 128
	lastedBytes = 1 << 20
)

// Steps says how often to double what a connection must send or move until it is offered a
// segment: 0..6.
func (h *Habit) Steps() int { return int(h.ends.Load() / earlyEnds) }

// Ended says that a connection that was offered a segment has ended, after so many sends and bytes.
func (h *Habit) Ended(sends, bytes uint64) {
	for {
		n := h.ends.Load()
		next := min(n+1, earlyEnds*steps)
		if sends >= lastedSends || bytes >= lastedBytes {
			next = max(n-earlyEnds, 0)
		}
		if h.ends.CompareAndSwap(n, next) {
			return
		}
	}
}
