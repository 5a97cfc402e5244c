package napi

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// manualClock moves when a test says so.
type manualClock struct {
	mu     sync.Mutex
	now    time.Duration
	reads  int
	timers []*manualTimer
}

type manualTimer struct {
	c    *manualClock
	at   time.Duration
	f    func()
	runs bool
}

func (c *manualClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	return c.now
}

func (c *manualClock) AfterFunc(d time.Duration, f func()) Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &manualTimer{c: c, at: c.now + d, f: f, runs: true}
	c.timers = append(c.timers, t)
	return t
}

func (t *manualTimer) Stop() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	was := t.runs
	t.runs = false
	return was
}

func (t *manualTimer) Reset(d time.Duration) bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	was := t.runs
	t.at, t.runs = t.c.now+d, true
	return was
}

// advance moves the clock and calls what is due, in order, in this goroutine.
func (c *manualClock) advance(d time.Duration) {
	c.mu.Lock()
	end := c.now + d
	for {
		var due *manualTimer
		for _, t := range c.timers {
			if t.runs && t.at <= end && (due == nil || t.at < due.at) {
				due = t
			}
		}
		if due == nil {
			break
		}
		c.now, due.runs = due.at, false
		c.mu.Unlock()
		due.f()
		c.mu.Lock()
	}
	c.now = end
	c.mu.Unlock()
}

// armed returns the number of running timers.
func (c *manualClock) armed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, t := range c.timers {
		if t.runs {
			n++
		}
	}
	return n
}

// unit is a receiving unit with a mailbox and a one-shot interrupt, as VELO's.
type unit struct {
	name string
	src  *Source
	log  *[]string   // "name:frames" of each Poll, if not nil
	work func(int)   // called in Poll for each frame, if not nil
	hook func() bool // called by EnableInterrupt after unmasking, if not nil
	tick func(n int) // called at the end of Poll, if not nil

	raised int // RaiseInterrupt has called the handler

	mu       sync.Mutex
	waiting  []int // bytes of each frame
	unmasked bool
}

// arrive is the hardware: frames of the given sizes arrive, one at a time.
func (u *unit) arrive(sizes ...int) {
	for _, n := range sizes {
		u.mu.Lock()
		u.waiting = append(u.waiting, n)
		fire := u.unmasked
		u.unmasked = false
		u.mu.Unlock()
		if fire {
			u.src.Interrupt()
		}
	}
}

// put leaves n frames in the mailbox without an interrupt.
func (u *unit) put(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for range n {
		u.waiting = append(u.waiting, 64)
	}
}

func (u *unit) Poll(budget int) Work {
	var w Work
	for w.Frames < budget {
		u.mu.Lock()
		if len(u.waiting) == 0 {
			u.mu.Unlock()
			break
		}
		n := u.waiting[0]
		u.waiting = u.waiting[1:]
		u.mu.Unlock()
		w.Frames++
		w.Bytes += n
		if u.work != nil {
			u.work(n)
		}
	}
	if u.log != nil {
		*u.log = append(*u.log, fmt.Sprintf("%s:%d", u.name, w.Frames))
	}
	if u.tick != nil {
		u.tick(w.Frames)
	}
	return w
}

func (u *unit) EnableInterrupt() bool {
	u.mu.Lock()
	u.unmasked = true
	pending := len(u.waiting) > 0
	u.mu.Unlock()
	if u.hook != nil {
		return u.hook() || pending
	}
	return pending
}

func (u *unit) DisableInterrupt() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.unmasked = false
}

func (u *unit) PollFrame() Work { return u.Poll(1) }

func (u *unit) RaiseInterrupt() {
	u.mu.Lock()
	fire := u.unmasked
	u.unmasked = false
	u.mu.Unlock()
	if fire {
		u.raised++
		u.src.Interrupt()
	}
}

func (u *unit) left() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.waiting)
}

func (u *unit) enabled() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.unmasked
}

func newContext(t testing.TB, cfg Config) *Context {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newUnit registers a unit and starts it.
func newUnit(t testing.TB, c *Context, cfg SourceConfig, log *[]string) *unit {
	t.Helper()
	u := &unit{name: cfg.Name}
	cfg.Poller = u
	s, err := c.Register(cfg)
	if err != nil {
		t.Fatal(err)
	}
	u.src = s
	s.Schedule()
	if !u.enabled() && c.Mode() != ModeBusyPoll && c.inline {
		t.Fatal("the first Schedule did not unmask the interrupt")
	}
	u.log = log
	return u
}
