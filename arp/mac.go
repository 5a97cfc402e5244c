package arp

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"exnet/fabric"
)

// Errors of the address mapping.
var (
	// ErrForeign says that a MAC address has another prefix: there is no node
	// of this fabric behind it.
	ErrForeign = errors.New("mac address of another network")

	// ErrAddress is wrapped by the error for an IP address that has no mapping
	// of the kind asked for.
	ErrAddress = errors.New("wrong kind of ip address")
)

// Layout of a node's MAC address, figure 5.13.
const (
	macPrefixOff = 0
	macNodeOff   = 4 // uint16, big endian
	macLen       = 4 + 2
)

// Bits of the first octet of a MAC address, figure 5.12.
const (
	groupBit = 0x01 // I/G: multicast
	localBit = 0x02 // U/L: locally administered
)

// MAC is an Ethernet address. It converts from and to [6]byte, and
// net.HardwareAddr(m[:]) is a net.HardwareAddr.
type MAC [macLen]byte

// Broadcast returns ff:ff:ff:ff:ff:ff.
func Broadcast() MAC { return MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} }

// IsBroadcast reports whether m is the broadcast address.
func (m MAC) IsBroadcast() bool { return m == Broadcast() }

// IsMulticast reports whether m is a group's address; the broadcast address is
// one too.
func (m MAC) IsMulticast() bool { return m[0]&groupBit != 0 }

// String returns m as 2e:87:04:07:00:01.
func (m MAC) String() string { return hexOctets(m[:]) }

// LinkLocal returns the IPv6 link-local address with m as interface identifier
// (modified EUI-64, RFC 4291 appendix A): what the kernel gives an Ethernet
// interface, as in listing 5.1.
func (m MAC) LinkLocal() netip.Addr {
	return netip.AddrFrom16([16]byte{
		0xfe, 0x80, 0, 0, 0, 0, 0, 0,
		m[0] ^ localBit, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5],
	})
}

// Multicast returns the MAC address that frames to an IP multicast group have.
func Multicast(group netip.Addr) (MAC, error) {
	switch {
	case !group.IsMulticast():
		return MAC{}, fmt.Errorf("arp: %w: %v is not a multicast group", ErrAddress, group)
	case group.Is4():
		a := group.As4() // 01:00:5e and the lower 23 bits, RFC 1112 section 6.4
		return MAC{0x01, 0x00, 0x5e, a[1] & 0x7f, a[2], a[3]}, nil
	default:
		a := group.As16() // 33:33 and the lower 32 bits, RFC 2464 section 7
		return MAC{0x33, 0x33, a[12], a[13], a[14], a[15]}, nil
	}
}

// Prefix is the first four octets of the MAC addresses of a fabric.
type Prefix [macNodeOff]byte

// DefaultPrefix returns 2e:87:04:07, figure 5.13.
func DefaultPrefix() Prefix { return Prefix{0x2e, 0x87, 0x04, 0x07} }

// ParsePrefix parses four octets in hexadecimal, separated by colons or
// hyphens, and validates them.
func ParsePrefix(s string) (Prefix, error) {
	var p Prefix
	octets := strings.Split(strings.ReplaceAll(s, "-", ":"), ":")
	if len(octets) != len(p) {
		return Prefix{}, fmt.Errorf("arp: %q: use four octets such as %v", s, DefaultPrefix())
	}
	for i, o := range octets {
		b, err := hex.DecodeString(o)
		if err != nil || len(b) != 1 {
			return Prefix{}, fmt.Errorf("arp: octet %q of %q; use two hexadecimal digits", o, s)
		}
		p[i] = b[0]
	}
	if err := p.Validate(); err != nil {
		return Prefix{}, err
	}
	return p, nil
}

// Validate reports why p cannot begin the MAC address of a node: it must be a
// unicast address and, as no manufacturer gave it, a locally administered one.
func (p Prefix) Validate() error {
	if p[0]&groupBit != 0 {
		return fmt.Errorf("arp: %v is a multicast address; use an even first octet", p)
	}
	if p[0]&localBit == 0 {
		return fmt.Errorf("arp: %v is not locally administered; use x2, x6, xA or xE as first octet", p)
	}
	return nil
}

// Set is ParsePrefix, so that a *Prefix is a flag.Value. It leaves p unchanged
// on error.
func (p *Prefix) Set(s string) error {
	v, err := ParsePrefix(s)
	if err == nil {
		*p = v
	}
	return err
}

// String returns p as 2e:87:04:07.
func (p Prefix) String() string { return hexOctets(p[:]) }

// MAC returns the MAC address of node.
func (p Prefix) MAC(node fabric.NodeID) MAC {
	var m MAC
	copy(m[macPrefixOff:], p[:])
	binary.BigEndian.PutUint16(m[macNodeOff:], uint16(node))
	return m
}

// Node returns the node that has the MAC address m, or ErrForeign.
func (p Prefix) Node(m MAC) (fabric.NodeID, error) {
	if Prefix(m[macPrefixOff:macNodeOff]) != p {
		return 0, fmt.Errorf("arp: %w: %v does not begin with %v", ErrForeign, m, p)
	}
	return fabric.NodeID(binary.BigEndian.Uint16(m[macNodeOff:])), nil
}

func hexOctets(b []byte) string {
	const digits = "0123456789abcdef"
	s := make([]byte, 0, 3*macLen)
	for i, v := range b {
		if i > 0 {
			s = append(s, ':')
		}
		s = append(s, digits[v>>4], digits[v&15])
	}
	return string(s)
}
