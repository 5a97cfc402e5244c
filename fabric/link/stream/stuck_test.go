package stream

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/foreign"
)

// told is who has started an operation.
type told chan fabric.Status

func (c told) Done(s fabric.Status) { c <- s }

// A peer that lives and does not answer an operation is down, and who waits is told. The beats are
// played: no time passes.
func TestStuckPeer(t *testing.T) {
	v := newVictim(t, 2, Config{Heartbeat: time.Hour, DownAfter: 3 * time.Hour})
	ends := make(told, 1)
	port{v.link}.Put(link.Put{From: 1, To: 1}, make([]byte, 10), ends)
	b := &v.link.beat
	for n := 0; v.link.Err() == nil; n++ {
		if n > 1000 {
			t.Fatal("the link is up")
		}
		b.mu.Lock()
		b.asked, b.open, b.silent = 0, 0, 0
		b.mu.Unlock()
		b.timerFired(v.link)
	}
	v.down(t, ErrStuck)
	if s := <-ends; s != fabric.StatusPeerDown {
		t.Errorf("told %v", s)
	}
}

// stuckAfter plays beats, and returns at which a transfer is stuck, or 0. Each is preceded by move.
func (v *victim) stuckAfter(t *testing.T, move func()) int {
	t.Helper()
	const beats = 1000
	for n := 1; n <= beats; n++ {
		move()
		if v.link.isStalled(30) {
			return n
		}
	}
	return 0
}

// drain waits until the peer's host has what was sent: that it gets it counts as a move.
func (v *victim) drain(t *testing.T) {
	t.Helper()
	for _, c := range v.link.conns {
		for n := 1; n > 0; {
			var err error
			if n, err = unix.IoctlGetInt(c.fd, unix.TIOCOUTQ); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	v.link.isStalled(1 << 30) // it has seen that
}

// The bound for each kind of transfer. What moves a byte at times is slow, and not stuck; what
// waits while others move has its turn first.
func TestStuck(t *testing.T) {
	begin := map[string]func(t *testing.T, v *victim) *progress{
		"GET": func(t *testing.T, v *victim) *progress {
			v.link.startOrQueue(request{get: link.Get{From: 1, To: 1, Len: 10}, sink: discard{make(told, 1)}})
			return &v.link.ops.ops[0].progress
		},
		"PUT": func(t *testing.T, v *victim) *progress {
			v.link.startOrQueue(request{put: link.Put{From: 1, To: 1}, data: make([]byte, 10), done: make(told, 1)})
			return &v.link.ops.ops[0].xfer.progress
		},
		"the peer's PUT, of which half comes": func(t *testing.T, v *victim) *progress {
			m := message{kind: kindPutData, from: 1, to: 1, word: uint64(v.nla), n: chunkSize + 10, off: chunkSize}
			_, _ = v.peer[1].Write(data(m, 10))
			for {
				v.link.serving.mu.Lock()
				for p := range v.link.serving.lands {
					v.link.serving.mu.Unlock()
					for p.progress.moved.Load() < 10 {
						time.Sleep(time.Millisecond)
					}
					return &p.progress
				}
				v.link.serving.mu.Unlock()
				time.Sleep(time.Millisecond)
			}
		},
	}
	for name, f := range begin {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t, 2, Config{Heartbeat: time.Hour, DownAfter: 3 * time.Hour})
			if n := v.stuckAfter(t, func() {}); n != 0 {
				t.Fatalf("stuck after %d beats, and nothing is under way", n)
			}
			p := f(t, v)
			v.drain(t)
			if n := v.stuckAfter(t, func() { p.moved.Add(1) }); n != 0 {
				t.Errorf("slow: stuck after %d beats", n)
			}
			if n := v.stuckAfter(t, func() { v.link.moved.Add(1000) }); n != 0 {
				t.Errorf("beside others: stuck after %d beats", n)
			}
			p.moved.Add(1)
			if n := v.stuckAfter(t, func() { v.link.moved.Add(fair / 40) }); n < 31 {
				t.Errorf("passed by others: stuck after %d beats", n)
			}
			p.moved.Add(1)
			beats := 0
			if n := v.stuckAfter(t, func() {
				if beats++; beats == 10 {
					v.link.moved.Add(1)
				}
			}); n < 41 {
				t.Errorf("another moved once: stuck after %d beats", n)
			}
			p.moved.Add(1)
			v.link.moved.Add(1)
			if n := v.stuckAfter(t, func() {}); n < 31 {
				t.Errorf("stuck after %d beats", n)
			}
		})
	}
}

// discard is a sink for data that never comes.
type discard struct{ told }

func (discard) Data(int, foreign.Memory) error { return nil }
