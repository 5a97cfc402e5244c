package napi

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"exnet/internal/ctxend"
)

// Context is the poll list of one node and what runs it: Linux's softnet_data
// with its NET_RX softirq.
//
// Concurrency: all methods may be called from any goroutine; Run once.
type Context struct {
	cfg     Config
	inline  bool          // the goroutine that raised the interrupt may poll
	word    atomic.Uint64 // a word
	started atomic.Uint64 // sources that Schedule was called on
	wake    token         // signalled when Run's goroutine has something to look at
	done    chan struct{} // closed when the Context is closed and nobody polls

	last int // source polled last; belongs to the owner of the poll list

	count contextCounters

	// Register stores an element under mu before it increments n. Readers see
	// n, or the source's bit in the word, first.
	mu      sync.Mutex
	sources [MaxSources]*Source
	n       atomic.Int32
}

// New makes a Context without sources. The error is ErrInvalid, wrapped.
func New(cfg Config) (*Context, error) {
	inline := cfg.InlineBudget >= 0
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Context{
		cfg:    cfg,
		inline: inline,
		wake:   make(token, 1),
		done:   make(chan struct{}),
		last:   -1,
	}
	w, _ := word(0).setMode(cfg.Mode)
	c.word.Store(uint64(w))
	return c, nil
}

// Register adds a source (netif_napi_add), whose interrupt must be masked. Nothing is
// polled until the first Schedule or Interrupt. The error is ErrInvalid, wrapped, or
// ErrClosed.
func (c *Context) Register(cfg SourceConfig) (*Source, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if word(c.word.Load())&closedBit != 0 {
		return nil, ErrClosed
	}
	n := int(c.n.Load())
	if n == MaxSources {
		return nil, fmt.Errorf("napi: %w: more than %d sources", ErrInvalid, MaxSources)
	}
	s := &Source{ctx: c, poller: cfg.Poller, bit: 1 << n, budget: cfg.Budget, name: cfg.Name}
	s.coalesce.Store(&cfg.Coalesce)
	if !cfg.Coalesce.isOff() {
		s.mod.Store(newModerator(cfg.Coalesce, c.cfg.Clock.Now()))
	}
	c.sources[n] = s
	c.n.Store(int32(n + 1))
	return s, nil
}

// Mode returns the mode that was set last.
func (c *Context) Mode() Mode { return word(c.word.Load()).mode() }

// SetMode changes the mode while the Context runs. A Poll under way ends in the old
// mode. The error is ErrInvalid, wrapped, or ErrClosed.
func (c *Context) SetMode(m Mode) error {
	if m > ModeBusyPoll {
		return fmt.Errorf("napi: %w: %v", ErrInvalid, m)
	}
	for {
		old := word(c.word.Load())
		if old&closedBit != 0 {
			return ErrClosed
		}
		w, act := old.setMode(m)
		if c.swap(old, w) {
			if (old^w)&irqBit != 0 {
				c.wakeBoth()
			}
			c.actOn(w, act)
			return nil
		}
	}
}

// Run is the Context's goroutine (ksoftirqd). It takes over runs that last too long for
// the goroutine that raised the interrupt, serves ModeInterrupt, and polls in
// ModeBusyPoll. Otherwise it sleeps. When ctx is cancelled it closes the Context. It
// returns nil once the Context is closed and the last Poll has returned; ErrRunning or
// ErrClosed if it could not start.
func (c *Context) Run(ctx context.Context) error {
	for {
		old := word(c.word.Load())
		if old&closedBit != 0 {
			return ErrClosed
		}
		if old&aliveBit != 0 {
			return ErrRunning
		}
		w, act := old.threadAttached()
		if c.swap(old, w) {
			c.actOn(w, act)
			break
		}
	}
	defer ctxend.Do(ctx, c.Close)()
	for {
		c.wakerOf(word(c.word.Load())).Wait()
		w := word(c.word.Load())
		if w&threadBit != 0 {
			c.count.threadRuns.Add(1)
			c.pollLoop(true)
		}
		if w&closedBit != 0 {
			<-c.done
			return nil
		}
	}
}

// Close ends the Context: no Poll begins any more, and interrupts are masked
// and ignored. It does not wait for a Poll under way: see Done. Close may be called
// more than once, and within a Poll.
func (c *Context) Close() {
	for {
		old := word(c.word.Load())
		w, act := old.close()
		if c.swap(old, w) {
			c.actOn(w, act)
			break
		}
	}
	c.wakeBoth()
}

// Done returns a channel that is closed when the Context has been closed and
// its last Poll has returned.
func (c *Context) Done() <-chan struct{} { return c.done }

func (c *Context) swap(old, w word) bool { return c.word.CompareAndSwap(uint64(old), uint64(w)) }

// actOn does what the change of the word to w requires.
func (c *Context) actOn(w word, a action) {
	switch a {
	case actRun:
		c.count.inlineRuns.Add(1)
		c.pollLoop(false)
	case actWake:
		c.wakeRun(w)
	case actDone:
		c.endClosed()
	}
}

// endClosed ends a closed Context. Nobody polls it any more, so the caller may act as
// the owner of the poll list.
func (c *Context) endClosed() {
	for _, s := range c.sources[:c.n.Load()] {
		if m := s.mod.Load(); m != nil && m.irqHeld {
			m.timer.Stop()
		}
	}
	close(c.done)
}

// wakerOf returns what Run's goroutine waits for in the mode of w.
func (c *Context) wakerOf(w word) Event {
	if w&irqBit != 0 {
		return c.cfg.Event
	}
	return c.wake
}

// wakeRun wakes Run's goroutine, which owns the poll list since the word became w. If
// the mode has changed since, SetMode has signalled both events.
func (c *Context) wakeRun(w word) { c.wakerOf(w).Signal() }

// wakeBoth makes Run's goroutine look at the word, whichever event it waits for.
func (c *Context) wakeBoth() {
	c.wake.Signal()
	c.cfg.Event.Signal()
}

// scheduleSource puts a source on the poll list, and runs the list if it becomes its owner.
func (c *Context) scheduleSource(bit word) {
	for {
		old := word(c.word.Load())
		w, act := old.schedule(bit, c.inline)
		if w == old || c.swap(old, w) {
			c.actOn(w, act)
			return
		}
	}
}

// requeueSource puts a source back on the poll list. The caller owns the list.
func (c *Context) requeueSource(bit word) { c.word.Or(uint64(bit)) }
