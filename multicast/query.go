package multicast

import (
	"encoding/binary"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// Offsets in an IGMPv3 query (RFC 3376 section 4.1).
const (
	igmpTypeOff     = 0
	igmpRespOff     = 1
	igmpChecksumOff = 2
	igmpFlagsOff    = 8 // uint8: reserved 4, S 1, robustness 3
	igmpIntervalOff = 9
	igmpQueryLen    = 4 + 4 + 1 + 1 + 2 // ..., group 4, flags, interval, number of sources
)

// Offsets in an MLDv2 query, from the ICMPv6 header (RFC 3810 section 5.1).
const (
	mldRespOff     = 4  // uint16
	mldFlagsOff    = 24 // as in IGMP
	mldIntervalOff = 25
	mldQueryLen    = 4 + 2 + 2 + 16 + 1 + 1 + 2 // ICMPv6, delay, reserved, group, flags, interval, sources
)

// Codes for times below these are the times themselves.
const (
	maxPlainCode8  = 127
	maxPlainCode16 = 32767
)

// trafficInternetControl is the type of service of IGMP messages (RFC 3376
// section 4: IP precedence of internetwork control).
const trafficInternetControl = 0xc0

// IGMPQuery returns a general query of IGMPv3, an IPv4 packet. Its source is
// 0.0.0.0, as that of a switch which asks without an address (RFC 4541, section
// 2.1.1), so that it is no address of the host itself.
func IGMPQuery(response, interval time.Duration, robustness int) []byte {
	opts := header.IPv4OptionsSerializer{&header.IPv4SerializableRouterAlertOption{}}
	hdr := header.IPv4MinimumSize + int(opts.Length())
	p := make([]byte, hdr+igmpQueryLen)
	ip := header.IPv4(p)
	ip.Encode(&header.IPv4Fields{
		TOS:         trafficInternetControl,
		TotalLength: uint16(len(p)),
		TTL:         hopLimit,
		Protocol:    uint8(header.IGMPProtocolNumber),
		SrcAddr:     tcpip.AddrFrom4([4]byte{}),
		DstAddr:     header.IPv4AllSystems,
		Options:     opts,
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	msg := p[hdr:]
	msg[igmpTypeOff] = uint8(header.IGMPMembershipQuery)
	msg[igmpRespOff] = code8(response, 100*time.Millisecond)
	msg[igmpFlagsOff] = uint8(robustness & 7)
	msg[igmpIntervalOff] = code8(interval, time.Second)
	binary.BigEndian.PutUint16(msg[igmpChecksumOff:], ^checksum.Checksum(msg, 0))
	return p
}

// MLDQuery returns a general query of MLDv2, an IPv6 packet from src, which must
// be a link-local address (RFC 3810 section 5.1.14).
func MLDQuery(src netip.Addr, response, interval time.Duration, robustness int) []byte {
	opts := header.IPv6ExtHdrSerializer{header.IPv6SerializableHopByHopExtHdr{
		&header.IPv6RouterAlertOption{Value: header.IPv6RouterAlertMLD},
	}}
	from := tcpip.AddrFrom16(src.As16())
	hdr := header.IPv6MinimumSize + opts.Length()
	p := make([]byte, hdr+mldQueryLen)
	header.IPv6(p).Encode(&header.IPv6Fields{
		PayloadLength:     uint16(len(p) - header.IPv6MinimumSize),
		TransportProtocol: header.ICMPv6ProtocolNumber,
		HopLimit:          hopLimit,
		SrcAddr:           from,
		DstAddr:           header.IPv6AllNodesMulticastAddress,
		ExtensionHeaders:  opts,
	})
	msg := header.ICMPv6(p[hdr:])
	msg.SetType(header.ICMPv6MulticastListenerQuery)
	binary.BigEndian.PutUint16(msg[mldRespOff:], uint16(min(response/time.Millisecond, maxPlainCode16)))
	msg[mldFlagsOff] = uint8(robustness & 7)
	msg[mldIntervalOff] = code8(interval, time.Second)
	msg.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{
		Header: msg, Src: from, Dst: header.IPv6AllNodesMulticastAddress,
	}))
	return p
}

// code8 returns the code of a time in units; longer times than the plain codes
// have are cut to the longest of those.
func code8(d, unit time.Duration) uint8 { return uint8(max(1, min(d/unit, maxPlainCode8))) }
