package exteth

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"exnet/fabric"
	"exnet/fabric/velo"
)

// listenTo counts the interrupts of a node, each of which has it poll all there
// is.
func (n *testNode) listenTo() *int {
	interrupts := new(int)
	n.VELO().OnInterrupt(func() {
		*interrupts++
		for n.poll() {
		}
		n.VELO().EnableInterrupt()
	})
	n.VELO().EnableInterrupt()
	return interrupts
}

// Posted frames are announced by the next Flush, once for each receiver; those
// that were sent are at once.
func TestPost(t *testing.T) {
	net := newNet(t, 3, Config{})
	a, b, c := net.nodes[0], net.nodes[1], net.nodes[2]
	toB, toC := b.listenTo(), c.listenTo()
	for _, size := range []int{100, 480, 1000} {
		for _, to := range []fabric.NodeID{b.id, c.id, b.id} {
			if err := a.Post(to, a.buf(t, size)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if *toB+*toC != 0 {
		t.Errorf("%d and %d interrupts before Flush", *toB, *toC)
	}
	a.Flush()
	if *toB != 1 || *toC != 1 {
		t.Errorf("%d and %d interrupts after Flush, want one each", *toB, *toC)
	}
	if nb, nc := len(b.frames.Take()), len(c.frames.Take()); nb != 6 || nc != 3 {
		t.Errorf("%d and %d frames, want 6 and 3", nb, nc)
	}
	a.Flush()
	if err := a.Send(b.id, a.buf(t, 100)); err != nil {
		t.Fatal(err)
	}
	if *toB != 2 || *toC != 1 || len(b.frames.Take()) != 1 {
		t.Errorf("%d and %d interrupts after Send", *toB, *toC)
	}
	net.settle()
	net.checkIdle()
}

// A frame that finds no credit because of those that were posted before gets it
// when they are flushed.
func TestPostWithoutCredit(t *testing.T) {
	net := newNet(t, 2, Config{VELO: velo.Config{Slots: 64, Credits: 8}})
	a, b := net.nodes[0], net.nodes[1]
	b.listenTo()
	for i := range 100 {
		buf := a.buf(t, 100)
		err := a.Post(b.id, buf)
		if errors.Is(err, ErrAgain) {
			a.Flush()
			err = a.Post(b.id, buf)
		}
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	a.Flush()
	if got := len(b.frames.Take()); got != 100 {
		t.Errorf("%d frames, want 100", got)
	}
	net.checkIdle()
}

// A receiver may send while it is flushed to, posting and flushing in its turn,
// and many goroutines may do so: every frame is announced.
func TestPostConcurrently(t *testing.T) {
	net := newNet(t, 1, Config{Buffers: 2048})
	a := net.nodes[0]
	var received atomic.Int64
	raw := make([]*rawNode, 3)
	for i := range raw {
		raw[i] = net.addRaw()
		busy := new(sync.Mutex)
		v := raw[i].velo
		v.OnInterrupt(func() {
			busy.Lock()
			defer busy.Unlock()
			for {
				for {
					if _, _, ok := v.Peek(); !ok {
						break
					}
					v.Advance()
					received.Add(1)
				}
				if !v.EnableInterrupt() {
					return
				}
				v.DisableInterrupt()
			}
		})
		v.EnableInterrupt()
	}
	const goroutines, frames = 4, 3000
	var sent atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range frames {
				buf := a.buf(t, 100)
				to := raw[(g+i)%len(raw)].id
				switch err := a.Post(to, buf); {
				case err == nil:
					sent.Add(1)
				case errors.Is(err, ErrAgain):
					a.Free(buf)
				default:
					t.Error(err)
				}
				if i%7 == g {
					a.Flush()
				}
			}
			a.Flush()
		})
	}
	wg.Wait()
	if got, want := received.Load(), sent.Load(); got != want {
		t.Errorf("%d messages were announced of %d", got, want)
	}
}
