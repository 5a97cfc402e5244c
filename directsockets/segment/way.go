package segment

import (
	"exnet/foreign"
	"exnet/internal/shm"
)

// way has how TX copies into its ring. To write a line of the ring is to fetch it from the cache of
// the peer's CPU first; if that is far, a copy past the caches is several times as fast, and if it
// is near, slower (docs/results/performance.md). CPUs of virtual machines move, so it is decided by
// the time of the copies.
type way struct {
	past bool
	slow int // 0..slowMost: the last copies through the caches were slow
	left int // bytes to copy past the caches before one through them is timed again
}

const (
	// wayLeast is the least copy that is timed, or goes past the caches.
	wayLeast = 16 << 10
	// slowMost copies in a row that are slow have the next ones go past the caches.
	slowMost = 8
	// wayAgain is how many bytes go past the caches before one copy through them is tried.
	wayAgain = 16 << 20
)

// copyIn copies p to m, which is a part of the ring. together: the peer is on the caller's CPU.
func (w *way) copyIn(m foreign.Memory, p []byte, together bool) {
	switch n := len(p); {
	case n < wayLeast || together:
		m.Fill(p)
	case w.past && w.left > 0:
		w.left -= n
		shm.FillPast(m, p)
	default:
		begun := shm.Ticks()
		m.Fill(p)
		w.noteCopy(shm.Ticks()-begun, n)
	}
}

// noteCopy notes that a copy of n bytes through the caches took so many ticks: half a tick for a
// byte is some 5 GB/s.
func (w *way) noteCopy(ticks uint64, n int) {
	if ticks*2 <= uint64(n) {
		w.slow /= 2
		w.past = false
		return
	}
	if w.slow = min(w.slow+1, slowMost); w.slow == slowMost {
		w.past, w.left = true, wayAgain
	}
}
