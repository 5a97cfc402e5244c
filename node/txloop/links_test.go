package txloop

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/fabric/link"
	"exnet/internal/netns/netnstest"

	"golang.org/x/sys/unix"
)

// fakeLink is a link whose peer is the test. Its descriptor is an eventfd, which the
// peer writes only if the link is armed.
type fakeLink struct {
	fd    int
	left  atomic.Int64 // calls of Leave
	armed atomic.Bool
	came  atomic.Int64 // that is to be served
	limit time.Duration

	bound, peerCPU      atomic.Int64
	down                atomic.Bool
	served, arms, rings atomic.Int64
}

func newLink(tb testing.TB) *fakeLink {
	tb.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { unix.Close(fd) })
	l := &fakeLink{fd: fd, limit: link.Forever}
	l.bound.Store(-1)
	l.peerCPU.Store(-1)
	return l
}

func (l *fakeLink) Fd() int { return l.fd }

func (l *fakeLink) Serve(rung bool) (int, bool) {
	if rung {
		var count [8]byte
		unix.Read(l.fd, count[:])
		l.rings.Add(1)
		if l.down.Load() {
			return 0, false
		}
	}
	l.armed.Store(false)
	n := l.came.Swap(0)
	l.served.Add(n)
	return int(n), true
}

func (l *fakeLink) Arm() time.Duration {
	l.arms.Add(1)
	l.armed.Store(true)
	if l.came.Load() > 0 {
		return 0
	}
	return l.limit
}

func (l *fakeLink) Doze()        {}
func (l *fakeLink) Bind(cpu int) { l.bound.Store(int64(cpu)) }
func (l *fakeLink) PeerCPU() int { return int(l.peerCPU.Load()) }
func (l *fakeLink) Leave()       { l.left.Add(1) }

// put brings n bytes.
func (l *fakeLink) put(n int64) {
	l.came.Add(n)
	if l.armed.Load() {
		l.ring()
	}
}

func (l *fakeLink) ring() { unix.Write(l.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// What comes over links, one by one and in bursts, and what comes from devices, is
// all handled: no bell is missed.
func TestLinks(t *testing.T) {
	ports, tr := newPorts(t, 2, 8)
	l, stop := start(t, Config{}, ports)
	links := []*fakeLink{newLink(t), newLink(t), newLink(t)}
	const rounds = 3000
	var wg sync.WaitGroup
	for i, f := range links {
		if !l.Take(f) {
			t.Fatal("not taken")
		}
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for n := range rounds {
				f.put(1)
				if rng.IntN(8) == 0 {
					eventually(t, "the link is served", func() bool { return f.served.Load() == int64(n+1) })
				}
			}
		})
	}
	wg.Go(func() {
		for range rounds {
			ports[0].dev.put(nil, packet(1, 20))
			time.Sleep(time.Microsecond)
		}
	})
	wg.Wait()
	eventually(t, "all", func() bool {
		return links[0].served.Load()+links[1].served.Load()+links[2].served.Load() == 3*rounds && tr.count(ports[0]) == rounds
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := l.Stats().Received; n != 3*rounds {
		t.Errorf("%d bytes counted, want %d", n, 3*rounds)
	}
	for i, f := range links {
		if n := f.left.Load(); n != 1 {
			t.Errorf("link %d was left %d times", i, n)
		}
	}
	if f := newLink(t); l.Take(f) || f.left.Load() != 0 {
		t.Error("a loop that has ended takes a link")
	}
}

// A link that is down is left, also if the loop never comes to wait; the others stay.
func TestLinkDown(t *testing.T) {
	for _, busy := range []bool{false, true} {
		netnstest.CheckFDs(t)
		ports, _ := newPorts(t, 1, 4)
		if busy {
			ports[0].dev.endless = packet(1, 1000)
		}
		l, _ := start(t, Config{}, ports)
		a, b := newLink(t), newLink(t)
		l.Take(a)
		l.Take(b)
		eventually(t, "the links are served", func() bool { b.put(1); return b.served.Load() > 0 })
		if busy && a.arms.Load() > 10 {
			t.Errorf("armed %d times under load", a.arms.Load())
		}
		a.down.Store(true)
		a.ring()
		eventually(t, "the link is left", func() bool { return a.left.Load() == 1 })
		before, came := a.served.Load(), b.served.Load()
		a.put(1)
		b.put(1)
		eventually(t, "the other is served", func() bool { return b.served.Load() > came })
		if a.served.Load() != before || b.left.Load() != 0 {
			t.Error("the wrong link was left")
		}
	}
}

// A wait is no longer than a link allows; links that were taken before Run are
// served.
func TestLinkLimit(t *testing.T) {
	l, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := newLink(t)
	f.limit = time.Millisecond
	l.Take(f)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	eventually(t, "waits end", func() bool { return f.arms.Load() > 5 })
	if f.rings.Load() != 0 {
		t.Error("rung")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestLoad(t *testing.T) {
	type step struct{ sent, received int }
	repeat := func(s step, n int) (l []step) {
		for range n {
			l = append(l, s)
		}
		return l
	}
	const large, ack = 65000, 60
	for _, tt := range []struct {
		name  string
		steps []step // each is followed by a wait, but for the last
		heavy bool
	}{
		{"nothing", []step{{0, 0}}, false},
		{"one packet", []step{{large, 0}}, false},
		{"much at once", []step{{napBytes, 0}}, true},
		{"much received at once", []step{{0, napBytes}}, true},
		{"one by one", repeat(step{large, ack}, napWaits+1), true},
		{"one by one, received", repeat(step{ack, large}, napWaits+1), true},
		{"not yet", repeat(step{large, ack}, napWaits), false},
		{"requests and answers", repeat(step{large, large}, 100), false},
		{"small answers", repeat(step{10000, 100}, 100), false},
		{"the stream has ended", append(repeat(step{large, ack}, 100), step{0, 0}), false},
		{"interrupted", append(repeat(step{large, ack}, 100), step{100, 100}, step{large, ack}), false},
	} {
		var l load
		heavy := false
		for i, s := range tt.steps {
			if l.addBytes(s.sent, s.received); i == len(tt.steps)-1 {
				heavy = l.isHeavy()
			}
			l.noteWait()
		}
		if heavy != tt.heavy {
			t.Errorf("%s: heavy is %v", tt.name, heavy)
		}
	}
}
