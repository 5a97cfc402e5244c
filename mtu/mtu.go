package mtu

import (
	"errors"
	"fmt"
	"strconv"
)

// Link is the size of a whole Ethernet frame in bytes: header and payload,
// without frame check sequence.
type Link uint32

// Network is the size of an IP packet in bytes: IP header and payload. It is
// the MTU that "ip link" and ifconfig show.
type Network uint32

// EthernetHeaderLen is the header of every EXT-Eth frame: destination and
// source MAC address and EtherType. EXT-Eth carries no 802.1Q tag.
const EthernetHeaderLen = 6 + 6 + 2

// Limits of an IP packet.
const (
	// MinIPv4 is what every IPv4 link must carry without further
	// fragmentation (RFC 791, section 3.2): the longest header and the
	// smallest fragment.
	MinIPv4 Network = 60 + 8

	// MinIPv6 is what every IPv6 link must carry (RFC 8200, section 5). Linux
	// removes IPv6 from an interface whose MTU is set below it.
	MinIPv6 Network = 1280

	// Thesis is the default of thesis 5.4.3 and listing 5.1. It is one more
	// than exn0 can have, see Default.
	Thesis Network = 1 << 16

	// MaxIPv4 is the largest IPv4 packet: the total length field has 16 bits
	// (RFC 791, section 3.1). An IPv6 packet may be 40 + 65535 bytes long.
	MaxIPv4 Network = 1<<16 - 1

	// MaxTUN is the largest MTU that Linux gives a TUN device (MAX_MTU in
	// drivers/net/tun.c).
	MaxTUN Network = 65535

	// Default is the MTU of exn0: the thesis's 65536 cut to what a TUN device
	// and an IPv4 packet can have, so one byte less.
	Default = min(Thesis, MaxIPv4, MaxTUN)
)

// Limits of a frame.
const (
	// MaxFrame is the largest frame that the EXT-Eth format can carry: one
	// frame is one RMA transaction (thesis 5.4.3), and that moves at most 8 MB
	// (thesis 3.2.1.2).
	MaxFrame Link = 8 << 20

	// MaxFormat is the IP packet in a frame of MaxFrame bytes: 8 MB - 14.
	MaxFormat = Network(MaxFrame - EthernetHeaderLen)
)

// ErrRange is wrapped by the error for an MTU that is too small or too large.
// The message names the limit, its source and the range to choose from: show
// it to the user.
var ErrRange = errors.New("mtu out of range")

// ErrSyntax is wrapped by the error for text that is not an MTU.
var ErrSyntax = errors.New("not an mtu")

// RangeError says which limit an MTU breaks. It wraps ErrRange.
type RangeError struct {
	MTU      int64   // the refused value
	Limit    Network // the limit it breaks
	Why      string  // who sets that limit
	Min, Max Network // the range that would be accepted
}

func (e *RangeError) Error() string {
	side, most := "below", "least"
	if e.MTU > int64(e.Limit) {
		side, most = "above", "most"
	}
	return fmt.Sprintf("mtu: %d is %s %d, the %s that %s; use %d..%d",
		e.MTU, side, e.Limit, most, e.Why, e.Min, e.Max)
}

// Unwrap returns ErrRange.
func (e *RangeError) Unwrap() error { return ErrRange }

// New checks n as the MTU of an interface that carries IPv4 and IPv6, as exn0
// does: MinIPv6..Default.
func New(n int) (Network, error) {
	return checkMTU(int64(n), MinIPv6, "IPv6 allows (RFC 8200)")
}

// Parse is New for a decimal number in text.
func Parse(s string) (Network, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("mtu: %w: %q; use a number of bytes, %d..%d", ErrSyntax, s, MinIPv6, Default)
	}
	return checkMTU(n, MinIPv6, "IPv6 allows (RFC 8200)")
}

func checkMTU(n int64, low Network, why string) (Network, error) {
	if n < int64(low) {
		return 0, &RangeError{MTU: n, Limit: low, Why: why, Min: low, Max: Default}
	}
	if n > int64(Default) {
		return 0, &RangeError{
			MTU: n, Limit: Default, Min: low, Max: Default,
			Why: "a TUN device and an IPv4 packet can have",
		}
	}
	return Network(n), nil
}

// Link returns the frame that holds a packet of n bytes.
func (n Network) Link() Link { return EthernetHeaderLen + Link(n) }

// Network returns the packet that fits a frame of l bytes, 0 when not even the
// header does.
func (l Link) Network() Network {
	if l < EthernetHeaderLen {
		return 0
	}
	return Network(l - EthernetHeaderLen)
}

// String returns n as a decimal number.
func (n Network) String() string { return strconv.FormatUint(uint64(n), 10) }

// String returns l as a decimal number.
func (l Link) String() string { return strconv.FormatUint(uint64(l), 10) }

// Set parses s as Parse does, so that a *Network is a flag.Value. It leaves n
// unchanged on error.
func (n *Network) Set(s string) error {
	v, err := Parse(s)
	if err != nil {
		return err
	}
	*n = v
	return nil
}
