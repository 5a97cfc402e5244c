package txloop

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What comes at rest ends it, whichever descriptor it comes by, and whatever links have
// gone and come before, with the same descriptors, too.
func TestRestEnds(t *testing.T) {
	ports, tr := newPorts(t, 2, 8)
	l, stop := start(t, Config{}, ports)
	rests := func() { // the loop rests after what was done before
		t.Helper()
		n := l.Stats().Rests
		ports[0].dev.put(nil, packet(1, 50)) // a rest that was begun before does not count
		eventually(t, "the loop rests", func() bool { return l.Stats().Rests > n })
	}
	a, b := newLink(t), newLink(t)
	for _, f := range []*fakeLink{a, b} {
		rests()
		if !l.Take(f) { // wakes
			t.Fatal("not taken")
		}
		f.put(1)
		eventually(t, "a link that was taken at rest is served", func() bool { return f.served.Load() == 1 })
		rests()
		f.put(1)
		eventually(t, "a link is served", func() bool { return f.served.Load() == 2 })
	}
	rests()
	seen := tr.count(ports[1])
	ports[1].dev.put(nil, packet(1, 50))
	eventually(t, "a packet", func() bool { return tr.count(ports[1]) == seen+1 })
	for range 3 {
		rests()
		a.down.Store(true)
		a.ring()
		eventually(t, "the link is left", func() bool { return a.left.Load() == 1 })
		// The next link has the descriptor of the one that was left, another file behind it.
		next := newLink(t)
		if err := unix.Dup3(next.fd, a.fd, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		next.fd, a.fd = a.fd, next.fd
		l.Take(next)
		next.put(1)
		eventually(t, "the new link is served", func() bool { return next.served.Load() == 1 })
		rests()
		next.put(1)
		eventually(t, "the new link is served after a rest", func() bool { return next.served.Load() == 2 })
		rests()
		b.put(1)
		a = next
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A thread that naps has short timers, and gives them back.
func TestLock(t *testing.T) {
	slack := func() int {
		n, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	inThread(func() {
		before := slack()
		l := Loop{place: follower{home: -1}}
		l.unlockThread()
		l.lockThread()
		if got := slack(); got > int(time.Microsecond) || !l.locked {
			t.Errorf("timer slack of %d ns", got)
		}
		l.lockThread()
		l.unlockThread()
		if got := slack(); got != before || l.locked {
			t.Errorf("timer slack of %d ns afterwards, %d before", got, before)
		}
	})
}
