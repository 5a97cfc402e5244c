package napi

import (
	"math/bits"
	"runtime"
	"time"
)

// pollLoop is the poll loop (net_rx_action). The caller owns the poll list, and has given
// it up when run returns. thread says that the caller is Run's goroutine.
func (c *Context) pollLoop(thread bool) {
	var lim limiter
	over := false
	for {
		old := word(c.word.Load())
		w, st, i := old.nextAction(thread, over, c.last)
		if w != old && !c.swap(old, w) {
			continue
		}
		switch st {
		case stepPoll:
			c.last = i
			s, irq := c.sources[i], old&irqBit != 0
			if s.changed.Load() {
				s.applyCoalesce()
			} else if m := s.mod.Load(); m != nil && !s.dueForPoll(m, irq) {
				continue
			}
			work, exhausted := s.pollOnce(irq)
			over = irq || lim.countPoll(c, work.Frames, exhausted)
			if over && thread && !irq {
				runtime.Gosched() // as ksoftirqd's cond_resched
				lim, over = limiter{}, false
			}
		case stepIdle:
			return
		case stepHandOver:
			if !thread && old&irqBit == 0 {
				c.count.deferred.Add(1)
			}
			c.wakeRun(w)
			return
		case stepBusy:
			c.busyPoll()
		case stepClosed:
			c.endClosed()
			return
		}
	}
}

// limiter measures one run against the inline limits.
type limiter struct {
	frames, polls int
	timed         bool
	since         time.Duration // the first look at the clock
}

// clockEvery is the number of polls between two readings of the clock. Meanwhile only
// the frame budget bounds the run.
const clockEvery = 4

// countPoll counts one poll and reports whether the run must end.
func (l *limiter) countPoll(c *Context, frames int, exhausted bool) bool {
	l.frames += frames
	l.polls++
	if l.frames >= c.cfg.InlineBudget {
		return true
	}
	if !exhausted && l.polls%clockEvery != 0 {
		return false
	}
	now := c.cfg.Clock.Now()
	if !l.timed {
		l.timed, l.since = true, now
		return false
	}
	return now-l.since >= c.cfg.InlineTime
}

// busyPoll polls all started sources with their interrupts masked, until the
// mode changes or the Context is closed, then unmasks them.
func (c *Context) busyPoll() {
	for s := range c.startedSources {
		s.poller.DisableInterrupt()
	}
	total := 0
	for word(c.word.Load())&(busyBit|closedBit) == busyBit {
		frames := 0
		for s := range c.startedSources {
			w := s.poller.Poll(s.budget)
			s.recordWork(w)
			frames += w.Frames
		}
		if total += frames; frames == 0 || total >= c.cfg.InlineBudget {
			total = 0
			runtime.Gosched()
		}
	}
	if word(c.word.Load())&closedBit != 0 {
		return
	}
	for s := range c.startedSources {
		if s.poller.EnableInterrupt() {
			s.poller.DisableInterrupt()
			c.requeueSource(s.bit)
		}
	}
}

func (c *Context) startedSources(yield func(*Source) bool) {
	for m := c.started.Load(); m != 0; m &= m - 1 {
		if !yield(c.sources[bits.TrailingZeros64(m)]) {
			return
		}
	}
}
