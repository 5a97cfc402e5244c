package napi

import (
	"fmt"
	"time"
)

// ITRState is a state of the dynamic interrupt throttling rate: how many
// interrupts a second are delivered at most (figure 5.16).
//
// States, rates and thresholds are those of ixgbe_update_itr and ixgbe_set_itr
// in Linux's ixgbe driver up to 4.13 (drivers/net/ethernet/intel/ixgbe,
// where the bulk rate became 12000 in 4.3; the figure has 8000):
//
//	              > 10 bytes/µs          > 20 bytes/µs
//	┌────────────┐ ───────────► ┌───────┐ ───────────► ┌────────┐
//	│ lowest     │              │ low   │              │ bulk   │
//	│ 100000/s   │ ◄─────────── │ 20000 │ ◄─────────── │ 8000/s │
//	└────────────┘  <= 10       └───────┘  <= 20       └────────┘
//
// When a poll ends, at most one step is made, by the bytes handled since the
// last time. An interrupt is also delivered when as many bytes are waiting as the
// driver's NIC, of 10 Gbit/s, brings in the interval, or half of the largest
// frame: its copy costs far more than the interrupt, and a fabric of several times
// that rate would run its senders dry before the interval is over.
//
// The rate moves to that of the state by a tenth at each poll, as the driver's
// exponential smoothing has it: from low to half way to bulk in nine polls.
//
// A source whose work carries no bytes is not throttled: there is no load to go by.
//
// There is one more difference from the driver. It divides the bytes
// by the state's interval, having no cheap clock, and so takes one large frame
// a second for bulk traffic; here the time is measured, and the interval is
// only its lower bound.
type ITRState uint8

// The states. The zero value means that there is no dynamic ITR.
const (
	ITRLowest ITRState = iota + 1 // lowest latency: 100000 interrupts/s
	ITRLow                        // low latency: 20000 interrupts/s; the initial state
	ITRBulk                       // bulk: 8000 interrupts/s
)

// Thresholds in bytes per microsecond, which is MB/s.
const (
	itrLowRate  = 10
	itrBulkRate = 20
)

// lineRate is what the driver's NIC receives, in bytes a second.
const lineRate = 10_000_000_000 / 8

// itrLarge is how many bytes an event must stand for, for events to be counted while
// an interrupt is held: below that the interval is over before they are a burst.
const itrLarge = 4096

// itrHalfFrame is half of a frame of 64 KB.
const itrHalfFrame = 32 << 10

// itrBurst is how many waiting bytes end an interval early.
func itrBurst(interval time.Duration) uint64 {
	return min(uint64(interval)*lineRate/uint64(time.Second), itrHalfFrame)
}

// itrSmooth is the interval after one more poll, on the way from old to that of the
// state: nine tenths of the old rate and one of the new (ixgbe_set_itr).
func itrSmooth(old, state time.Duration) time.Duration {
	if d := 9*state + old; d > 0 {
		return 10 * state * old / d
	}
	return state
}

// Interval returns the least time between two interrupts.
func (s ITRState) Interval() time.Duration {
	switch s {
	case ITRLowest:
		return time.Second / 100_000
	case ITRLow:
		return time.Second / 20_000
	case ITRBulk:
		return time.Second / 8_000
	}
	return 0
}

func (s ITRState) String() string {
	switch s {
	case 0:
		return "off"
	case ITRLowest:
		return "lowest"
	case ITRLow:
		return "low"
	case ITRBulk:
		return "bulk"
	}
	return fmt.Sprintf("ITRState(%d)", uint8(s))
}

// next returns the state after bytes were handled in elapsed.
func (s ITRState) next(bytes uint64, elapsed time.Duration) ITRState {
	us := uint64(max(elapsed, s.Interval()) / time.Microsecond)
	rate := bytes / us
	switch {
	case s == ITRLowest && rate > itrLowRate:
		return ITRLow
	case s == ITRLow && rate > itrBulkRate:
		return ITRBulk
	case s == ITRLow && rate <= itrLowRate:
		return ITRLowest
	case s == ITRBulk && rate <= itrBulkRate:
		return ITRLow
	}
	return s
}
