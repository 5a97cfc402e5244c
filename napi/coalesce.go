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
// When the owner of the poll list takes the source off the list, it decides whether
// to poll it. While an interrupt is held, the timer runs, so the poll comes in any
// case.
//
// All fields but the atomics belong to the owner of the poll list.
type moderator struct {
	cfg   Coalesce
	state atomic.Uint32 // ITRState, 0 when not Adaptive
	force atomic.Bool   // poll in any case: Schedule, or the timer has ended

	again     bool          // poll in any case: the budget was used up
	irqHeld   bool          // an interrupt is held, the timer is running
	seen      uint64        // events that due has looked at
	announced uint64        // of these, since the last delivery
	timer     Timer         // made at the first use
	delivered time.Duration // Adaptive: when an interrupt was delivered last
	since     time.Duration // Adaptive: when the state was computed last
	interval  time.Duration // Adaptive: least time between two interrupts, smoothed
	bytes     uint64        // Adaptive: bytes handled until since
	events    uint64        // Adaptive: events announced until since
	mean      uint64        // Adaptive: bytes per event before since
}

func newModerator(cfg Coalesce, now time.Duration) *moderator {
	m := &moderator{cfg: cfg, since: now, delivered: now}
	if cfg.Adaptive {
		m.state.Store(uint32(ITRLow))
		m.interval = ITRLow.Interval()
	}
	return m
}

// dueForPoll reports whether to poll a source that was taken off the poll list. If not, its
// interrupt is held: the timer runs, and the interrupt is unmasked again if further
// events count. In ModeInterrupt (irq) due is always true. The caller owns the poll
// list.
func (s *Source) dueForPoll(m *moderator, irq bool) bool {
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
		if m.irqHeld {
			m.timer.Stop()
		}
		m.irqHeld, m.announced = false, 0
		if wait <= 0 {
			m.delivered = now
		}
		s.poller.DisableInterrupt()
		return true
	}

	s.count.coalesced.Add(1)
	if !m.irqHeld {
		m.irqHeld = true
		if m.timer == nil {
			m.timer = clock.AfterFunc(wait, func() { s.timerFired(m) })
		} else {
			m.timer.Reset(wait)
		}
	}
	if m.cfg.Frames > 0 || m.mean >= itrLarge {
		s.poller.EnableInterrupt() // pending work needs no recheck: the timer runs
	}
	return false
}

// timerFired delivers the held interrupt when the timer fires. If it was delivered
// meanwhile, the poll finds nothing.
func (s *Source) timerFired(m *moderator) {
	s.count.expired.Add(1)
	m.force.Store(true)
	s.ctx.scheduleSource(s.bit)
}

// updateITR recomputes the ITR state at the end of a poll, from the bytes handled
// since the last time. The caller owns the poll list.
func (s *Source) updateITR(m *moderator) {
	total := s.count.bytes.Load()
	if !m.cfg.Adaptive || total == m.bytes {
		return
	}
	now := s.ctx.cfg.Clock.Now()
	state := ITRState(m.state.Load()).after(total-m.bytes, now-m.since)
	m.state.Store(uint32(state))
	m.interval = itrSmooth(m.interval, state.Interval())
	events := s.count.interrupts.Load() + s.count.rescheduled.Load()
	if n := events - m.events; n > 0 {
		m.mean = (total - m.bytes) / n
	}
	m.bytes, m.events, m.since = total, events, now
}

// Coalesce returns the setting that was made last.
func (s *Source) Coalesce() Coalesce { return *s.coalesce.Load() }

// SetCoalesce changes which interrupts are held back, while the Context runs; a held
// interrupt is delivered. ModeInterrupt and ModeBusyPoll ignore the setting; it
// applies again after them. The error is ErrInvalid, wrapped, or ErrClosed.
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
		s.ctx.scheduleSource(s.bit) // only the owner of the list may change the moderator
	}
	return nil
}

// applyCoalesce applies the setting of SetCoalesce. The source is polled next. If
// Schedule marks the old moderator meanwhile, the new one may hold that poll back, as
// it does an interrupt. The caller owns the poll list.
func (s *Source) applyCoalesce() {
	s.changed.Store(false) // before the setting is read, so none is missed
	if m := s.mod.Load(); m != nil && m.irqHeld {
		m.timer.Stop()
	}
	var m *moderator
	if c := *s.coalesce.Load(); !c.isOff() {
		m = newModerator(c, s.ctx.cfg.Clock.Now())
		m.seen = s.count.interrupts.Load() + s.count.rescheduled.Load()
		m.bytes, m.events = s.count.bytes.Load(), m.seen
	}
	s.mod.Store(m)
	s.poller.DisableInterrupt()
}
