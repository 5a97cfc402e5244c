package napi

import (
	"sync"
	"sync/atomic"
	"time"
)

// moderator holds back the interrupts of a source: static coalescing and
// dynamic ITR.
//
//	          announced, nothing to wait for
//	        ┌──────────────────────────────────────► delivered
//	┌───────┴┐  announced: start the timer   ┌──────┐    ▲
//	│ open   ├──────────────────────────────►│ held ├────┘ Frames announced,
//	│        │◄──────────────────────────────┤      │      or the timer ends
//	└────────┘           delivered           └──────┘
//
// What is delivered goes on the poll list. While an interrupt is held, the
// timer is running, so whatever else is missed, the poll comes.
type moderator struct {
	cfg   Coalesce
	state atomic.Uint32 // ITRState, 0 when not Adaptive

	mu        sync.Mutex
	held      bool          // an interrupt is held, the timer is running
	announced int           // events since the first one held
	timer     Timer         // made at the first use
	delivered time.Duration // Adaptive: when an interrupt was delivered last

	// Adaptive: when the state was computed last, and the bytes at that time.
	// They belong to the owner of the poll list.
	since time.Duration
	bytes uint64
}

func newModerator(cfg Coalesce, now time.Duration) *moderator {
	m := &moderator{cfg: cfg, since: now}
	if cfg.Adaptive {
		m.state.Store(uint32(ITRLow))
		m.delivered = now - ITRLow.Interval() // the first interrupt does not wait
	}
	return m
}

// announce takes note of an event and says whether its interrupt is delivered
// now. It masks the interrupt then. If it holds it back, it has started the
// timer, and unmasks the interrupt if further events are to be counted.
func (s *Source) announce() bool {
	m := s.mod
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held {
		m.announced++
		if m.cfg.Frames > 0 && m.announced >= m.cfg.Frames {
			m.held = false
			m.timer.Stop()
			s.poller.DisableInterrupt()
			return true
		}
	} else {
		wait := m.cfg.Delay
		if m.cfg.Adaptive {
			now := s.ctx.cfg.Clock.Now()
			if wait = m.delivered + ITRState(m.state.Load()).Interval() - now; wait <= 0 {
				m.delivered = now
				s.poller.DisableInterrupt()
				return true
			}
		}
		m.held, m.announced = true, 1
		if m.timer == nil {
			m.timer = s.ctx.cfg.Clock.AfterFunc(wait, s.expire)
		} else {
			m.timer.Reset(wait)
		}
	}
	s.count.coalesced.Add(1)
	if m.cfg.Frames > 0 {
		s.poller.EnableInterrupt() // what is pending is known, and the timer runs
	} else {
		s.poller.DisableInterrupt()
	}
	return false
}

// expire delivers the held interrupt when its time is over.
func (s *Source) expire() {
	m := s.mod
	m.mu.Lock()
	if !m.held {
		m.mu.Unlock()
		return // delivered while the timer's goroutine was starting
	}
	m.held = false
	if m.cfg.Adaptive {
		m.delivered = s.ctx.cfg.Clock.Now()
	}
	s.poller.DisableInterrupt()
	m.mu.Unlock()
	s.count.expired.Add(1)
	s.ctx.schedule(s.bit)
}

// updateITR computes the state anew, at the end of a poll, from what was
// handled since the last time.
func (s *Source) updateITR() {
	m := s.mod
	total := s.count.bytes.Load()
	if !m.cfg.Adaptive || total == m.bytes {
		return
	}
	bytes := total - m.bytes
	m.bytes = total
	now := s.ctx.cfg.Clock.Now()
	elapsed := now - m.since
	m.since = now
	m.state.Store(uint32(ITRState(m.state.Load()).next(bytes, elapsed)))
}

func (m *moderator) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = false
	if m.timer != nil {
		m.timer.Stop()
	}
}
