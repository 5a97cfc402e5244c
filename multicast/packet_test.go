package multicast

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// igmp wraps an IGMP message, whose checksum it sets, in an IPv4 packet.
func igmp(msg []byte, ttl uint8) []byte {
	const hdr = header.IPv4MinimumSize + 4
	p := make([]byte, hdr, hdr+len(msg))
	header.IPv4(p).Encode(&header.IPv4Fields{
		TotalLength: uint16(hdr + len(msg)), TTL: ttl, Protocol: 2,
		SrcAddr: tcpip.AddrFrom4([4]byte{10, 2, 0, 1}), DstAddr: tcpip.AddrFrom4([4]byte{224, 0, 0, 22}),
		Options: header.IPv4OptionsSerializer{&header.IPv4SerializableRouterAlertOption{}},
	})
	header.IPv4(p).SetChecksum(^header.IPv4(p).CalculateChecksum())
	if len(msg) >= 4 {
		binary.BigEndian.PutUint16(msg[2:], 0)
		binary.BigEndian.PutUint16(msg[2:], ^checksum.Checksum(msg, 0))
	}
	return append(p, msg...)
}

// mld wraps an MLD message, whose checksum it sets, in an IPv6 packet.
func mld(msg []byte, hops uint8) []byte {
	const hdr = header.IPv6MinimumSize + 8
	src, dst := netip.MustParseAddr("fe80::1").As16(), netip.MustParseAddr("ff02::16").As16()
	p := make([]byte, hdr, hdr+len(msg))
	header.IPv6(p).Encode(&header.IPv6Fields{
		PayloadLength: uint16(8 + len(msg)), TransportProtocol: 58, HopLimit: hops,
		SrcAddr: tcpip.AddrFrom16(src), DstAddr: tcpip.AddrFrom16(dst),
		ExtensionHeaders: header.IPv6ExtHdrSerializer{header.IPv6SerializableHopByHopExtHdr{
			&header.IPv6RouterAlertOption{Value: header.IPv6RouterAlertMLD},
		}},
	})
	if len(msg) >= 4 {
		binary.BigEndian.PutUint16(msg[2:], 0)
		sum := header.PseudoHeaderChecksum(58, tcpip.AddrFrom16(src), tcpip.AddrFrom16(dst), uint16(len(msg)))
		binary.BigEndian.PutUint16(msg[2:], ^checksum.Checksum(msg, sum))
	}
	return append(p, msg...)
}

// report is a packet with records, of the newest version for their family.
func report(records ...Record) []byte {
	v4 := records[0].Group.Is4()
	msg := []byte{0x22, 0, 0, 0, 0, 0, 0, byte(len(records))}
	if !v4 {
		msg[0] = 143
	}
	for _, r := range records {
		msg = append(msg, byte(r.Kind), 0, 0, byte(len(r.Sources)))
		msg = append(msg, r.Group.AsSlice()...)
		for _, s := range r.Sources {
			msg = append(msg, s.AsSlice()...)
		}
	}
	if v4 {
		return igmp(msg, 1)
	}
	return mld(msg, 1)
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
