package napi

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"exnet/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// handOver tells the Context that Run is there, without a goroutine: the test
// calls resume in its place.
func handOver(c *Context) { c.word.Or(uint64(aliveBit)) }

func resume(t *testing.T, c *Context) {
	t.Helper()
	select {
	case <-c.wakerOf(word(c.word.Load())).(token):
	default:
		t.Fatal("Run was not woken")
	}
	if word(c.word.Load())&threadBit == 0 {
		t.Fatal("the poll list was not handed over")
	}
	c.pollLoop(true)
}

// netdev_budget: an inline run ends after so many frames.
func TestInlineBudget(t *testing.T) {
	c := newContext(t, Config{InlineBudget: 10})
	a := newUnit(t, c, SourceConfig{Name: "a", Budget: 4}, nil)
	b := newUnit(t, c, SourceConfig{Name: "b", Budget: 4}, nil)
	handOver(c)
	a.put(100)
	b.put(1)
	b.src.Schedule() // empty again after one poll
	a.src.Interrupt()
	if a.left() != 100-12 {
		t.Fatalf("%d frames left, want 100 - 3 x 4", a.left())
	}
	// What comes now is only marked: the list belongs to Run's goroutine.
	b.arrive(64)
	if b.left() != 1 || b.enabled() {
		t.Fatalf("%d frames left, unmasked %v", b.left(), b.enabled())
	}
	resume(t, c)
	if a.left() != 0 || b.left() != 0 || !a.enabled() || !b.enabled() {
		t.Errorf("%d and %d left", a.left(), b.left())
	}
	if st := c.Stats(); st.Deferred != 1 || st.InlineRuns != 4 {
		t.Errorf("%d deferred, %d inline, want 1 and 4", st.Deferred, st.InlineRuns)
	}
	// The next one is inline again.
	a.arrive(64)
	if a.left() != 0 {
		t.Error("not polled")
	}
}

// A run that ends with its last frame is not handed over.
func TestInlineBudgetExact(t *testing.T) {
	c := newContext(t, Config{InlineBudget: 4})
	u := newUnit(t, c, SourceConfig{Name: "velo", Budget: 8}, nil)
	handOver(c)
	u.put(4)
	u.src.Interrupt()
	if st := c.Stats(); st.Deferred != 0 || u.left() != 0 {
		t.Errorf("%d deferred, %d left", st.Deferred, u.left())
	}
}

// netdev_budget_usecs: an inline run ends after so much time.
func TestInlineTime(t *testing.T) {
	for _, tt := range []struct {
		name  string
		each  int           // frames per poll; 4 is the budget
		took  time.Duration // per poll
		polls int           // until handed over
	}{
		// The clock is read after each, first after poll 1.
		{"budget used up", 4, time.Millisecond, 3},
		{"budget used up, long polls", 4, 5 * time.Millisecond, 2},
		// The clock is read after polls 4 and 8.
		{"one frame at a time", 1, time.Millisecond, 8},
		{"one frame at a time, short polls", 1, 200 * time.Microsecond, 16},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := &manualClock{}
			c := newContext(t, Config{Clock: clock, InlineBudget: 10000})
			u := newUnit(t, c, SourceConfig{Name: "velo", Budget: 4}, nil)
			handOver(c)
			polls := 0
			u.tick = func(int) {
				polls++
				clock.advance(tt.took)
				u.put(tt.each)
			}
			u.put(tt.each)
			u.src.Interrupt()
			if polls != tt.polls || c.Stats().Deferred != 1 {
				t.Errorf("%d polls, %d deferred, want %d and 1", polls, c.Stats().Deferred, tt.polls)
			}
			u.tick = nil
			resume(t, c)
		})
	}
}

// Threaded NAPI: nothing is polled in the goroutine of the interrupt.
func TestThreaded(t *testing.T) {
	c := newContext(t, Config{InlineBudget: -1})
	u := newUnit(t, c, SourceConfig{Name: "velo"}, nil)
	u.src.Schedule() // without Run there is no other goroutine
	if !u.enabled() {
		t.Fatal("not started")
	}
	handOver(c)
	u.arrive(64)
	if u.left() != 1 {
		t.Fatal("polled inline")
	}
	u.put(1000)
	resume(t, c)
	if u.left() != 0 || !u.enabled() {
		t.Errorf("%d left", u.left())
	}
}

// countedEvent counts what it takes to bring an interrupt to Run's goroutine.
type countedEvent struct {
	token
	signals, waits atomic.Int64
}

func (e *countedEvent) Signal() {
	e.signals.Add(1)
	e.token.Signal()
}

func (e *countedEvent) Wait() {
	e.token.Wait()
	e.waits.Add(1)
}

// In ModeInterrupt there is an event for each frame, signalled and waited for, also
// when all of them are there at once; and the unit has raised as many interrupts as
// are counted.
func TestInterruptIsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &countedEvent{token: make(token, 1)}
		c := newContext(t, Config{Mode: ModeInterrupt, Event: e})
		ended := make(chan error)
		go func() { ended <- c.Run(t.Context()) }()
		synctest.Wait()
		a := &unit{name: "a"}
		b := &unit{name: "b"}
		for _, u := range []*unit{a, b} {
			s, err := c.Register(SourceConfig{Name: u.name, Poller: u, Coalesce: Coalesce{Frames: 8, Delay: time.Second}})
			if err != nil {
				t.Fatal(err)
			}
			u.src = s
			s.Schedule()
		}
		synctest.Wait()
		started := e.waits.Load() // both in one event, or each in its own
		a.put(9)
		b.put(4)
		a.arrive(64)
		b.arrive(64)
		synctest.Wait()
		if got := e.waits.Load() - started; got != 15 || e.signals.Load() < e.waits.Load() {
			t.Errorf("%d events waited for and %d signalled, want one for each of 15 frames", got, e.signals.Load())
		}
		if a.raised != 9 || b.raised != 4 {
			t.Errorf("raised again %d and %d times, want 9 and 4: what waits keeps the line asserted", a.raised, b.raised)
		}
		for _, u := range []*unit{a, b} {
			if st := u.src.Stats(); st.Interrupts != uint64(u.raised+1) || st.Interrupts != st.Frames || st.Rescheduled != 0 {
				t.Errorf("%s: %d interrupts for %d frames, %d rescheduled", u.name, st.Interrupts, st.Frames, st.Rescheduled)
			}
		}
		if st := c.Stats(); st.Deferred != 0 || st.InlineRuns != 0 {
			t.Errorf("%d deferred, %d polled inline; want none", st.Deferred, st.InlineRuns)
		}
		c.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Run sleeps, takes over, sleeps again, and ends with its context.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContext(t, Config{InlineBudget: 8})
		u := newUnit(t, c, SourceConfig{Name: "velo", Budget: 4}, nil)
		ctx, cancel := context.WithCancel(context.Background())
		errs := make(chan error, 1)
		go func() { errs <- c.Run(ctx) }()
		synctest.Wait() // durably blocked: it uses no CPU
		if err := c.Run(ctx); !errors.Is(err, ErrRunning) {
			t.Errorf("second Run: %v", err)
		}
		for range 3 {
			u.put(100)
			u.src.Interrupt()
			synctest.Wait()
			if u.left() != 0 || !u.enabled() {
				t.Fatalf("%d left, unmasked %v", u.left(), u.enabled())
			}
		}
		if st := c.Stats(); st.Deferred != 3 || st.ThreadRuns != 3 {
			t.Errorf("%d deferred, %d thread runs, want 3 each", st.Deferred, st.ThreadRuns)
		}
		cancel()
		if err := <-errs; err != nil {
			t.Errorf("Run: %v", err)
		}
		<-c.Done()
	})
}

// Run returns only when an inline Poll in another goroutine has ended.
func TestRunWaitsForInlinePoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContext(t, Config{})
		u := newUnit(t, c, SourceConfig{Name: "velo"}, nil)
		gate := make(chan struct{})
		u.work = func(int) { <-gate }
		go u.arrive(64)
		errs := make(chan error, 1)
		go func() { errs <- c.Run(context.Background()) }()
		synctest.Wait()
		c.Close()
		synctest.Wait()
		select {
		case err := <-errs:
			t.Fatalf("Run has returned while a Poll runs: %v", err)
		default:
		}
		close(gate)
		if err := <-errs; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// Cancelling ends a Run under full load.
func TestRunCancelUnderLoad(t *testing.T) {
	c := newContext(t, Config{})
	u := newUnit(t, c, SourceConfig{Name: "velo"}, nil)
	u.tick = func(int) { u.put(64) }
	ctx, cancel := context.WithCancel(context.Background())
	errs := make(chan error, 1)
	go func() { errs <- c.Run(ctx) }()
	wait(t, "Run to start", func() bool { return word(c.word.Load())&aliveBit != 0 })
	u.put(64)
	u.src.Interrupt() // returns, though the unit never empties
	wait(t, "Run to poll", func() bool { return u.src.Stats().Polls > 100 })
	cancel()
	if err := <-errs; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("gave up waiting for %s", what)
		}
	}
}

// Busy polling takes frames without any interrupt; changing back unmasks and
// finds what came meanwhile.
func TestBusyPoll(t *testing.T) {
	for _, start := range []Mode{ModeBusyPoll, ModeNAPI} {
		t.Run("from "+start.String(), func(t *testing.T) {
			c := newContext(t, Config{Mode: start})
			a := newUnit(t, c, SourceConfig{Name: "a"}, nil)
			b := newUnit(t, c, SourceConfig{Name: "b"}, nil)
			a.arrive(64) // Run is not there yet: as in ModeNAPI
			if a.left() != 0 {
				t.Fatal("not polled")
			}
			var wg sync.WaitGroup
			ctx, cancel := context.WithCancel(context.Background())
			wg.Go(func() {
				if err := c.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			if err := c.SetMode(ModeBusyPoll); err != nil {
				t.Fatal(err)
			}
			wait(t, "the interrupts to be masked", func() bool { return !a.enabled() && !b.enabled() })
			before := a.src.Stats().Interrupts
			a.put(500)
			b.put(500)
			wait(t, "the frames", func() bool { return a.left()+b.left() == 0 })
			if n := a.src.Stats().Interrupts; n != before {
				t.Errorf("%d interrupts", n-before)
			}
			if err := c.SetMode(ModeNAPI); err != nil {
				t.Fatal(err)
			}
			a.put(1) // perhaps busy polled, perhaps found when unmasking
			wait(t, "the interrupts to be unmasked", func() bool { return a.enabled() && b.enabled() })
			wait(t, "Run to sleep", func() bool { return word(c.word.Load())&ownedBit == 0 })
			if a.left() != 0 {
				t.Fatal("the last frame was left behind")
			}
			a.arrive(64)
			if a.left() != 0 {
				t.Fatal("not polled inline")
			}
			if err := c.SetMode(ModeBusyPoll); err != nil {
				t.Fatal(err)
			}
			cancel() // while busy
			wg.Wait()
		})
	}
}

// Leaving busy polling finds what arrived while the interrupts were masked.
func TestBusyPollRecheck(t *testing.T) {
	c := newContext(t, Config{})
	u := newUnit(t, c, SourceConfig{Name: "velo"}, nil)
	handOver(c)
	if err := c.SetMode(ModeBusyPoll); err != nil {
		t.Fatal(err)
	}
	polls := 0
	u.tick = func(n int) {
		if polls++; polls == 3 {
			if err := c.SetMode(ModeNAPI); err != nil {
				t.Error(err)
			}
			u.put(1) // the loop does not come back to it
		}
	}
	resume(t, c)
	if u.left() != 0 || !u.enabled() || polls != 4 {
		t.Errorf("%d left, unmasked %v, %d polls", u.left(), u.enabled(), polls)
	}
	// An interrupt in busy mode only marks.
	if err := c.SetMode(ModeBusyPoll); err != nil {
		t.Fatal(err)
	}
	u.tick = func(int) {
		if polls++; polls == 6 {
			c.Close()
		}
	}
	u.arrive(64)
	if u.left() != 1 {
		t.Error("polled inline in busy mode")
	}
	resume(t, c)
	<-c.Done()
}
