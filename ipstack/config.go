package ipstack

import (
	"errors"
	"fmt"

	"exnet/exteth"
	"exnet/fabric"
	"exnet/foreign"
	"exnet/mtu"
	"exnet/multicast"

	"gvisor.dev/gvisor/pkg/tcpip"
)

// ErrConfig says that a configuration cannot work. The error that wraps it names the
// value to correct.
var ErrConfig = errors.New("invalid configuration")

// Link is the network interface below the stack. exn.Interface is one.
//
// Concurrency: all methods may be called from many goroutines.
type Link interface {
	// NodeID is the node that the interface belongs to.
	NodeID() fabric.NodeID
	// MAC is the interface's own address.
	MAC() [6]byte
	// MTU is the largest IP packet that one frame carries, unless its offload
	// metadata asks for segmentation. It does not change.
	MTU() int
	// Post takes buf, whose frame is complete, and sends it. The receiver may
	// not notice the frame until the link is flushed, which the caller of
	// FromHost does when it has no more packets.
	Post(buf *exteth.TxBuffer) error
	// TransmitCopy sends the Ethernet frame that parts add up to. It copies them.
	TransmitCopy(off exteth.Offload, parts ...[]byte) error
	// Free returns buf unsent.
	Free(buf *exteth.TxBuffer)
}

// Host is the host's IP layer: its TUN device.
//
// Concurrency: WritePacket may be called from many goroutines.
type Host interface {
	// WritePacket hands one IP packet to the host. It borrows packet until
	// return.
	WritePacket(off exteth.Offload, packet foreign.Frame) error
}

// Defaults of Config.
const (
	DefaultTCPBuffer         = 8 << 20
	DefaultCongestionControl = "cubic"
)

// minTCPBuffer is netstack's smallest TCP buffer (tcp.MinBufferSize).
const minTCPBuffer = 4 << 10

// Config configures a Stack. The zero value of every field but Link is usable.
type Config struct {
	// Link is the network interface. Required.
	Link Link
	// Host takes the received packets. Nil: netstack mode.
	Host Host
	// Groups is told which IP multicast groups the host, or netstack, is a member
	// of; membership reports then do not leave the node. Nil: reports leave as
	// other packets do.
	Groups multicast.Registry
	// NoFastPath sends every packet through netstack, in both directions.
	NoFastPath bool
	// Clock drives netstack's timers. Nil: the machine's clock.
	Clock tcpip.Clock
	// TCPBuffer is the largest send and receive buffer of a TCP connection in
	// netstack, in bytes. 0: DefaultTCPBuffer.
	TCPBuffer int
	// CongestionControl of TCP in netstack: "cubic" or "reno". Empty:
	// DefaultCongestionControl.
	CongestionControl string
}

// withDefaults returns a checked copy of c.
func (c Config) withDefaults() (Config, error) {
	if c.Link == nil {
		return c, fmt.Errorf("ipstack: %w: Config.Link is nil", ErrConfig)
	}
	if n := c.Link.MTU(); n < int(mtu.MinIPv4) {
		return c, fmt.Errorf("ipstack: %w: MTU %d, the minimum is %d", ErrConfig, n, mtu.MinIPv4)
	}
	if c.Clock == nil {
		c.Clock = tcpip.NewStdClock()
	}
	if c.TCPBuffer == 0 {
		c.TCPBuffer = DefaultTCPBuffer
	}
	if c.TCPBuffer < minTCPBuffer {
		return c, fmt.Errorf("ipstack: %w: TCP buffer of %d bytes, the minimum is %d", ErrConfig, c.TCPBuffer, minTCPBuffer)
	}
	switch c.CongestionControl {
	case "":
		c.CongestionControl = DefaultCongestionControl
	case "cubic", "reno":
	default:
		return c, fmt.Errorf("ipstack: %w: congestion control %q, want cubic or reno", ErrConfig, c.CongestionControl)
	}
	return c, nil
}
