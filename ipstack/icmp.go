package ipstack

import (
	"encoding/binary"

	"exnet/exteth"
	"exnet/foreign"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// icmpReason is why a packet of the host could not be sent.
type icmpReason uint8

const (
	reasonNoRoute icmpReason = iota + 1
	reasonUnreachable
	reasonTooBig
)

// maxICMPError is the largest ICMP error: RFC 1812 4.3.2.3 for IPv4, RFC 4443
// 2.4 (c) for IPv6.
const (
	maxICMPv4Error = header.IPv4MinimumProcessableDatagramSize // 576
	maxICMPv6Error = header.IPv6MinimumMTU                     // 1280
)

// icmpErrorHdr is the length of an ICMP error before the packet it quotes, the
// same in both families: type 1 + code 1 + checksum 2 + MTU or unused 4.
const icmpErrorHdr = 1 + 1 + 2 + 4

// icmpTTL is the hop limit of an ICMP error.
const icmpTTL = 64

// sendICMPError tells the host that its packet p, which ipLen accepted, was not
// sent. It borrows p.
func (s *Stack) sendICMPError(p []byte, reason icmpReason) {
	if s.closed.Load() || !mayAnswer(p) {
		return
	}
	build := icmpv6Error
	if isIPv4(p) {
		build = icmpv4Error
	}
	msg := build(p, reason, s.mtu)
	if err := s.host.WritePacket(exteth.Offload{}, foreign.Private(msg)); err != nil {
		s.count.inc(RxDropHost)
		return
	}
	s.count.inc(ICMPErrors)
}

// mayAnswer reports whether p may be answered by an ICMP error: not if it is
// itself one, comes from or goes to no single host, or is not the first
// fragment (RFC 1122 3.2.2, RFC 4443 2.4 (e)).
func mayAnswer(p []byte) bool {
	if isIPv4(p) {
		h := header.IPv4(p)
		src, dst := h.SourceAddress(), h.DestinationAddress()
		if src == header.IPv4Any || src == header.IPv4Broadcast || header.IsV4MulticastAddress(src) ||
			dst == header.IPv4Broadcast || header.IsV4MulticastAddress(dst) || h.FragmentOffset() != 0 {
			return false
		}
		if h.Protocol() != protoICMPv4 {
			return true
		}
		body := p[h.HeaderLength():]
		if len(body) == 0 {
			return false
		}
		switch header.ICMPv4(body).Type() {
		case header.ICMPv4Echo, header.ICMPv4EchoReply, header.ICMPv4Timestamp, header.ICMPv4TimestampReply:
			return true
		}
		return false
	}
	h := header.IPv6(p)
	if src := h.SourceAddress(); src == header.IPv6Any || header.IsV6MulticastAddress(src) {
		return false
	}
	if header.IsV6MulticastAddress(h.DestinationAddress()) {
		return false
	}
	if h.NextHeader() != protoICMPv6 {
		return true
	}
	if len(p) == v6HdrLen {
		return false
	}
	t := header.ICMPv6Type(p[v6HdrLen])
	return !t.IsErrorType() && t != header.ICMPv6RedirectMsg
}

// icmpv4Error builds the error about p: from p's destination to p's source.
// The source is not this node's address, because the kernel drops packets that arrive
// from one of its own addresses. The route to p's destination leads over this
// interface, so a reverse path filter lets the error pass.
func icmpv4Error(p []byte, reason icmpReason, mtu int) []byte {
	quote := p[:min(len(p), maxICMPv4Error-v4HdrLen-icmpErrorHdr)]
	msg := make([]byte, v4HdrLen+icmpErrorHdr+len(quote))
	copy(msg[v4HdrLen+icmpErrorHdr:], quote)

	orig := header.IPv4(p)
	ip := header.IPv4(msg)
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(msg)),
		TTL:         icmpTTL,
		Protocol:    protoICMPv4,
		SrcAddr:     orig.DestinationAddress(),
		DstAddr:     orig.SourceAddress(),
	})
	ip.SetChecksum(^ip.CalculateChecksum())

	icmp := header.ICMPv4(msg[v4HdrLen:])
	icmp.SetType(header.ICMPv4DstUnreachable)
	switch reason {
	case reasonNoRoute:
		icmp.SetCode(header.ICMPv4NetUnreachable)
	case reasonUnreachable:
		icmp.SetCode(header.ICMPv4HostUnreachable)
	case reasonTooBig:
		icmp.SetCode(header.ICMPv4FragmentationNeeded)
		icmp.SetMTU(uint16(min(mtu, 0xffff)))
	}
	icmp.SetChecksum(header.ICMPv4Checksum(icmp, 0))
	return msg
}

// icmpv6Error is icmpv4Error for IPv6.
func icmpv6Error(p []byte, reason icmpReason, mtu int) []byte {
	quote := p[:min(len(p), maxICMPv6Error-v6HdrLen-icmpErrorHdr)]
	msg := make([]byte, v6HdrLen+icmpErrorHdr+len(quote))
	copy(msg[v6HdrLen+icmpErrorHdr:], quote)

	orig := header.IPv6(p)
	src, dst := orig.DestinationAddress(), orig.SourceAddress()
	header.IPv6(msg).Encode(&header.IPv6Fields{
		PayloadLength:     uint16(len(msg) - v6HdrLen),
		TransportProtocol: header.ICMPv6ProtocolNumber,
		HopLimit:          icmpTTL,
		SrcAddr:           src,
		DstAddr:           dst,
	})
	icmp := header.ICMPv6(msg[v6HdrLen:])
	switch reason {
	case reasonNoRoute:
		icmp.SetType(header.ICMPv6DstUnreachable)
		icmp.SetCode(header.ICMPv6NetworkUnreachable)
	case reasonUnreachable:
		icmp.SetType(header.ICMPv6DstUnreachable)
		icmp.SetCode(header.ICMPv6AddressUnreachable)
	case reasonTooBig:
		icmp.SetType(header.ICMPv6PacketTooBig)
		binary.BigEndian.PutUint32(icmp[icmpMTUOff:], uint32(mtu))
	}
	icmp.SetChecksum(icmpv6Checksum(icmp, src, dst))
	return msg
}

// icmpMTUOff is where an ICMPv6 packet-too-big message has its MTU (RFC 4443
// 3.2).
const icmpMTUOff = 4

// icmpv6Checksum is the checksum of the complete message icmp.
func icmpv6Checksum(icmp header.ICMPv6, src, dst tcpip.Address) uint16 {
	return header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: icmp, Src: src, Dst: dst})
}
