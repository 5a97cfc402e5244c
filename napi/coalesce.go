package napi

import (
	"sync/atomic"
	"time"
)

// moderator holds back the interrupts of a source: static coalescing and
// dynamic ITR.
//
//	          announced, nothing to wait for
//	        ┌──────────────────────────────────────► polled
//	┌───────┴┐  announced: start the timer   ┌──────┐  ▲
//	│ open   ├──────────────────────────────►│ held ├──┘ Frames announced,
//	│        │◄──────────────────────────────┤      │    or the timer ends
//	└────────┘            polled             └──────┘
//
// The owner of the poll list decides, when it takes the source off the list,
// whether to poll it or to leave it be. While an interrupt is held, the timer
// is running, so whatever else is missed, the poll comes.
//
// All fields but the atomics belong to the owner of the poll list.
type moderator struct {
	cfg   Coalesce
	state atomic.Uint32 // ITRState, 0 when not Adaptive
	force atomic.Bool   // poll in any case: Schedule, or the timer has ended

	again     bool          // poll in any case: the budget was used up
	held      bool          // an interrupt is held, the timer is running
	seen      uint64        // events that due has looked at
	announced uint64        // of these, since the first one held
	timer     Timer         // made at the first use
	delivered time.Duration // Adaptive: when an interrupt was delivered last
	since     time.Duration // Adaptive: when the state was computed last
	interval  time.Duration // Adaptive: least time between two interrupts, on its way to the state's
	bytes     uint64        // Adaptive: bytes handled until then
	events    uint64        // Adaptive: and events announced
	mean      uint64        // Adaptive: bytes for each event, lately
}

func newModerator(cfg Coalesce, now time.Duration) *moderator {
	m := &moderator{cfg: cfg, since: now, delivered: now}
	if cfg.Adaptive {
		m.state.Store(uint32(ITRLow))
		m.interval = ITRLow.Interval()
	}
	return m
}

// due says whether a source that was taken off the poll list is to be polled
// now. If not, its interrupt is held: the timer is running, and the interrupt
// unmasked again if further events are to be counted. In ModeInterrupt (irq) it
// is always polled. The caller owns the poll list.
func (s *Source) due(m *moderator, irq bool) bool {
	clock := s.ctx.cfg.Clock
	if m.again {
		m.again = false
		return true
	}
	forced := m.force.Swap(false) || irq
	events := s.count.interrupts.Load() + s.count.rescheduled.Load()
	m.announced += events - m.seen
	m.seen = events

	var now, wait time.Duration
	switch {
	case m.cfg.Adaptive:
		now = clock.Now()
		if s.count.bytes.Load() != 0 && m.announced*m.mean < itrBurst(m.interval) {
			wait = m.delivered + m.interval - now
		}
	case m.cfg.Frames == 0 || m.announced < uint64(m.cfg.Frames):
		wait = m.cfg.Delay
	}
	if forced || wait <= 0 {
		if m.held {
			m.timer.Stop()
		}
		m.held, m.announced = false, 0
		if wait <= 0 {
			m.delivered = now
		}
		s.poller.DisableInterrupt()
		return true
	}

	s.count.coalesced.Add(1)
	if !m.held {
		m.held = true
		if m.timer == nil {
			m.timer = clock.AfterFunc(wait, func() { s.expire(m) })
		} else {
			m.timer.Reset(wait)
		}
	}
	if m.cfg.Frames > 0 || m.mean >= itrLarge {
		s.poller.EnableInterrupt() // what is pending is known, and the timer runs
	}
	return false
}

// expire delivers the held interrupt when its time is over. If that was done
// while the timer's goroutine was starting, the poll finds nothing.
func (s *Source) expire(m *moderator) {
	s.count.expired.Add(1)
	m.force.Store(true)
	s.ctx.schedule(s.bit)
}

// updateITR computes the state anew, at the end of a poll, from what was
// handled since the last time. The caller owns the poll list.
func (s *Source) updateITR(m *moderator) {
	total := s.count.bytes.Load()
	if !m.cfg.Adaptive || total == m.bytes {
		return
	}
	now := s.ctx.cfg.Clock.Now()
	state := ITRState(m.state.Load()).next(total-m.bytes, now-m.since)
	m.state.Store(uint32(state))
	m.interval = itrSmooth(m.interval, state.Interval())
	events := s.count.interrupts.Load() + s.count.rescheduled.Load()
	if n := events - m.events; n > 0 {
		m.mean = (total - m.bytes) / n
	}
	m.bytes, m.events, m.since = total, events, now
}

// Coalesce returns how interrupts are held back, as it was set last.
func (s *Source) Coalesce() Coalesce { return *s.coalesce.Load() }

// SetCoalesce changes it while everything runs; a held interrupt is delivered.
// ModeInterrupt and ModeBusyPoll do without it, and it applies after them.
func (s *Source) SetCoalesce(c Coalesce) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if word(s.ctx.word.Load())&closedBit != 0 {
		return ErrClosed
	}
	s.coalesce.Store(&c)
	s.changed.Store(true)
	if s.ctx.started.Load()&uint64(s.bit) != 0 {
		s.ctx.schedule(s.bit) // the moderator is the list owner's to change
	}
	return nil
}

// applyCoalesce does what SetCoalesce asked for. The source is polled next. A
// Schedule that marks the old moderator meanwhile is held by the new one, for as
// long as an interrupt may be. The caller owns the poll list.
func (s *Source) applyCoalesce() {
	s.changed.Store(false) // before the setting is read: none is missed
	if m := s.mod.Load(); m != nil && m.held {
		m.timer.Stop()
	}
	var m *moderator
	if c := *s.coalesce.Load(); !c.off() {
		m = newModerator(c, s.ctx.cfg.Clock.Now())
		m.seen = s.count.interrupts.Load() + s.count.rescheduled.Load()
		m.bytes, m.events = s.count.bytes.Load(), m.seen
	}
	s.mod.Store(m)
	s.poller.DisableInterrupt()
}
