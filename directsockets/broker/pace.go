package broker

import (
	"sync/atomic"
	"time"
)

// What the clients of one user other than root may ask together: a message each
// paceCost on average, and so many at once as fit into paceBurst. The broker may run at
// real-time priority; whoever floods it waits, and does not take the processor from
// others.
const (
	paceCost  = 25 * time.Microsecond
	paceBurst = 50 * time.Millisecond
)

// pace spreads messages over time: the generic cell rate algorithm (ITU-T I.371),
// with the time at which the next one is due as its only state.
type pace struct{ due atomic.Int64 }

// wait returns how long to wait before the next message is read, at a time in ns.
func (p *pace) wait(now int64) time.Duration {
	for {
		due := p.due.Load()
		next := max(due, now) + int64(paceCost)
		if p.due.CompareAndSwap(due, next) {
			return max(0, time.Duration(next-now)-paceBurst)
		}
	}
}

// epoch is what these times count from; time.Since reads the monotonic clock.
var epoch = time.Now()
