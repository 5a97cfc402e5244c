package txloop

import (
	"math"
	"time"

	"exnet/internal/sched"

	"golang.org/x/sys/unix"
)

// spin says whether a thread that finds nothing looks again for a moment before it
// waits. Where a request is answered at once, a thread that looks need not be woken, which
// costs more than all the rest of the way. Between two looks it leaves the CPU to the
// programs (sched_yield), so that one that shares it with them hands a packet over by a
// switch of tasks and no more.
//
//	nothing there ─► look ─► yield ─► look ─► yield ─► ...
//	                   │ found: score up        │ spinTime is over: score down, wait
//	                   └► handle                └ a program kept the CPU: barred, wait
//
// It begins when a wait was so short that looking would have ended it (as the halt
// polling of KVM does), and ends when looking has failed more often than not. Traffic at
// which naps pay is left to them.
type spin struct {
	score int           // positive: looking pays
	begun time.Duration // when this spin began; 0: there is none
	until time.Duration // no spin before that time
	bar   time.Duration // for how long the next program that keeps the CPU ends it
	row   int           // spins in a row that paid
}

const (
	// spinTime is how long it looks. A request over two daemons that are awake is
	// answered within half of that.
	spinTime = 100 * time.Microsecond
	// crowded is how long a program may keep the CPU. One that computes keeps it for
	// its time slice, milliseconds, and a thread that waits is put before it.
	crowded = time.Millisecond
	minBar  = 5 * time.Millisecond
	maxBar  = 1280 * time.Millisecond
	// forgiven is how many spins in a row bring the bar back to its minimum.
	forgiven = 256
	maxScore = 16
	// paid is what a spin adds that has found something; one that has not takes 1.
	paid = 2
)

// noteNoYield says that programs do not get the CPU by a yield.
func (s *spin) noteNoYield() { *s = spin{until: math.MaxInt64} }

// lookAgain reports whether to look again, at a time when there is nothing to do.
func (s *spin) lookAgain(now time.Duration) bool {
	switch {
	case s.score <= 0 || now < s.until:
		s.begun = 0
		return false
	case s.begun == 0:
		s.begun = now
	case now-s.begun >= spinTime:
		s.begun = 0
		s.score--
		s.row = 0
		return false
	}
	return true
}

// noteFound says that there was something to do, and reports whether a spin has found it.
func (s *spin) noteFound() bool {
	if s.begun == 0 {
		return false
	}
	s.begun = 0
	s.score = min(s.score+paid, maxScore)
	if s.row++; s.row >= forgiven {
		s.bar = minBar
	}
	return true
}

// noteYielded says for how long others had the CPU.
func (s *spin) noteYielded(now, took time.Duration) {
	if took < crowded {
		return
	}
	s.bar = max(s.bar, minBar)
	s.until = now + s.bar
	s.bar = min(2*s.bar, maxBar)
	s.row = 0
}

// isBarred reports whether a program has kept the CPU.
func (s *spin) isBarred() bool { return s.bar > 0 }

// noteWaited says how long a wait took that something ended.
func (s *spin) noteWaited(took time.Duration) {
	if took < spinTime {
		s.score = min(s.score+paid, maxScore)
	}
}

// spinOn looks again soon, or reports false: then the loop waits. Only a thread of the
// programs' own priority leaves the CPU to them.
func (l *Loop) spinOn() bool {
	now := l.sinceStart()
	first := l.spin.begun == 0
	if l.home.thread != 0 && l.round < settled || l.load.oneWay() || !l.spin.lookAgain(now) {
		return false
	}
	if first {
		if !l.lowerPriority() {
			l.spin.noteNoYield()
			return false
		}
		l.place.bindThread(l.links)
		l.stats.Spins.Add(1)
		l.load.noteWait()
	}
	l.yieldCPU()
	end := l.sinceStart()
	l.spin.noteYielded(end, end-now)
	return true
}

// yieldCPU leaves the CPU to the programs.
func (l *Loop) yieldCPU() {
	l.threadCPU = -1
	if l.yielding != nil {
		l.yielding()
		return
	}
	unix.RawSyscallNoError(unix.SYS_SCHED_YIELD, 0, 0, 0)
}

// lowerPriority gives the thread the programs' priority, and reports whether it has it.
func (l *Loop) lowerPriority() (ok bool) {
	if l.lowered {
		return true
	}
	l.lockThread()
	ok, l.lowered = sched.Lower()
	return ok
}

// raisePriority gives it back that of the process.
func (l *Loop) raisePriority() {
	if l.lowered {
		l.lowered = false
		sched.Raise()
	}
}
