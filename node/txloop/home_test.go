package txloop

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// homeLoop is a loop with one device and one link, at rest on a thread of the test's own.
func homeLoop(t *testing.T, senders Senders, peer *fakeLink) *Loop {
	l := &Loop{ports: []port{{Port: Port{Senders: senders}}}, links: []served{{Served: peer}}}
	l.place.findHomes(l.ports, l.lockThread)
	l.home.reset()
	l.home.realtime = func() bool { return true }
	return l
}

// cpus returns the CPUs that the thread may run on.
func cpus(t *testing.T) (set unix.CPUSet) {
	t.Helper()
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Error(err)
	}
	return set
}

// twoCPUs skips the test where CPUs 0 and 1 are not there.
func twoCPUs(t *testing.T) {
	t.Helper()
	if all := cpus(t); !all.IsSet(0) || !all.IsSet(1) {
		t.Skip("there are no CPUs 0 and 1")
	}
}

// The thread rests on the CPU of the programs that sent what ended the rest before, or of the
// peer's thread if that did; it moves for a program only that has come twice; traffic that
// goes on, and a process without real-time priority, have no home.
func TestHome(t *testing.T) {
	twoCPUs(t)
	inThread(func() {
		all := cpus(t)
		senders, peer := fakeSenders(-1), newLink(t)
		l := homeLoop(t, &senders, peer)
		defer l.unbindHome()
		rest := func() { l.bindToHome(); l.home.noteRested() }
		expect := func(what string, cpu int) {
			t.Helper()
			rest()
			now := cpus(t)
			if cpu < 0 && (now != all || peer.bound.Load() >= 0) {
				t.Errorf("%s: bound to %d CPUs, told %d", what, now.Count(), peer.bound.Load())
			}
			if cpu >= 0 && (now.Count() != 1 || !now.IsSet(cpu) || int(peer.bound.Load()) != cpu) {
				t.Errorf("%s: not bound to CPU %d, told %d", what, cpu, peer.bound.Load())
			}
		}
		sent := func(cpu int) {
			senders = fakeSenders(cpu)
			l.home.noteSender(&senders)
		}
		received := func(cpu int) {
			peer.peerCPU.Store(int64(cpu))
			l.home.noteReceiver(l.links[0])
		}
		expect("nothing has come", -1)
		sent(1)
		expect("a program on CPU 1", 1)
		sent(0)
		expect("a program on CPU 0, once", 1)
		sent(1)
		expect("on CPU 1 again", 1)
		sent(0)
		rest()
		sent(0)
		received(1) // not what ended the rest
		expect("on CPU 0 twice", 0)
		received(1)
		rest()
		received(1)
		expect("the peer is on CPU 1", 1)
		received(-1)
		expect("the peer is on no CPU", 1)
		l.unbindHome()
		if cpus(t) != all || peer.bound.Load() >= 0 {
			t.Error("it is bound after it has left")
		}
		expect("back at rest", 1)
		l.home.realtime = func() bool { return false }
		expect("without real-time priority", -1)
		l.home.realtime = func() bool { return true }
		l.home.next = 1000
		expect("a CPU that there is not", -1)
	})
}

// A goroutine that rests on another thread each time leaves none of them bound.
func TestHomeThreads(t *testing.T) {
	twoCPUs(t)
	all := cpus(t)
	senders, peer := fakeSenders(1), newLink(t)
	l := homeLoop(t, &senders, peer)
	steps, done := make([]chan func(), 3), make(chan bool)
	for i := range steps {
		steps[i] = make(chan func())
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			for f := range steps[i] {
				f()
				done <- true
			}
		}()
		defer close(steps[i])
	}
	on := func(i int, f func()) { steps[i] <- f; <-done }
	for i := range steps {
		on(i, func() { l.home.noteRested(); l.home.noteSender(&senders); l.bindToHome() })
	}
	bound := 0
	for i := range steps {
		on(i, func() {
			if cpus(t) != all {
				bound++
			}
		})
	}
	if bound != 1 {
		t.Errorf("%d threads are bound, want the last one", bound)
	}
	on(0, l.unbindHome)
	on(2, func() {
		if cpus(t) != all {
			t.Error("it is bound after the loop has left, on another thread")
		}
	})
}

// A thread at home yields to a peer's on the same CPU, a few times, and to no other.
func TestHandOver(t *testing.T) {
	twoCPUs(t)
	inThread(func() {
		senders, peer := fakeSenders(1), newLink(t)
		l := homeLoop(t, &senders, peer)
		defer l.unbindHome()
		peer.peerCPU.Store(1)
		if l.handOver() {
			t.Error("it yields away from home")
		}
		l.home.noteRested()
		l.home.noteSender(&senders)
		l.bindToHome()
		for range 2 {
			l.home.noteRested()
			for i := range maxLooks {
				if !l.handOver() {
					t.Errorf("it does not yield the time %d", i)
				}
			}
			if l.handOver() {
				t.Error("it yields repeatedly")
			}
		}
		l.home.noteRested()
		peer.peerCPU.Store(0)
		if l.handOver() {
			t.Error("it yields to a peer on another CPU")
		}
	})
}

// A thread at home waits at once after a short packet that has ended its rest.
func TestBrief(t *testing.T) {
	for _, c := range []struct {
		name                        string
		thread, round, links, bytes int
		want                        bool
	}{
		{"a ping", 1, 0, 0, 94, true},
		{"away from home", 0, 0, 0, 94, false},
		{"traffic that goes on", 1, settled, 0, 94, false},
		{"much", 1, 0, 0, smallBytes + 1, false},
		{"a peer may answer", 1, 0, 1, 94, false},
	} {
		l := &Loop{home: home{thread: c.thread}, round: c.round, links: make([]served, c.links)}
		if got := l.isBrief(c.bytes); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
