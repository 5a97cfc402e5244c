package tcpbench

import (
	"time"

	"golang.org/x/sys/unix"
)

// meter counts the bytes of one connection, from the end of the warm-up on for
// a given time. The operation that is under way at either end sets the true
// boundary, so no byte is counted without its time.
//
//	connected          from
//	    |--- warm-up ---|  |------ duration ------|
//	                       ^ first                  ^ last
//	                       |------- counted --------|
type meter struct {
	from        time.Time
	duration    time.Duration
	first, last time.Time
	cpuFirst    time.Duration
	cpuLast     time.Duration
	bytes       int64
	alsoCPU     []int // processes whose CPU time counts too
}

func newMeter(start time.Time, j job) meter {
	return meter{from: start.Add(j.Warmup), duration: j.Duration, alsoCPU: j.AlsoCPU}
}

// add counts n bytes that were moved by now.
func (m *meter) add(n int, now time.Time) {
	switch {
	case m.done():
	case m.counting():
		m.bytes += int64(n)
		if now.Sub(m.first) >= m.duration {
			m.finish(now)
		}
	case !now.Before(m.from):
		m.first, m.cpuFirst = now, cpuTime(m.alsoCPU)
	}
}

func (m *meter) counting() bool { return !m.first.IsZero() }
func (m *meter) done() bool     { return !m.last.IsZero() }

// finish ends the measurement now.
func (m *meter) finish(now time.Time) {
	m.last, m.cpuLast = now, cpuTime(m.alsoCPU)
	if !m.counting() { // one operation took all the time
		m.first, m.cpuFirst = m.last, m.cpuLast
	}
}

// sumMeters joins what the connections of one process counted.
func sumMeters(meters []meter) jobResult {
	sum := meters[0]
	for _, m := range meters[1:] {
		sum.bytes += m.bytes
		if m.first.Before(sum.first) {
			sum.first, sum.cpuFirst = m.first, m.cpuFirst
		}
		if m.last.After(sum.last) {
			sum.last, sum.cpuLast = m.last, m.cpuLast
		}
	}
	return jobResult{
		Bytes:      sum.bytes,
		Seconds:    sum.last.Sub(sum.first).Seconds(),
		CPUSeconds: (sum.cpuLast - sum.cpuFirst).Seconds(),
	}
}

// cpuTime returns the user and system time of this process and of the others.
func cpuTime(others []int) time.Duration {
	var use unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &use) // only a bad argument fails
	sum := time.Duration(use.Utime.Nano() + use.Stime.Nano())
	for _, pid := range others {
		sum += processTime(pid)
	}
	return sum
}

// processTime returns the user and system time of a process, 0 if it is gone.
func processTime(pid int) time.Duration {
	// MAKE_PROCESS_CPUCLOCK of linux/posix-timers_types.h, as
	// clock_getcpuclockid(3) makes it.
	const cpuclockSched = 2
	clock := int32(^pid<<3 | cpuclockSched)
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
