package tcpbench

import (
	"sync/atomic"
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
//
// Times are counted from base: reading the monotonic clock alone takes half the
// time of time.Now, and some paths move a message in less than either.
type meter struct {
	base        time.Time
	from        time.Duration
	duration    time.Duration
	first, last time.Duration
	counting    bool
	done        bool
	cpuFirst    time.Duration
	cpuLast     time.Duration
	bytes       int64
	alsoCPU     []int         // processes whose CPU time counts too
	conn        shadower      // nil: there is but one way
	settled     bool          // conn goes the way on which it stays
	settling    *atomic.Int32 // how many connections of the process do not yet
	shadow      int64         // bytes of conn that went over TCP while it counted
	before      int64         // and before
	kernel      int64         // bytes that TCP carried while it counted, as the kernel says
	why         string
}

// newMeter returns a meter of a connection whose warm-up began at start. Settling is at first how
// many there are in the process.
func newMeter(start time.Time, j job, c any, settling *atomic.Int32) meter {
	s, _ := c.(shadower)
	return meter{base: start, from: j.Warmup, duration: j.Duration, alsoCPU: j.AlsoCPU, conn: s, settling: settling}
}

// settlingOf returns what the meters of n connections have in common.
func settlingOf(n int) *atomic.Int32 {
	s := new(atomic.Int32)
	s.Store(int32(n))
	return s
}

// sinceBase returns the time since base.
func (m *meter) sinceBase() time.Duration { return time.Since(m.base) }

// countBytes counts n bytes that were moved by now.
func (m *meter) countBytes(n int, now time.Duration) {
	switch {
	case m.done:
	case m.counting:
		m.bytes += int64(n)
		if now-m.first >= m.duration {
			m.finish(now)
		}
	case now >= m.from && m.isWarm(now):
		m.begin(now)
	}
}

// settleTime is how much longer the warm-up may take until all connections go the direct way:
// setting them up is not what is measured. A connection that takes all of it hangs.
const settleTime = 30 * time.Second

// isWarm reports whether the warm-up is over: all connections of this process go the
// way on which they stay.
func (m *meter) isWarm(now time.Duration) bool {
	if m.conn == nil {
		return true
	}
	if !m.settled && m.conn.settled() {
		m.settled = true
		m.settling.Add(-1)
	}
	return m.settling.Load() <= 0 || now >= m.from+settleTime
}

// begin begins to count now.
func (m *meter) begin(now time.Duration) {
	m.counting, m.first, m.cpuFirst = true, now, cpuTime(m.alsoCPU)
	if m.conn != nil {
		bytes, _ := m.conn.shadow()
		m.before, m.shadow = int64(bytes), -int64(bytes)
		m.kernel = -overTCP(m.conn)
	}
}

// finish ends the measurement now.
func (m *meter) finish(now time.Duration) {
	if !m.counting { // one operation took all the time
		m.begin(now)
	}
	m.done, m.last, m.cpuLast = true, now, cpuTime(m.alsoCPU)
	if m.conn != nil {
		bytes, why := m.conn.shadow()
		m.shadow, m.why = m.shadow+int64(bytes), why
		m.kernel += overTCP(m.conn)
	}
}

// overTCP returns how many bytes of a conn TCP has carried as the kernel says; 0 of one that cannot
// ask it.
func overTCP(c shadower) int64 {
	if c, ok := c.(interface{ overTCP() uint64 }); ok {
		return int64(c.overTCP())
	}
	return 0
}

// sumMeters joins what the connections of one process counted, whose meters have
// the same base or nearly so.
func sumMeters(meters []meter) jobResult {
	sum := meters[0]
	first, last := sum.base.Add(sum.first), sum.base.Add(sum.last)
	for _, m := range meters[1:] {
		sum.bytes += m.bytes
		sum.shadow += m.shadow
		sum.before += m.before
		sum.kernel += m.kernel
		if t := m.base.Add(m.first); t.Before(first) {
			first, sum.cpuFirst = t, m.cpuFirst
		}
		if t := m.base.Add(m.last); t.After(last) {
			last, sum.cpuLast = t, m.cpuLast
		}
	}
	return jobResult{
		Bytes:      sum.bytes,
		Seconds:    last.Sub(first).Seconds(),
		CPUSeconds: (sum.cpuLast - sum.cpuFirst).Seconds(),
		Shadow:     sum.shadow,
		Before:     sum.before,
		Kernel:     sum.kernel,
		Why:        sum.why,
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
