package ipstack

import (
	"exnet/exteth"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// gsoMaxSize is the size that netstack may let a TCP segment grow to. netstack
// keeps the packet below it, and an IP packet ends at 65535 bytes.
const gsoMaxSize = 1 << 16

// metadata carries the offload metadata of a packet through netstack, in
// PacketBuffer.Owner: that field survives Clone (the queue of an unresolved
// neighbour clones), reaches the hooks and the link endpoint, and is otherwise
// read only by owner matchers of packet filters. A fragment that netstack makes of the
// packet has none, as it should be.
type metadata struct {
	exteth.Offload
}

// KUID implements tcpip.PacketOwner.
func (*metadata) KUID() uint32 { return 0 }

// KGID implements tcpip.PacketOwner.
func (*metadata) KGID() uint32 { return 0 }

// attachOffload makes pkt carry off. The GSO type is set because netstack does
// not fragment a packet that has one.
func attachOffload(pkt *stack.PacketBuffer, off exteth.Offload) {
	if off == (exteth.Offload{}) {
		return
	}
	pkt.Owner = &metadata{off}
	switch off.GSOType &^ exteth.GSOECN {
	case exteth.GSONone:
	case exteth.GSOTCPv6:
		pkt.GSOOptions.Type = stack.GSOTCPv6
	default:
		pkt.GSOOptions.Type = stack.GSOTCPv4
	}
}

// offloadOf returns the offload metadata of a packet that leaves netstack: what
// attachOffload put there, or what netstack's TCP left undone.
func offloadOf(pkt *stack.PacketBuffer) exteth.Offload {
	if m, ok := pkt.Owner.(*metadata); ok {
		return m.Offload
	}
	gso := pkt.GSOOptions
	if gso.Type == stack.GSONone || !gso.NeedsCsum {
		return exteth.Offload{}
	}
	start := len(pkt.NetworkHeader().Slice())
	off := exteth.Offload{
		Flags:      exteth.OffloadNeedsChecksum,
		CsumStart:  uint16(start),
		CsumOffset: gso.CsumOffset,
	}
	// netstack marks every data segment, also one that needs no segmentation.
	if pkt.Data().Size() > int(gso.MSS) {
		off.GSOType = exteth.GSOTCPv4
		if gso.Type == stack.GSOTCPv6 {
			off.GSOType = exteth.GSOTCPv6
		}
		off.GSOSize = gso.MSS
		off.HdrLen = uint16(start + len(pkt.TransportHeader().Slice()))
	}
	return off
}

// checkOffload reports whether off fits a packet of n bytes that begins with p:
// beyond Offload.Check, that a segmentation type names p's IP version and that the
// transport header that segments repeat lies within p.
func checkOffload(off exteth.Offload, p []byte, n int) bool {
	if off == (exteth.Offload{}) {
		return true
	}
	if off.Check(n) != nil {
		return false
	}
	switch off.GSOType &^ exteth.GSOECN {
	case exteth.GSONone:
		return true
	case exteth.GSOTCPv4:
		if !isIPv4(p) {
			return false
		}
	case exteth.GSOTCPv6:
		if isIPv4(p) {
			return false
		}
	}
	_, ok := segmentLen(off, p)
	return ok
}

// segmentLen returns the length of the segments, as IP packets, of a packet that begins with p, or
// false if its headers are not within p. off passed Offload.Check and has a segmentation type; the
// checksum of such a packet starts at its transport header.
func segmentLen(off exteth.Offload, p []byte) (int, bool) {
	start := int(off.CsumStart)
	hdr := header.UDPMinimumSize
	if off.GSOType != exteth.GSOUDPL4 {
		if start+header.TCPMinimumSize > len(p) {
			return 0, false
		}
		hdr = int(header.TCP(p[start:]).DataOffset())
		if hdr < header.TCPMinimumSize {
			return 0, false
		}
	}
	if start < v4HdrLen || start+hdr > len(p) {
		return 0, false
	}
	return start + hdr + int(off.GSOSize), true
}

// checksumOK verifies the TCP or UDP checksum of a packet that no offload
// metadata vouches for. Packets of other protocols and fragments pass: netstack
// verifies ICMP itself and a reassembled packet cannot be checked here.
func checksumOK(p []byte, hdr int) bool {
	if isFragment(p) {
		return true
	}
	proto := p[v4ProtoOff]
	if !isIPv4(p) {
		proto = p[v6NextOff]
	}
	body := p[hdr:]
	switch proto {
	case protoTCP:
	case protoUDP:
		// RFC 768: all zero says that the sender computed none. RFC 8200 8.1
		// forbids that over IPv6.
		if isIPv4(p) && len(body) >= header.UDPMinimumSize && header.UDP(body).Checksum() == 0 {
			return true
		}
	default:
		return true
	}
	var sum uint16
	if isIPv4(p) {
		sum = checksum.Checksum(p[v4SrcOff:v4SrcOff+2*header.IPv4AddressSize], 0)
	} else {
		sum = checksum.Checksum(p[v6SrcOff:v6SrcOff+2*header.IPv6AddressSize], 0)
	}
	sum = checksum.Combine(sum, uint16(proto))
	sum = checksum.Combine(sum, uint16(len(body)))
	return checksum.Checksum(body, sum) == 0xffff
}
