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
// Two things differ from the driver. First, an interval ends early when as many bytes
// wait as a 10 Gbit/s NIC receives in it, or half of the largest frame. Copying these
// costs far more than the interrupt, and a faster fabric's senders would run out of
// credit before the interval is over. Second, the driver has no cheap clock and
// divides the bytes by the state's interval, so it takes one large frame a second for
// bulk traffic. Here the time is measured, and the interval is only its lower bound.
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

// lineRate is the rate of the ixgbe driver's NIC, in bytes per second.
const lineRate = 10_000_000_000 / 8

// itrLarge is the mean size of an event, in bytes, from which events are counted while
// an interrupt is held. Smaller ones do not add up to a burst within the interval.
const itrLarge = 4096

// itrHalfFrame is half of a frame of 64 KB.
const itrHalfFrame = 32 << 10

// itrBurst returns how many waiting bytes end an interval early.
func itrBurst(interval time.Duration) uint64 {
	return min(uint64(interval)*lineRate/uint64(time.Second), itrHalfFrame)
}

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

// after returns the state that follows s when bytes were handled in elapsed.
func (s ITRState) after(bytes uint64, elapsed time.Duration) ITRState {
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
