package accept

import "testing"

// A user has so many connections at once, whatever others have; root has as many as it wants.
func TestGate(t *testing.T) {
	g := NewGate(3)
	enter := func(user uint32, n int, last bool) {
		t.Helper()
		for i := range n {
			if ok := g.enter(user); ok != (last || i+1 < n) {
				t.Errorf("connection %d of user %d: %v", i+1, user, ok)
			}
		}
	}
	enter(1000, 4, false)
	enter(1001, 3, true)
	enter(0, 100, true)
	g.leave(1000)
	enter(1000, 2, false)
	for user, n := range map[uint32]int{1000: 3, 1001: 3, 0: 100} {
		for range n {
			g.leave(user)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.of) > 0 {
		t.Errorf("%v are left", g.of)
	}
}
