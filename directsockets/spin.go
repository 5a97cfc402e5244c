package directsockets

import "time"

// Limits of spinning.
const (
	// spinMax is how long a wait looks for what it waits for before it sleeps:
	// about what going to sleep and being woken costs on another CPU.
	spinMax = 50 * time.Microsecond
	// spinMin is the shortest spin that is tried.
	spinMin = 2 * time.Microsecond
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
	// yieldMax is when a yield has gone to somebody else than the peer.
	yieldMax = 100 * time.Microsecond
)

// spinner decides how long a direction spins. It is halved when spinning was in
// vain, and comes back when it found something.
type spinner struct {
	limit   time.Duration // 0: never used
	skipped int
	lucky   bool // the last spin found something
}

// next is how long to spin now; 0: sleep at once.
func (s *spinner) next(max time.Duration) time.Duration {
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

// found and vain say what came of it.
func (s *spinner) found(max time.Duration) {
	s.limit = min(max, s.limit*2+spinMin)
	s.lucky = true
}

func (s *spinner) vain() {
	s.limit /= 2
	s.lucky = false
}

// hot reports whether to look at once.
func (s *spinner) hot() bool { return s.lucky }
