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
// At the end of a poll the state changes by at most one step, according to the bytes
// handled since the last change. The rate approaches that of the state by a tenth at
// each poll (the driver's exponential smoothing): from low half way to bulk in nine
// polls. A source whose work carries no bytes is not throttled: there is no load to
// measure.
//
// Three things differ from the driver, because what ends an interval here is a timer that wakes
// a thread, not a counter in the NIC. First, an interrupt for large events is not held: copying
// them costs far more than the interrupt, and with a timer for each, a gigabyte in frames of
// 4 KiB took twice the wake-ups. Second, nor is one held for so short a time as the timer itself
// takes, so in the state lowest none is. Third, the driver has no cheap clock and divides the
// bytes by the state's interval, so it takes one large frame a second for bulk traffic. Here the
// time is measured, and the interval is only its lower bound.
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

// itrLarge is the mean size of an event, in bytes, from which no interrupt is held.
const itrLarge = 4096

// itrShort is the longest wait for which no interrupt is held.
const itrShort = 10 * time.Microsecond

// itrSmooth returns the interval after one more poll: its rate is nine tenths of the old
// rate and one tenth of the state's (ixgbe_set_itr).
func itrSmooth(old, state time.Duration) time.Duration {
	if d := 9*state + old; d > 0 {
		return 10 * state * old / d
	}
	return state
}

// Interval returns the least time between two interrupts; 0 for the zero state.
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

// next returns the state that follows s when bytes were handled in elapsed.
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
