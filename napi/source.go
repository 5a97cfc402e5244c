package napi

import (
	"math/bits"
	"sync/atomic"
)

// Work is what one Poll has done.
type Work struct {
	Frames int // counts against the budget
	Bytes  int // for the dynamic ITR and the statistics
}

// Poller is the driver of a unit: the poll method that a Linux driver registers with
// netif_napi_add, and the interrupt mask.
//
// EnableInterrupt and DisableInterrupt must not call Source.Interrupt. RaiseInterrupt
// may; the unit must not hold a lock then that the other two take.
type Poller interface {
	// Poll handles at most budget frames and returns how many. Fewer than
	// budget means that it found the unit empty.
	Poll(budget int) Work

	// PollFrame handles one frame at most, in however many messages. It serves an
	// interrupt of ModeInterrupt.
	PollFrame() Work

	// EnableInterrupt unmasks the unit's interrupt, then reports whether
	// something is waiting already. A message that arrives during the call must
	// be reported, or raise an interrupt, or both.
	//
	// A driver that cannot continue, because the layer above takes no more,
	// leaves the interrupt masked, returns false, and calls Source.Schedule when
	// it can.
	EnableInterrupt() (pending bool)

	// DisableInterrupt masks the unit's interrupt. A call of Source.Interrupt
	// that is under way may still arrive.
	DisableInterrupt()

	// RaiseInterrupt raises the interrupt as an arrival does: if it is unmasked,
	// the unit masks it and calls Source.Interrupt.
	RaiseInterrupt()
}

// Source is one unit on a Context's poll list: Linux's struct napi_struct.
//
// Concurrency: all methods may be called from any goroutine, within a Poll
// too.
type Source struct {
	ctx    *Context
	poller Poller
	bit    word
	budget int
	mod    atomic.Pointer[moderator] // nil: no coalescing; the poll list's owner stores it
	name   string
	count  sourceCounters

	coalesce atomic.Pointer[Coalesce] // the last setting
	changed  atomic.Bool              // coalesce must still be applied
}

// Interrupt is the handler of the unit's interrupt. It masks the interrupt and
// puts the source on the poll list. If nobody runs the list, Interrupt does
// ("softirq on the interrupted CPU"), for a bounded time if Run is there. If the list
// is run in another goroutine, or further up this one's stack, Interrupt only marks
// the source and returns.
func (s *Source) Interrupt() {
	s.count.interrupts.Add(1)
	s.poller.DisableInterrupt()
	s.ctx.scheduleSource(s.bit)
}

// Schedule puts the source on the poll list without an interrupt. A driver
// calls it once to start the source, with the interrupt still masked (the first
// Poll to find the unit empty unmasks it), and later when something other than
// an interrupt makes polling worthwhile. It may run the list, as Interrupt may.
func (s *Source) Schedule() {
	if started := &s.ctx.started; started.Load()&uint64(s.bit) == 0 {
		started.Or(uint64(s.bit))
	}
	if m := s.mod.Load(); m != nil {
		m.force.Store(true)
	}
	s.ctx.scheduleSource(s.bit)
}

// pollOnce polls the source once. It returns the work done, and whether that used up the
// budget. The caller owns the poll list.
func (s *Source) pollOnce(irq bool) (Work, bool) {
	var w Work
	if irq {
		w = s.poller.PollFrame()
	} else {
		w = s.poller.Poll(s.budget)
	}
	s.recordWork(w)
	if w.Frames >= s.budget && !irq {
		s.count.exhausted.Add(1)
		if m := s.mod.Load(); m != nil {
			m.again = true
		}
		s.ctx.requeueSource(s.bit)
		return w, true
	}
	s.completePoll(irq)
	return w, false
}

// completePoll unmasks the interrupt and rechecks the unit (napi_complete_done and what
// drivers do after it). The source is off the list here, unless it was interrupted
// meanwhile.
func (s *Source) completePoll(irq bool) {
	if m := s.mod.Load(); m != nil {
		s.updateITR(m)
	}
	if !s.poller.EnableInterrupt() {
		return
	}
	if irq {
		s.poller.RaiseInterrupt() // pending work keeps the line asserted
		return
	}
	s.count.rescheduled.Add(1)
	s.poller.DisableInterrupt()
	s.ctx.requeueSource(s.bit)
}

func (s *Source) recordWork(w Work) {
	c := &s.count
	c.work[min(bits.Len(uint(max(w.Frames, 0))), WorkBuckets-1)].Add(1)
	if w.Frames > 0 {
		c.frames.Add(uint64(w.Frames))
		c.bytes.Add(uint64(w.Bytes))
	}
}
