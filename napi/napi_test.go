package napi

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// statsSince returns what a source has counted after the start by newUnit,
// which is one empty poll.
func statsSince(s *Source) SourceStats {
	st := s.Stats()
	st.Polls--
	st.WorkPerPoll[0]--
	return st
}

func work(buckets map[int]uint64) (w [WorkBuckets]uint64) {
	for i, n := range buckets {
		w[i] = n
	}
	return w
}

func wantStats(t *testing.T, s *Source, want SourceStats) {
	t.Helper()
	for _, n := range want.WorkPerPoll {
		want.Polls += n
	}
	if d := cmp.Diff(want, statsSince(s)); d != "" {
		t.Errorf("statistics (-want +got):\n%s", d)
	}
}

// A frame comes, is polled in the goroutine of the interrupt, and the interrupt
// is unmasked again: figure 5.15, and no look at the clock.
func TestInterruptPollComplete(t *testing.T) {
	clock := &manualClock{}
	c := newContext(t, Config{Clock: clock})
	u := newUnit(t, c, SourceConfig{Name: "velo"}, nil)
	clock.reads = 0
	u.work = func(int) {
		if u.enabled() {
			t.Error("interrupt not masked during Poll")
		}
	}
	u.arrive(100)
	u.arrive(20)
	if u.left() != 0 || !u.enabled() {
		t.Errorf("%d frames left, unmasked %v", u.left(), u.enabled())
	}
	wantStats(t, u.src, SourceStats{
		Name: "velo", Interrupts: 2, Frames: 2, Bytes: 120,
		WorkPerPoll: work(map[int]uint64{1: 2}),
	})
	if n := c.Stats().InlineRuns; n != 3 {
		t.Errorf("%d inline runs, want start + 2", n)
	}
	if clock.reads != 0 {
		t.Errorf("the clock was read %d times", clock.reads)
	}
}

// A source that uses up its budget goes to the end of the list: step (8) of
// figure 5.4.
func TestRoundRobin(t *testing.T) {
	c := newContext(t, Config{})
	var log []string
	a := newUnit(t, c, SourceConfig{Name: "a", Budget: 4}, &log)
	b := newUnit(t, c, SourceConfig{Name: "b", Budget: 2}, &log)
	d := newUnit(t, c, SourceConfig{Name: "d"}, &log)
	b.put(4)
	d.put(3)
	first := true
	a.work = func(int) {
		if first {
			first = false
			b.src.Interrupt() // from within a Poll: only marks
			d.src.Interrupt()
			if len(log) != 0 {
				t.Error("polled within a Poll")
			}
		}
	}
	a.put(8)
	a.src.Interrupt()
	want := []string{"a:4", "b:2", "d:3", "a:4", "b:2", "a:0", "b:0"}
	if !slices.Equal(log, want) {
		t.Errorf("polls %v\nwant  %v", log, want)
	}
	wantStats(t, a.src, SourceStats{
		Name: "a", Interrupts: 1, Frames: 8, Bytes: 8 * 64, Exhausted: 2,
		WorkPerPoll: work(map[int]uint64{0: 1, 3: 2}),
	})
	for _, u := range []*unit{a, b, d} {
		if u.left() != 0 || !u.enabled() {
			t.Errorf("%s: %d frames left, unmasked %v", u.name, u.left(), u.enabled())
		}
	}
}

// A frame that arrives between the Poll and the unmasking is found by the
// recheck.
func TestRecheck(t *testing.T) {
	c := newContext(t, Config{})
	var log []string
	u := newUnit(t, c, SourceConfig{Name: "velo"}, &log)
	late := 2
	u.hook = func() bool {
		if late > 0 {
			late--
			u.put(1)
			return true
		}
		return false
	}
	u.arrive(64)
	if want := []string{"velo:1", "velo:1", "velo:1"}; !slices.Equal(log, want) {
		t.Errorf("polls %v, want %v", log, want)
	}
	wantStats(t, u.src, SourceStats{
		Name: "velo", Interrupts: 1, Frames: 3, Bytes: 192, Rescheduled: 2,
		WorkPerPoll: work(map[int]uint64{1: 3}),
	})
}

// An interrupt that comes while its own source is polled leads to another
// Poll.
func TestInterruptDuringOwnPoll(t *testing.T) {
	c := newContext(t, Config{})
	var log []string
	u := newUnit(t, c, SourceConfig{Name: "velo"}, &log)
	u.tick = func(n int) {
		if n == 1 {
			u.put(2)
			u.src.Interrupt()
		}
	}
	u.hook = func() bool { return false } // the driver's recheck sees nothing
	u.arrive(64)
	if want := []string{"velo:1", "velo:2"}; !slices.Equal(log, want) {
		t.Errorf("polls %v, want %v", log, want)
	}
}

// Two nodes answer each other within one call stack: each Context appears in
// it once.
func TestNestedContexts(t *testing.T) {
	ca, cb := newContext(t, Config{}), newContext(t, Config{})
	a := newUnit(t, ca, SourceConfig{Name: "a"}, nil)
	b := newUnit(t, cb, SourceConfig{Name: "b"}, nil)
	depth, deepest := 0, 0
	answer := func(to *unit) func(int) {
		return func(n int) {
			depth++
			deepest = max(deepest, depth)
			if n > 1 {
				to.arrive(n - 1)
			}
			depth--
		}
	}
	a.work, b.work = answer(b), answer(a)
	a.arrive(100)
	if fa, fb := a.src.Stats().Frames, b.src.Stats().Frames; fa != 50 || fb != 50 {
		t.Errorf("frames %d and %d, want 50 each", fa, fb)
	}
	if deepest != 2 {
		t.Errorf("%d Polls in one stack, want 2", deepest)
	}
}

// A driver that cannot go on leaves the interrupt masked, and the source rests
// until Schedule.
func TestScheduleResumes(t *testing.T) {
	c := newContext(t, Config{})
	u := newUnit(t, c, SourceConfig{Name: "velo"}, nil)
	full := true
	p := &blocking{unit: u, full: &full}
	s, err := c.Register(SourceConfig{Name: "blocking", Poller: p})
	if err != nil {
		t.Fatal(err)
	}
	u.src = s
	u.put(3)
	s.Interrupt()
	if u.left() != 3 || u.enabled() {
		t.Fatalf("%d left, unmasked %v", u.left(), u.enabled())
	}
	full = false
	s.Schedule()
	if u.left() != 0 || !u.enabled() {
		t.Fatalf("%d left, unmasked %v", u.left(), u.enabled())
	}
	if st := s.Stats(); st.Interrupts != 1 || st.Polls != 2 {
		t.Errorf("%d interrupts, %d polls, want 1 and 2", st.Interrupts, st.Polls)
	}
}

type blocking struct {
	*unit
	full *bool
}

func (b *blocking) Poll(budget int) Work {
	if *b.full {
		return Work{}
	}
	return b.unit.Poll(budget)
}

func (b *blocking) EnableInterrupt() bool {
	if *b.full {
		return false
	}
	return b.unit.EnableInterrupt()
}

func TestModeInterrupt(t *testing.T) {
	c := newContext(t, Config{Mode: ModeInterrupt})
	var log []string
	u := newUnit(t, c, SourceConfig{Name: "velo", Coalesce: Coalesce{Frames: 8, Delay: time.Second}}, &log)
	u.put(2)
	u.arrive(64)
	if want := []string{"velo:1", "velo:1", "velo:1"}; !slices.Equal(log, want) {
		t.Errorf("polls %v, want one frame each", log)
	}
	if !u.enabled() {
		t.Error("interrupt masked")
	}
	// The two that were waiting raise the interrupt again.
	wantStats(t, u.src, SourceStats{
		Name: "velo", Interrupts: 3, Frames: 3, Bytes: 192,
		WorkPerPoll: work(map[int]uint64{1: 3}),
	})
	if err := c.SetMode(ModeNAPI); err != nil || c.Mode() != ModeNAPI {
		t.Fatal(err, c.Mode())
	}
}

func TestConfigErrors(t *testing.T) {
	c := newContext(t, Config{})
	for _, tt := range []struct {
		name string
		cfg  SourceConfig
	}{
		{"no Poller", SourceConfig{}},
		{"negative budget", SourceConfig{Poller: &nullPoller{}, Budget: -1}},
		{"budget above the histogram", SourceConfig{Poller: &nullPoller{}, Budget: MaxBudget + 1}},
		{"frames without delay", SourceConfig{Poller: &nullPoller{}, Coalesce: Coalesce{Frames: 2}}},
		{"negative frames", SourceConfig{Poller: &nullPoller{}, Coalesce: Coalesce{Frames: -1}}},
		{"negative delay", SourceConfig{Poller: &nullPoller{}, Coalesce: Coalesce{Delay: -1}}},
		{"long delay", SourceConfig{Poller: &nullPoller{}, Coalesce: Coalesce{Delay: MaxDelay + 1}}},
		{"adaptive and static", SourceConfig{Poller: &nullPoller{}, Coalesce: Coalesce{Adaptive: true, Delay: 1}}},
	} {
		if _, err := c.Register(tt.cfg); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	for i := range MaxSources + 1 {
		_, err := c.Register(SourceConfig{Poller: &nullPoller{}, Budget: MaxBudget})
		if ok := err == nil; ok != (i < MaxSources) {
			t.Fatalf("source %d: %v", i, err)
		}
	}
	if _, err := New(Config{Mode: 7}); !errors.Is(err, ErrInvalid) {
		t.Errorf("mode 7: %v", err)
	}
	if _, err := New(Config{InlineTime: -1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("negative time: %v", err)
	}
	if err := c.SetMode(7); !errors.Is(err, ErrInvalid) {
		t.Errorf("mode 7: %v", err)
	}
}

func TestModeText(t *testing.T) {
	for m, s := range map[Mode]string{ModeNAPI: "napi", ModeInterrupt: "interrupt", ModeBusyPoll: "busy", 9: "Mode(9)"} {
		if m.String() != s {
			t.Errorf("%d: %q, want %q", m, m, s)
		}
		if m > ModeBusyPoll {
			continue
		}
		got := Mode(99)
		if err := got.Set(s); err != nil || got != m {
			t.Errorf("Set(%q): %v, %v", s, got, err)
		}
	}
	m := ModeInterrupt
	if err := m.Set("poll"); !errors.Is(err, ErrInvalid) || m != ModeInterrupt {
		t.Errorf("Set(poll): %v, %v", m, err)
	}
}

// An inline run without Run has no bound, there is nobody to take the rest.
func TestNoBoundWithoutRun(t *testing.T) {
	c := newContext(t, Config{InlineBudget: 10})
	u := newUnit(t, c, SourceConfig{Name: "velo"}, nil)
	u.put(1000)
	u.src.Interrupt()
	if st := c.Stats(); u.left() != 0 || st.Deferred != 0 {
		t.Errorf("%d frames left, %d deferred", u.left(), st.Deferred)
	}
}

func TestClosed(t *testing.T) {
	c := newContext(t, Config{})
	u := newUnit(t, c, SourceConfig{Name: "velo"}, nil)
	select {
	case <-c.Done():
		t.Fatal("done before Close")
	default:
	}
	u.work = func(int) {
		c.Close()
		c.Close()
		select {
		case <-c.Done():
			t.Error("done within a Poll")
		default:
		}
	}
	u.put(2)
	u.src.Interrupt()
	select {
	case <-c.Done():
	default:
		t.Fatal("not done")
	}
	polls := u.src.Stats().Polls
	u.put(1)
	u.src.Interrupt()
	u.src.Schedule()
	if got := u.src.Stats().Polls; got != polls {
		t.Errorf("polled after Close")
	}
	if _, err := c.Register(SourceConfig{Poller: u}); !errors.Is(err, ErrClosed) {
		t.Errorf("Register: %v", err)
	}
	if err := c.SetMode(ModeNAPI); !errors.Is(err, ErrClosed) {
		t.Errorf("SetMode: %v", err)
	}
	if err := c.Run(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("Run: %v", err)
	}
}
