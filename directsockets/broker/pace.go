package broker

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// How much the clients of one container, or of one user outside of containers, may ask together.
// Each message is charged time; on average they may use as much time as passes, and paceBurst at
// once. The broker may run at real-time priority: a client that floods it waits, and takes no
// processor from others.
const (
	// paceCost is charged for a message whose cost does not depend on who asks.
	paceCost = 25 * time.Microsecond
	// connectCost is charged for a client: its socket, its goroutine, its place in the tables.
	connectCost = 200 * time.Microsecond
	// paceShare times the processor time is charged for what is measured: a container gets
	// a quarter of a processor, all of a user's a half, and all users a whole one.
	paceShare = 4
	paceBurst = 50 * time.Millisecond
)

// pace spreads the use of the broker over time: the generic cell rate algorithm (ITU-T I.371),
// with the time at which the next use is due as its only state.
type pace struct{ due atomic.Int64 }

// addCost adds a cost, at a time in ns, and returns how long to wait before the next use.
func (p *pace) addCost(now int64, cost time.Duration) time.Duration {
	for {
		due := p.due.Load()
		next := max(due, now) + int64(cost)
		if p.due.CompareAndSwap(due, next) {
			return max(0, time.Duration(next-now)-paceBurst)
		}
	}
}

// epoch is what these times count from; time.Since reads the monotonic clock.
var epoch = time.Now()

// monotonicTime returns the time in ns, see pace.addCost.
func monotonicTime() int64 { return int64(time.Since(epoch)) }

// measureTime returns the processor time that f takes, without the time that it waits. It holds a
// thread meanwhile, so not many at once may wait.
func measureTime(f func()) time.Duration {
	spent := beginMeasure()
	f()
	return spent()
}

// beginMeasure begins to measure the processor time of this thread, until the function that it
// returns is called.
func beginMeasure() func() time.Duration {
	runtime.LockOSThread()
	began := threadTime()
	return func() time.Duration {
		defer runtime.UnlockOSThread()
		return threadTime() - began
	}
}

// threadTime is the processor time that this thread has used.
func threadTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) // it does not fail
	return time.Duration(ts.Nano())
}

// meter is the pace of an owner's uses of one kind, whose cost is measured: each is charged what
// the last ones have cost before it begins, so that no number of them begins at once, and the
// rest when it has ended.
type meter struct{ last atomic.Int64 }

// chargeBefore charges what a use is likely to cost, and returns that and how long to wait.
func (m *meter) chargeBefore(l levels, now int64) (charged, wait time.Duration) {
	charged = max(paceCost, time.Duration(m.last.Load()))
	return charged, l.chargeTime(now, charged)
}

// chargeAfter charges what it has cost beyond that.
func (m *meter) chargeAfter(l levels, now int64, charged, spent time.Duration) {
	cost := paceCost + paceShare*spent
	last := time.Duration(m.last.Load())
	m.last.Store(int64(last + (cost-last)/4)) // others may store meanwhile: it is an estimate
	if cost > charged {
		l.chargeTime(now, cost-charged)
	}
}
