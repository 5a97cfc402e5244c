package ipstack

import (
	"encoding/binary"
	"net/netip"

	"exnet/arp"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// Ethernet header: destination, source, type.
const (
	ethDstOff  = 0
	ethSrcOff  = 6
	ethTypeOff = 12
	ethHdrLen  = header.EthernetMinimumSize // = 6 + 6 + 2
)

const (
	etherTypeIPv4 = uint16(header.IPv4ProtocolNumber)
	etherTypeARP  = uint16(header.ARPProtocolNumber)
	etherTypeIPv6 = uint16(header.IPv6ProtocolNumber)
)

// Offsets in the IPv4 header (RFC 791 3.1).
const (
	v4LengthOff = 2
	v4FragOff   = 6
	v4ProtoOff  = 9
	v4SrcOff    = 12
	v4DstOff    = 16
	v4HdrLen    = header.IPv4MinimumSize

	v4PlainHeader = 0x45 // version 4, no options
)

// Offsets in the IPv6 header (RFC 8200 3).
const (
	v6LengthOff = 4
	v6NextOff   = 6
	v6SrcOff    = 8
	v6DstOff    = 24
	v6HdrLen    = header.IPv6MinimumSize
)

const (
	protoTCP    = uint8(header.TCPProtocolNumber)
	protoUDP    = uint8(header.UDPProtocolNumber)
	protoIGMP   = uint8(header.IGMPProtocolNumber)
	protoICMPv4 = uint8(header.ICMPv4ProtocolNumber)
	protoICMPv6 = uint8(header.ICMPv6ProtocolNumber)

	extHopByHop = uint8(header.IPv6HopByHopOptionsExtHdrIdentifier)
	extRouting  = uint8(header.IPv6RoutingExtHdrIdentifier)
	extFragment = uint8(header.IPv6FragmentExtHdrIdentifier)
	extDestOpts = uint8(header.IPv6DestinationOptionsExtHdrIdentifier)
)

// ipLen returns the length of the IP header (without IPv6 extension headers)
// and of the whole IP packet at the start of n bytes that begin with b, and may end
// in padding. ok is false if the n bytes do not hold a packet of the length it states.
func ipLen(b []byte, n int) (hdr, total int, ok bool) {
	if len(b) < v4HdrLen {
		return 0, 0, false
	}
	switch b[0] >> 4 {
	case header.IPv4Version:
		hdr = int(b[0]&0x0f) * 4
		total = int(binary.BigEndian.Uint16(b[v4LengthOff:]))
		return hdr, total, hdr >= v4HdrLen && total >= hdr && total <= n
	case header.IPv6Version:
		if len(b) < v6HdrLen {
			return 0, 0, false
		}
		total = v6HdrLen + int(binary.BigEndian.Uint16(b[v6LengthOff:]))
		return v6HdrLen, total, total <= n
	}
	return 0, 0, false
}

// isIPv4 reports the version of a packet that ipLen accepted and that begins with p.
func isIPv4(p []byte) bool { return p[0]>>4 == header.IPv4Version }

// dstAddr returns the destination address of a packet that ipLen accepted and that
// begins with p.
func dstAddr(p []byte) []byte {
	if isIPv4(p) {
		return p[v4DstOff : v4DstOff+header.IPv4AddressSize]
	}
	return p[v6DstOff : v6DstOff+header.IPv6AddressSize]
}

// isV4Fragment reports whether the IPv4 packet p is part of a larger one.
func isV4Fragment(p []byte) bool {
	const moreOrOffset = 0x3fff // all but the reserved bit and DF
	return binary.BigEndian.Uint16(p[v4FragOff:])&moreOrOffset != 0
}

// isFragment reports whether p is a fragment, as far as the fixed header and
// the first extension header tell.
func isFragment(p []byte) bool {
	if isIPv4(p) {
		return isV4Fragment(p)
	}
	return p[v6NextOff] == extFragment
}

// isNDP reports whether t is the type of a neighbour discovery message
// (RFC 4861 4: router and neighbour solicitation and advertisement, redirect).
func isNDP(t header.ICMPv6Type) bool {
	return t >= header.ICMPv6RouterSolicit && t <= header.ICMPv6RedirectMsg
}

// isMLD reports whether t is the type of a multicast listener message
// (RFC 2710 3, RFC 3810 5.2).
func isMLD(t header.ICMPv6Type) bool {
	switch t {
	case header.ICMPv6MulticastListenerQuery, header.ICMPv6MulticastListenerReport,
		header.ICMPv6MulticastListenerDone, header.ICMPv6MulticastListenerV2Report:
		return true
	}
	return false
}

// multicastMAC returns the MAC address that the IP destination maps to if it is a multicast group
// or the limited broadcast address. A subnet's broadcast address needs the route to be known.
func multicastMAC(dst []byte) (mac arp.MAC, ok bool) {
	addr, _ := netip.AddrFromSlice(dst)
	if addr == netip.AddrFrom4([4]byte{0xff, 0xff, 0xff, 0xff}) {
		return arp.Broadcast(), true
	}
	if !addr.IsMulticast() {
		return mac, false
	}
	mac, err := arp.Multicast(addr)
	return mac, err == nil
}

// putEthernet writes an Ethernet header to the start of frame.
func putEthernet(frame []byte, dst, src arp.MAC, etherType uint16) {
	_ = frame[ethHdrLen-1]
	copy(frame[ethDstOff:], dst[:])
	copy(frame[ethSrcOff:], src[:])
	binary.BigEndian.PutUint16(frame[ethTypeOff:], etherType)
}
