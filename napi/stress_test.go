package napi

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// ring is a unit whose mailbox is a counter: what a lost wake-up would leave
// behind is easily seen.
type ring struct {
	src     *Source
	waiting atomic.Int64
	armed   atomic.Bool
	polling atomic.Int32
	handled int // no lock: the Context must order Poll and EnableInterrupt
}

func (r *ring) arrive() {
	r.waiting.Add(1)
	if r.armed.CompareAndSwap(true, false) {
		r.src.Interrupt()
	}
}

func (r *ring) Poll(budget int) Work {
	if r.polling.Add(1) != 1 {
		panic("two Polls at a time")
	}
	n := int(min(r.waiting.Load(), int64(budget)))
	r.waiting.Add(int64(-n))
	r.handled += n
	if rand.IntN(8) == 0 {
		runtime.Gosched()
	}
	r.polling.Add(-1)
	return Work{n, n * 64}
}

func (r *ring) EnableInterrupt() bool {
	r.armed.Store(true)
	return r.waiting.Load() > 0 && r.handled >= 0
}

func (r *ring) DisableInterrupt() { r.armed.Store(false) }

func (r *ring) PollFrame() Work { return r.Poll(1) }

func (r *ring) RaiseInterrupt() {
	if r.armed.CompareAndSwap(true, false) {
		r.src.Interrupt()
	}
}

// TestStress: producers in many goroutines, the mode changing all the time, and
// in the end everything was handled without a further push.
func TestStress(t *testing.T) {
	const producers, each = 4, 20000
	for _, tt := range []struct {
		name string
		run  bool
		cfg  Config
		co   Coalesce
	}{
		{name: "inline"},
		{name: "run", run: true, cfg: Config{InlineBudget: 5}},
		{name: "threaded", run: true, cfg: Config{InlineBudget: -1}},
		{name: "frames", run: true, co: Coalesce{Frames: 4, Delay: 20 * us}},
		{name: "delay", run: true, co: Coalesce{Delay: 20 * us}},
		{name: "adaptive", run: true, co: Coalesce{Adaptive: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newContext(t, tt.cfg)
			rings := make([]*ring, 3)
			for i := range rings {
				rings[i] = &ring{}
				s, err := c.Register(SourceConfig{Poller: rings[i], Budget: 4, Coalesce: tt.co})
				if err != nil {
					t.Fatal(err)
				}
				rings[i].src = s
				s.Schedule()
			}
			var all, sending sync.WaitGroup
			ctx, cancel := context.WithCancel(context.Background())
			if tt.run {
				all.Go(func() {
					if err := c.Run(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			for p := range producers {
				sending.Go(func() {
					for i := range each {
						rings[(p+i)%len(rings)].arrive()
						if i%100 == 0 {
							time.Sleep(us) // let the poll list run empty
						}
					}
				})
			}
			stop := make(chan struct{})
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(200 * us):
						if err := c.SetMode(Mode(rand.IntN(3))); err != nil {
							t.Error(err)
						}
						c.Stats()
					}
				}
			})
			sending.Wait()
			close(stop)
			wait(t, "the last frame", func() bool {
				for _, r := range rings {
					if r.waiting.Load() != 0 {
						return false
					}
				}
				return true
			})
			if err := c.SetMode(ModeNAPI); err != nil {
				t.Fatal(err)
			}
			wait(t, "the list to be given up", func() bool { return word(c.word.Load())&ownedBit == 0 })
			cancel()
			all.Wait()
			c.Close()
			<-c.Done()
			total := 0
			for _, r := range rings {
				total += r.handled
			}
			if total != producers*each {
				t.Errorf("%d frames handled, want %d", total, producers*each)
			}
		})
	}
}

func TestAllocs(t *testing.T) {
	clock := &manualClock{}
	for _, co := range []Coalesce{{}, {Adaptive: true}, {Frames: 2, Delay: us}} {
		c := newContext(t, Config{Clock: clock})
		s, err := c.Register(SourceConfig{Poller: &nullPoller{Work{1, 64}}, Coalesce: co})
		if err != nil {
			t.Fatal(err)
		}
		s.Interrupt() // makes the timer
		if n := testing.AllocsPerRun(1000, func() {
			s.Interrupt()
			clock.advance(us)
		}); n != 0 {
			t.Errorf("%+v: %v allocations per interrupt", co, n)
		}
	}
}
