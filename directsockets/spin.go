package directsockets

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Limits of spinning.
const (
	// spinMax is how long a wait polls before it sleeps: about what going to sleep and being
	// woken costs on another CPU.
	spinMax = 50 * time.Microsecond
	// spinMin is the shortest spin that is tried.
	spinMin = 2 * time.Microsecond
	// spinScheduled is the longest where the scheduler looks for messages, for longer and for
	// all connections at once, when no goroutine has anything to do.
	spinScheduled = 3 * time.Microsecond
	// spinProbe is every how many waits a direction that has stopped spinning tries
	// again.
	spinProbe = 32
	// hotLooks are taken at once, before anything is asked, where the last spin found
	// something: about a microsecond.
	hotLooks = 64
	// yieldEvery is every how many looks at the clock other goroutines get their turn.
	yieldEvery = 8
	// yields are tried instead of spinning when the peer's CPU is the own one.
	yields = 4
	// yieldMax is when a yield has gone to somebody else than the peer: to copy a ring of 1 MiB
	// takes a peer 60 to 200 us. C has as much (preload/conn/spin.c).
	yieldMax = 300 * time.Microsecond
	// yieldShare is how much longer than such a yield took nobody yields: the
	// scheduler has a program that yields wait for all others, on a busy machine for
	// milliseconds, and one that sleeps not.
	yieldShare = 20
	// yieldPause is how long nobody yields at most: a program that was stopped yields again.
	yieldPause = time.Second
)

// yielder decides whether the goroutines of a process yield. Times are shm.Nanotime's.
type yielder struct{ not atomic.Int64 } // nobody yields before

var yielding yielder

func (y *yielder) mayYield(now int64) bool { return now >= y.not.Load() }

// wasSlow reports whether yields from start to now have gone to others than the peer; if so, nobody
// yields for a while.
func (y *yielder) wasSlow(start, now int64) bool {
	took := now - start
	if took <= int64(yieldMax) {
		return false
	}
	y.not.Store(now + min(yieldShare*took, int64(yieldPause)))
	return true
}

// spinning is how many goroutines spin. Those beyond maxSpinning sleep at once: the process has
// other work than to wait.
var spinning atomic.Int32

var maxSpinning = int32(max(1, runtime.GOMAXPROCS(0)/2))

// spinner decides how long a direction spins. A spin in vain halves the time, one that finds
// something doubles it, up to the maximum.
type spinner struct {
	limit   time.Duration // 0: never used
	skipped int
	lucky   bool // the last spin found something
}

// nextSpin is how long to spin now; 0: sleep at once.
func (s *spinner) nextSpin(max time.Duration) time.Duration {
	if s.limit == 0 {
		s.limit = max
	}
	if s.limit < spinMin {
		if s.skipped++; s.skipped < spinProbe {
			return 0
		}
		s.skipped = 0
		return min(spinMin, max)
	}
	return min(s.limit, max)
}

// noteFound and noteVain take down what came of a spin.
func (s *spinner) noteFound(max time.Duration) {
	s.limit = min(max, s.limit*2+spinMin)
	s.lucky = true
}

func (s *spinner) noteVain() {
	s.limit /= 2
	s.lucky = false
}

// isHot reports whether the last spin found something: then it pays to look at once.
func (s *spinner) isHot() bool { return s.lucky }
