package napi

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

const us = time.Microsecond

// rx-frames: the interrupt comes with the Nth event.
func TestCoalesceFrames(t *testing.T) {
	clock := &manualClock{}
	c := newContext(t, Config{Clock: clock})
	var log []string
	u := newUnit(t, c, SourceConfig{Name: "velo", Coalesce: Coalesce{Frames: 4, Delay: 100 * us}}, &log)
	for i := range 3 {
		u.arrive(64)
		if u.left() != i+1 || !u.enabled() {
			t.Fatalf("event %d: %d left, unmasked %v", i+1, u.left(), u.enabled())
		}
	}
	u.arrive(64)
	if !slices.Equal(log, []string{"velo:4"}) || !u.enabled() {
		t.Fatalf("polls %v", log)
	}
	if clock.armed() != 0 {
		t.Error("the timer is still running")
	}
	// Counting begins anew, and the last few wait for the timer.
	u.arrive(64, 64)
	clock.advance(99 * us)
	if u.left() != 2 {
		t.Fatal("polled too early")
	}
	clock.advance(1 * us)
	if !slices.Equal(log, []string{"velo:4", "velo:2"}) {
		t.Fatalf("polls %v", log)
	}
	wantStats(t, u.src, SourceStats{
		Name: "velo", Interrupts: 6, Coalesced: 5, Expired: 1, Frames: 6, Bytes: 6 * 64,
		WorkPerPoll: work(map[int]uint64{2: 1, 3: 1}),
	})
}

// rx-usecs: the interrupt comes that long after the first event, masked
// meanwhile.
func TestCoalesceDelay(t *testing.T) {
	clock := &manualClock{}
	c := newContext(t, Config{Clock: clock})
	var log []string
	u := newUnit(t, c, SourceConfig{Name: "velo", Coalesce: Coalesce{Delay: 50 * us}}, &log)
	u.arrive(64)
	if u.left() != 1 || u.enabled() {
		t.Fatalf("%d left, unmasked %v", u.left(), u.enabled())
	}
	clock.advance(30 * us)
	u.arrive(64, 64) // no interrupt: masked
	clock.advance(19 * us)
	if u.left() != 3 {
		t.Fatal("polled too early")
	}
	clock.advance(1 * us)
	if !slices.Equal(log, []string{"velo:3"}) || !u.enabled() {
		t.Fatalf("polls %v", log)
	}
	clock.advance(time.Second)
	if len(log) != 1 {
		t.Errorf("polled without reason: %v", log)
	}
}

// One frame is no coalescing, whatever the delay.
func TestCoalesceOneFrame(t *testing.T) {
	clock := &manualClock{}
	c := newContext(t, Config{Clock: clock})
	u := newUnit(t, c, SourceConfig{Coalesce: Coalesce{Frames: 1, Delay: 50 * us}}, nil)
	u.arrive(64)
	if u.left() != 0 || len(clock.timers) != 0 {
		t.Errorf("%d left, %d timers", u.left(), len(clock.timers))
	}
}

// What the recheck finds is an event like any other, and is held.
func TestCoalesceRecheck(t *testing.T) {
	for _, cfg := range []Coalesce{{Delay: 50 * us}, {Frames: 2, Delay: 50 * us}} {
		clock := &manualClock{}
		c := newContext(t, Config{Clock: clock})
		u := newUnit(t, c, SourceConfig{Coalesce: cfg}, nil)
		late := true
		u.hook = func() bool {
			if late && u.left() == 0 {
				late = false
				u.put(1)
				return true
			}
			return false
		}
		u.src.Schedule()
		if u.left() != 1 || u.enabled() != (cfg.Frames > 0) {
			t.Fatalf("%+v: %d left, unmasked %v", cfg, u.left(), u.enabled())
		}
		if cfg.Frames > 0 {
			u.arrive(64)
		} else {
			clock.advance(50 * us)
		}
		if u.left() != 0 || !u.enabled() {
			t.Errorf("%+v: %d left, unmasked %v", cfg, u.left(), u.enabled())
		}
		if st := u.src.Stats(); st.Rescheduled != 1 {
			t.Errorf("%+v: %d rescheduled", cfg, st.Rescheduled)
		}
	}
}

// Held interrupts do not outlive a change of mode or Close.
func TestCoalesceModeAndClose(t *testing.T) {
	clock := &manualClock{}
	c := newContext(t, Config{Clock: clock})
	u := newUnit(t, c, SourceConfig{Coalesce: Coalesce{Frames: 9, Delay: 50 * us}}, nil)
	u.arrive(64)
	if err := c.SetMode(ModeInterrupt); err != nil {
		t.Fatal(err)
	}
	u.arrive(64) // no coalescing now
	if u.left() != 0 {
		t.Errorf("%d left", u.left())
	}
	clock.advance(50 * us) // the timer finds nothing
	if !u.enabled() {
		t.Error("masked")
	}
	if err := c.SetMode(ModeNAPI); err != nil {
		t.Fatal(err)
	}
	u.arrive(64)
	if clock.armed() != 1 {
		t.Fatalf("%d timers", clock.armed())
	}
	c.Close()
	if clock.armed() != 0 {
		t.Error("a timer survived Close")
	}
	u.src.timerFired(u.src.mod.Load()) // it was starting when Close stopped it
	if u.left() != 1 {
		t.Error("polled after Close")
	}
}

func TestSetCoalesce(t *testing.T) {
	clock := &manualClock{}
	c := newContext(t, Config{Clock: clock})
	u := newUnit(t, c, SourceConfig{}, nil)
	set := func(cfg Coalesce) {
		t.Helper()
		if err := u.src.SetCoalesce(cfg); err != nil {
			t.Fatal(err)
		}
		if got := u.src.Coalesce(); got != cfg {
			t.Errorf("coalescing %+v, want %+v", got, cfg)
		}
	}
	for range 9 {
		u.arrive(64) // not to be taken for announced frames
	}
	set(Coalesce{Frames: 3, Delay: 50 * us})
	u.arrive(64)
	if u.left() != 1 || clock.armed() != 1 || !u.enabled() {
		t.Fatalf("%d left, %d timers, unmasked %v: want the interrupt held", u.left(), clock.armed(), u.enabled())
	}
	set(Coalesce{Adaptive: true}) // a held interrupt is delivered
	if u.left() != 0 || clock.armed() != 0 || !u.enabled() {
		t.Fatalf("%d left, %d timers, unmasked %v", u.left(), clock.armed(), u.enabled())
	}
	if got := u.src.Stats().ITR; got != ITRLowest { // by the one small frame
		t.Errorf("ITR %v", got)
	}
	u.arrive(64)
	if u.left() != 1 {
		t.Error("not held by the dynamic ITR")
	}
	set(Coalesce{})
	if u.left() != 0 || clock.armed() != 0 || u.src.Stats().ITR != 0 {
		t.Errorf("%d left, %d timers, ITR %v", u.left(), clock.armed(), u.src.Stats().ITR)
	}
	u.arrive(64)
	if u.left() != 0 {
		t.Error("held without coalescing")
	}
	if err := u.src.SetCoalesce(Coalesce{Frames: 2}); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v, want %v", err, ErrInvalid)
	}
	c.Close()
	if err := u.src.SetCoalesce(Coalesce{}); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want %v", err, ErrClosed)
	}
}

// It may be set at any time, also before the source has begun.
func TestSetCoalesceMeanwhile(t *testing.T) {
	c := newContext(t, Config{})
	u := newUnit(t, c, SourceConfig{}, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			cfg := []Coalesce{{}, {Delay: 20 * us}, {Frames: 4, Delay: 20 * us}, {Adaptive: true}}[i%4]
			if err := u.src.SetCoalesce(cfg); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 3000 {
		u.arrive(64)
	}
	<-done
	for deadline := time.Now().Add(3 * time.Minute); u.left() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d left behind", u.left())
		}
	}
}

func TestITRTransitions(t *testing.T) {
	for _, tt := range []struct {
		from    ITRState
		bytes   uint64
		elapsed time.Duration
		to      ITRState
	}{
		// Thresholds of ixgbe_update_itr: 10 and 20 bytes/µs, both inclusive
		// below.
		{ITRLowest, 1000, 100 * us, ITRLowest},
		{ITRLowest, 1099, 100 * us, ITRLowest},
		{ITRLowest, 1100, 100 * us, ITRLow},
		{ITRLowest, 1 << 40, 100 * us, ITRLow}, // one step at a time
		{ITRLow, 1000, 100 * us, ITRLowest},
		{ITRLow, 1100, 100 * us, ITRLow},
		{ITRLow, 2000, 100 * us, ITRLow},
		{ITRLow, 2100, 100 * us, ITRBulk},
		{ITRBulk, 2625, 125 * us, ITRBulk},
		{ITRBulk, 2500, 125 * us, ITRLow},
		{ITRBulk, 0, 125 * us, ITRLow},
		// The interval is the least time that counts: 10, 50, 125 µs.
		{ITRLowest, 105, 0, ITRLowest},
		{ITRLowest, 110, 1, ITRLow},
		{ITRLow, 500, 1 * us, ITRLowest},
		{ITRLow, 1050, 1 * us, ITRBulk},
		{ITRBulk, 2500, 1 * us, ITRLow},
		// A large frame after a pause is not bulk traffic.
		{ITRLow, 64000, time.Second, ITRLowest},
	} {
		if got := tt.from.after(tt.bytes, tt.elapsed); got != tt.to {
			t.Errorf("%v, %d bytes in %v: %v, want %v", tt.from, tt.bytes, tt.elapsed, got, tt.to)
		}
	}
}

func TestITRText(t *testing.T) {
	for s, want := range map[ITRState]struct {
		text     string
		interval time.Duration
	}{
		0:         {"off", 0},
		ITRLowest: {"lowest", 10 * us},
		ITRLow:    {"low", 50 * us},
		ITRBulk:   {"bulk", 125 * us},
		9:         {"ITRState(9)", 0},
	} {
		if s.String() != want.text || s.Interval() != want.interval {
			t.Errorf("%d: %v, %v", s, s, s.Interval())
		}
	}
}

// Interrupts are at least an interval apart, and the state follows the load:
// figure 5.16.
func TestAdaptive(t *testing.T) {
	clock := &manualClock{now: time.Hour}
	c := newContext(t, Config{Clock: clock})
	u := newUnit(t, c, SourceConfig{Name: "rma", Coalesce: Coalesce{Adaptive: true}}, nil)
	state := func(want ITRState) {
		t.Helper()
		if got := u.src.Stats().ITR; got != want {
			t.Fatalf("state %v, want %v", got, want)
		}
	}
	state(ITRLow) // the initial state
	clock.advance(50 * us)
	u.arrive(1500)
	if u.left() != 0 {
		t.Fatal("held though nothing was delivered for an interval")
	}
	state(ITRBulk) // 1500 bytes in an interval of 50 µs
	interval := u.src.mod.Load().interval
	if want := 53191 * time.Nanosecond; interval != want {
		t.Fatalf("interval %v, want %v: a tenth of the way from 20000 to 8000 a second", interval, want)
	}
	u.arrive(1000)
	clock.advance(interval - us)
	if u.left() != 1 {
		t.Fatal("delivered before the rate allows it")
	}
	clock.advance(1 * us)
	if u.left() != 0 {
		t.Fatal("not delivered")
	}
	state(ITRLow) // 1000 bytes in 53 µs
	// Bulk for long: 10000 bytes in each interval.
	for range 60 {
		clock.advance(125 * us)
		u.arrive(10000)
		state(ITRBulk)
	}
	if got := u.src.mod.Load().interval; got < 124*us || got > 125*us {
		t.Fatalf("interval %v after long, want that of bulk", got)
	}
	// A ping now and then.
	for _, want := range []ITRState{ITRLow, ITRLowest, ITRLowest} {
		clock.advance(time.Millisecond)
		u.arrive(64)
		if u.left() != 0 {
			t.Fatal("held though the last one was long ago")
		}
		state(want)
	}
	u.arrive(64)
	clock.advance(u.src.mod.Load().interval)
	if u.left() != 0 {
		t.Fatal("held for longer than the interval")
	}
	// A poll that handles nothing does not count as a slow one.
	clock.advance(time.Second)
	u.src.Schedule()
	if got := u.src.mod.Load().since; got == clock.now {
		t.Error("an empty poll was taken into account")
	}
	if st := u.src.Stats(); st.Coalesced != 2 || st.Expired != 2 {
		t.Errorf("%d held, %d expired, want 2 each", st.Coalesced, st.Expired)
	}
}

// The rate moves by a tenth of the way, up and down (ixgbe_set_itr).
func TestITRSmooth(t *testing.T) {
	for _, tt := range []struct{ old, state time.Duration }{{50 * us, 125 * us}, {125 * us, 50 * us}, {50 * us, 10 * us}, {10 * us, 50 * us}, {10 * us, 10 * us}} {
		rate := func(d time.Duration) float64 { return 1 / d.Seconds() }
		want := 0.9*rate(tt.old) + 0.1*rate(tt.state)
		if got := rate(itrSmooth(tt.old, tt.state)); math.Abs(got-want) > want/1000 {
			t.Errorf("from %v to %v: %.0f a second, want %.0f", tt.old, tt.state, got, want)
		}
	}
	half := 50 * us
	for range 9 {
		half = itrSmooth(half, 125*us)
	}
	if r := 1 / half.Seconds(); r > 13000 || r < 12000 {
		t.Errorf("%.0f interrupts a second after nine polls, want about half way from 20000 to 8000", r)
	}
}

// A large frame is a burst by itself, several middling ones are, and completions, which
// carry no bytes, are not throttled.
func TestAdaptiveBurst(t *testing.T) {
	clock := &manualClock{now: time.Hour}
	c := newContext(t, Config{Clock: clock})
	large := newUnit(t, c, SourceConfig{Name: "large", Coalesce: Coalesce{Adaptive: true}}, nil)
	clock.advance(50 * us)
	for range 4 { // the first tells how large they are
		large.arrive(65000)
		if large.left() != 0 {
			t.Fatal("a large frame is held")
		}
	}
	middling := newUnit(t, c, SourceConfig{Name: "middling", Coalesce: Coalesce{Adaptive: true}}, nil)
	clock.advance(50 * us)
	middling.arrive(9000)
	for i := range 4 {
		middling.arrive(9000)
		if left := middling.left(); (left == 0) != (i == 3) {
			t.Fatalf("%d frames of 9000 bytes: %d left", i+1, left)
		}
	}
	none := newUnit(t, c, SourceConfig{Name: "completions", Coalesce: Coalesce{Adaptive: true}}, nil)
	for range 4 {
		none.arrive(0)
		if none.left() != 0 {
			t.Fatal("a completion is held")
		}
	}
}
