package napi

import "sync/atomic"

// WorkBuckets is the number of buckets of the histogram of work per poll:
// bucket 0 counts polls that found nothing, bucket k those that handled
// 2^(k-1) to 2^k - 1 frames.
const WorkBuckets = 16

// Stats are the counters of a Context since New. They are read one by one while
// the data path runs, so they need not agree exactly.
type Stats struct {
	Mode       Mode
	InlineRuns uint64 // runs of the poll list in the goroutine that raised the interrupt (NET_RX softirqs)
	ThreadRuns uint64 // runs of the poll list in Run's goroutine (ksoftirqd wake-ups)
	Deferred   uint64 // inline runs handed over to Run's goroutine (time_squeeze of /proc/net/softnet_stat)
	Sources    []SourceStats
}

// SourceStats are the counters of a Source.
type SourceStats struct {
	Name        string
	Interrupts  uint64   // interrupts that the unit raised
	Coalesced   uint64   // events held back by coalescing or ITR, of Interrupts and Rescheduled
	Expired     uint64   // held interrupts delivered by the timer
	Polls       uint64   // calls of Poll and PollFrame
	Frames      uint64   // frames that these handled
	Bytes       uint64   // bytes that these handled
	Exhausted   uint64   // polls that used up their budget and went back to the list
	Rescheduled uint64   // polls that found more work after they unmasked the interrupt
	ITR         ITRState // state of the dynamic ITR, 0 when off
	WorkPerPoll [WorkBuckets]uint64
}

type contextCounters struct {
	inlineRuns, threadRuns, deferred atomic.Uint64
}

type sourceCounters struct {
	interrupts, coalesced, expired        atomic.Uint64
	frames, bytes, exhausted, rescheduled atomic.Uint64
	work                                  [WorkBuckets]atomic.Uint64
}

// Stats returns the counters, at any time and without stopping the data path.
func (c *Context) Stats() Stats {
	st := Stats{
		Mode:       c.Mode(),
		InlineRuns: c.count.inlineRuns.Load(),
		ThreadRuns: c.count.threadRuns.Load(),
		Deferred:   c.count.deferred.Load(),
	}
	for _, s := range c.sources[:c.n.Load()] {
		st.Sources = append(st.Sources, s.Stats())
	}
	return st
}

// Stats returns the counters, at any time and without stopping the data path.
func (s *Source) Stats() SourceStats {
	c := &s.count
	st := SourceStats{
		Name:        s.name,
		Interrupts:  c.interrupts.Load(),
		Coalesced:   c.coalesced.Load(),
		Expired:     c.expired.Load(),
		Frames:      c.frames.Load(),
		Bytes:       c.bytes.Load(),
		Exhausted:   c.exhausted.Load(),
		Rescheduled: c.rescheduled.Load(),
	}
	if m := s.mod.Load(); m != nil {
		st.ITR = ITRState(m.state.Load())
	}
	for i := range c.work {
		st.WorkPerPoll[i] = c.work[i].Load()
		st.Polls += st.WorkPerPoll[i]
	}
	return st
}
