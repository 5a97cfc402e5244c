package ipstack

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// announceAddr announces an address on the link, because netstack does not. Peers that
// knew it with another MAC address (the node came back with another ID) learn of the
// change at once.
func (s *Stack) announceAddr(addr netip.Addr) {
	var pkt *stack.PacketBuffer
	dst := header.EthernetBroadcastAddress
	if addr.Is4() {
		pkt = s.arpAnnouncement(tcpipAddr(addr))
	} else {
		pkt = s.ndpAnnouncement(tcpipAddr(addr))
		dst = header.EthernetAddressFromMulticastIPv6Address(header.IPv6AllNodesMulticastAddress)
	}
	defer pkt.DecRef()
	s.count.inc(Announcements)
	// The link counts a refusal. Peers also learn by probing.
	_ = s.nic.WritePacketToRemote(dst, pkt)
}

// arpAnnouncement is a gratuitous ARP reply (RFC 5227 3). It is a reply and not
// a request because netstack looks at a request for its own addresses only.
func (s *Stack) arpAnnouncement(addr tcpip.Address) *stack.PacketBuffer {
	msg := header.ARP(make([]byte, header.ARPSize))
	msg.SetIPv4OverEthernet()
	msg.SetOp(header.ARPReply)
	copy(msg.HardwareAddressSender(), s.mac[:])
	copy(msg.ProtocolAddressSender(), addr.AsSlice())
	copy(msg.HardwareAddressTarget(), header.EthernetBroadcastAddress)
	copy(msg.ProtocolAddressTarget(), addr.AsSlice())
	return s.linkPacket(header.ARPProtocolNumber, msg)
}

// ndpAnnouncement is an unsolicited neighbour advertisement (RFC 4861 7.2.6).
func (s *Stack) ndpAnnouncement(addr tcpip.Address) *stack.PacketBuffer {
	opts := header.NDPOptionsSerializer{header.NDPTargetLinkLayerAddressOption(s.mac[:])}
	size := header.ICMPv6NeighborAdvertMinimumSize + opts.Length()
	msg := make([]byte, v6HdrLen+size)
	icmp := header.ICMPv6(msg[v6HdrLen:])
	icmp.SetType(header.ICMPv6NeighborAdvert)
	na := header.NDPNeighborAdvert(icmp.MessageBody())
	na.SetTargetAddress(addr)
	na.SetOverrideFlag(true)
	na.Options().Serialize(opts)
	icmp.SetChecksum(icmpv6Checksum(icmp, addr, header.IPv6AllNodesMulticastAddress))
	header.IPv6(msg).Encode(&header.IPv6Fields{
		PayloadLength:     uint16(size),
		TransportProtocol: header.ICMPv6ProtocolNumber,
		HopLimit:          header.NDPHopLimit,
		SrcAddr:           addr,
		DstAddr:           header.IPv6AllNodesMulticastAddress,
	})
	return s.linkPacket(header.IPv6ProtocolNumber, msg)
}

// linkPacket makes a packet for nic.WritePacketToRemote. It copies msg.
func (s *Stack) linkPacket(proto tcpip.NetworkProtocolNumber, msg []byte) *stack.PacketBuffer {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
		ReserveHeaderBytes: int(s.endpoint.MaxHeaderLength()),
		Payload:            buffer.MakeWithData(msg),
	})
	pkt.NetworkProtocolNumber = proto
	return pkt
}
