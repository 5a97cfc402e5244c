package txloop

import (
	"sync/atomic"
	"time"

	"exnet/internal/counter"

	"golang.org/x/sys/unix"
)

// waited counts counter.WaitTimes. It belongs to Run, and may be read by others.
type waited struct {
	counts [len(counter.WaitBounds) + 1]atomic.Uint64
	sum    atomic.Int64
}

func (w *waited) addTime(d time.Duration) {
	d = max(d, 0)
	i := 0
	for i < len(counter.WaitBounds) && d > counter.WaitBounds[i] {
		i++
	}
	w.counts[i].Add(1)
	w.sum.Add(int64(d))
}

// WaitTimes returns how long packets have waited until now.
func (l *Loop) WaitTimes() (t counter.WaitTimes) {
	for i := range t.Counts {
		t.Counts[i] = l.waited.counts[i].Load()
	}
	t.Sum = time.Duration(l.waited.sum.Load())
	return t
}

// monotonicTime returns CLOCK_MONOTONIC, which is that of BPF. Its zero is not that of package
// time.
func monotonicTime() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// countWait is called when packets of a device have been carried: it counts how long the first
// one has waited, and keeps where they came from.
func (l *Loop) countWait(s Senders) {
	l.sourceCPU = -1
	if s == nil {
		return
	}
	cpu, first := s.Take()
	l.sourceCPU = cpu
	if first != 0 {
		l.waited.addTime(l.zero + l.sinceStart() - time.Duration(first))
	}
}
