package credit

import (
	"errors"
	"fmt"
)

// VC is a virtual channel.
type VC int

// The virtual channels of HyperTransport.
const (
	Posted VC = iota
	NonPosted
	Response
	VCs // how many there are
)

// String returns the channel's name.
func (v VC) String() string { return [VCs]string{"posted", "non-posted", "response"}[v] }

// Lengths in bytes: a packet is a command of 8 (a response, 4) and, but for requests to read, 64
// of data.
const (
	data = 64
	nop  = 4
	// overhead of a frame: preamble 8, header 14, sum 4, gap 12, and 16 for the protocol.
	overhead = 54
	minFrame = 84 // with preamble and gap
)

var packetLen = [VCs]int{Posted: 8 + data, NonPosted: 8, Response: 4 + data}

// LinkRate is the rate of the link, in bit/s.
const LinkRate = 10e9

// Picoseconds.
const (
	nanosecond = 1000
	perByte    = nanosecond // 8 bytes a cycle of 125 MHz
	perLink    = 8 * 1e12 / LinkRate
)

// ErrConfig says that a simulation cannot run so. Mend what it names.
var ErrConfig = errors.New("credit: bad configuration")

// Config is a simulation.
type Config struct {
	Payload int      // packets in a frame
	Bulk    int      // credits (NOPs) in a frame that returns them
	Credits int      // of each channel, at least Payload + Bulk - 1
	Packets [VCs]int // to send
	// Stalled channels are those whose packets nobody takes from the receiver's buffers.
	Stalled [VCs]bool
}

// Verify returns an error that wraps ErrConfig if c cannot run. With fewer credits the sender would
// wait for a full frame's, and the receiver for a full bulk, for ever.
func (c Config) Verify() error {
	if c.Payload < 1 || c.Bulk < 1 {
		return fmt.Errorf("%w: %d packets and %d NOPs in a frame: use at least 1", ErrConfig, c.Payload, c.Bulk)
	}
	if frame := c.Payload*packetLen[Posted] + overhead; frame > 1538 {
		return fmt.Errorf("%w: %d packets in a frame: use at most 20", ErrConfig, c.Payload)
	}
	if c.Bulk > 300 {
		return fmt.Errorf("%w: %d NOPs in a frame: use at most 300", ErrConfig, c.Bulk)
	}
	if least := c.Payload + c.Bulk - 1; c.Credits < least || c.Credits > 1<<20 {
		return fmt.Errorf("%w: %d credits: use %d to %d", ErrConfig, c.Credits, least, 1<<20)
	}
	for v, n := range c.Packets {
		if n < 0 || n > 1e8 {
			return fmt.Errorf("%w: %d %v packets: use 0 to %d", ErrConfig, n, VC(v), int(1e8))
		}
	}
	return nil
}

// Result is what a simulation has found.
type Result struct {
	Sent   [VCs]int // packets sent
	Done   [VCs]int // packets taken from the receiver's buffers
	Frames int      // with packets
	NOPs   int      // frames with credits
	Ns     float64  // when the last packet was taken, in nanoseconds

	// GoodputGbps is the data, UseGbps all that the link carried to the receiver, and ReturnGbps
	// what it carried back, in Gbit/s.
	GoodputGbps, UseGbps, ReturnGbps float64

	Credits float64 // mean of those that the sender had, of the channels with packets
	OutNs   float64 // mean time from a packet's credit to its encapsulation, in nanoseconds
	InNs    float64 // mean time from a packet's arrival until its buffer is free, in nanoseconds
}
