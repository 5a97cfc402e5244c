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
	bytes     uint64        // Adaptive: bytes handled until then
}

func newModerator(cfg Coalesce, now time.Duration) *moderator {
	m := &moderator{cfg: cfg, since: now, delivered: now}
	if cfg.Adaptive {
		m.state.Store(uint32(ITRLow))
	}
	return m
}

// due says whether a source that was taken off the poll list is to be polled
// now. If not, its interrupt is held: the timer is running, and the interrupt
// unmasked again if further events are to be counted. In ModeInterrupt (irq) it
// is always polled. The caller owns the poll list.
func (s *Source) due(irq bool) bool {
	m, clock := s.mod, s.ctx.cfg.Clock
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
		wait = m.delivered + ITRState(m.state.Load()).Interval() - now
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
			m.timer = clock.AfterFunc(wait, s.expire)
		} else {
			m.timer.Reset(wait)
		}
	}
	if m.cfg.Frames > 0 {
		s.poller.EnableInterrupt() // what is pending is known, and the timer runs
	}
	return false
}

// expire delivers the held interrupt when its time is over. If that was done
// while the timer's goroutine was starting, the poll finds nothing.
func (s *Source) expire() {
	s.count.expired.Add(1)
	s.mod.force.Store(true)
	s.ctx.schedule(s.bit)
}

// updateITR computes the state anew, at the end of a poll, from what was
// handled since the last time. The caller owns the poll list.
func (s *Source) updateITR() {
	m := s.mod
	total := s.count.bytes.Load()
	if !m.cfg.Adaptive || total == m.bytes {
		return
	}
	now := s.ctx.cfg.Clock.Now()
	m.state.Store(uint32(ITRState(m.state.Load()).next(total-m.bytes, now-m.since)))
	m.bytes, m.since = total, now
}
