package ipstack

import (
	"net/netip"

	"exnet/arp"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// ipSpec describes a test packet.
type ipSpec struct {
	src, dst string
	proto    uint8
	ttl      uint8 // 0: 64
	df       bool
	id       uint16
	more     bool
	offset   uint16
	options  []byte // IPv4 options or IPv6 extension headers; first is their type
	extType  uint8  // IPv6: type of the first extension header
	body     []byte
}

func addr(s string) tcpip.Address { return tcpipAddr(netip.MustParseAddr(s)) }

// packet builds the IP packet.
func (s ipSpec) packet() []byte {
	ttl := s.ttl
	if ttl == 0 {
		ttl = 64
	}
	src, dst := addr(s.src), addr(s.dst)
	if src.Len() == header.IPv6AddressSize {
		p := make([]byte, v6HdrLen, v6HdrLen+len(s.options)+len(s.body))
		next := s.proto
		if s.options != nil {
			next = s.extType
		}
		header.IPv6(p).Encode(&header.IPv6Fields{
			PayloadLength:     uint16(len(s.options) + len(s.body)),
			TransportProtocol: tcpip.TransportProtocolNumber(next),
			HopLimit:          ttl,
			SrcAddr:           src,
			DstAddr:           dst,
		})
		return append(append(p, s.options...), s.body...)
	}
	hdr := v4HdrLen + len(s.options)
	p := make([]byte, hdr, hdr+len(s.body))
	var flags uint8
	if s.df {
		flags |= header.IPv4FlagDontFragment
	}
	if s.more {
		flags |= header.IPv4FlagMoreFragments
	}
	id := s.id
	if id == 0 {
		id = 1
	}
	ip := header.IPv4(p)
	ip.Encode(&header.IPv4Fields{
		TotalLength:    uint16(hdr + len(s.body)),
		ID:             id,
		Flags:          flags,
		FragmentOffset: s.offset,
		TTL:            ttl,
		Protocol:       s.proto,
		SrcAddr:        src,
		DstAddr:        dst,
	})
	copy(p[v4HdrLen:], s.options)
	p[0] = 4<<4 | uint8(hdr/4)
	ip.SetChecksum(0)
	ip.SetChecksum(^ip.CalculateChecksum())
	return append(p, s.body...)
}

// pseudo is the checksum of the pseudo header.
func (s ipSpec) pseudo(n int) uint16 {
	return header.PseudoHeaderChecksum(tcpip.TransportProtocolNumber(s.proto), addr(s.src), addr(s.dst), uint16(n))
}

// udpPacket builds a UDP packet with a complete checksum.
func udpPacket(s ipSpec, payload []byte) []byte {
	s.proto = protoUDP
	s.body = make([]byte, header.UDPMinimumSize+len(payload))
	u := header.UDP(s.body)
	u.Encode(&header.UDPFields{SrcPort: 1000, DstPort: 2000, Length: uint16(len(s.body))})
	copy(u.Payload(), payload)
	u.SetChecksum(^checksum.Checksum(s.body, s.pseudo(len(s.body))))
	return s.packet()
}

// tcpPacket builds a TCP segment whose checksum field holds the pseudo header's
// sum only, as a kernel leaves it for offload.
func tcpPacket(s ipSpec, payload []byte) []byte {
	s.proto = protoTCP
	s.df = true
	s.body = make([]byte, header.TCPMinimumSize+len(payload))
	tcp := header.TCP(s.body)
	tcp.Encode(&header.TCPFields{
		SrcPort: 1000, DstPort: 2000, SeqNum: 7, AckNum: 9,
		DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagAck, WindowSize: 1024,
	})
	copy(s.body[header.TCPMinimumSize:], payload)
	tcp.SetChecksum(s.pseudo(len(s.body)))
	return s.packet()
}

// echoPacket builds a ping.
func echoPacket(s ipSpec, payload []byte) []byte {
	s.body = make([]byte, 8+len(payload))
	copy(s.body[8:], payload)
	if addr(s.src).Len() == header.IPv6AddressSize {
		s.proto = protoICMPv6
		icmp := header.ICMPv6(s.body)
		icmp.SetType(header.ICMPv6EchoRequest)
		icmp.SetChecksum(icmpv6Checksum(icmp, addr(s.src), addr(s.dst)))
		return s.packet()
	}
	s.proto = protoICMPv4
	icmp := header.ICMPv4(s.body)
	icmp.SetType(header.ICMPv4Echo)
	icmp.SetChecksum(header.ICMPv4Checksum(icmp, 0))
	return s.packet()
}

// pattern is n bytes that differ by position.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

func mustPrefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func tcpipLink(mac arp.MAC) tcpip.LinkAddress { return tcpip.LinkAddress(mac[:]) }
