package ipstack

import (
	"encoding/binary"
	"fmt"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/foreign"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// ReceiveFrame handles a frame from node src. It borrows frame until return and does
// not write to it. Its decisions depend only on the frame's Head. A frame that is
// malformed or for another node is counted and dropped without an error; an error
// comes from the host.
func (s *Stack) ReceiveFrame(src fabric.NodeID, off exteth.Offload, frame foreign.Frame) error {
	if s.closed.Load() {
		s.count.inc(RxDropClosed)
		return nil
	}
	eth := frame.Head()
	if len(eth) < ethHdrLen {
		s.count.inc(RxDropShort)
		return nil
	}
	dst := arp.MAC(eth[ethDstOff:])
	if dst != s.mac && !dst.IsMulticast() {
		s.count.inc(RxDropOtherHost)
		return nil
	}
	if arp.MAC(eth[ethSrcOff:]) != s.prefix.MAC(src) {
		s.count.inc(RxDropSpoofed)
		return nil
	}
	etherType := binary.BigEndian.Uint16(eth[ethTypeOff:])
	switch etherType {
	case etherTypeIPv4, etherTypeIPv6:
		return s.receivePacket(etherType, dst, off, frame)
	case etherTypeARP:
		s.toNetstack(etherType, dst, exteth.Offload{}, viewOf(frame.Part(ethHdrLen, frame.Len()-ethHdrLen)))
	default:
		s.count.inc(RxDropEtherType)
	}
	return nil
}

// receivePacket handles the IP packet of a frame to dst.
func (s *Stack) receivePacket(etherType uint16, dst arp.MAC, off exteth.Offload, frame foreign.Frame) error {
	head := frame.Head()[ethHdrLen:]
	hdr, total, ok := ipLen(head, frame.Len()-ethHdrLen)
	if !ok || isIPv4(head) != (etherType == etherTypeIPv4) {
		s.count.inc(RxDropMalformed)
		return nil
	}
	p := frame.Part(ethHdrLen, total)
	head = p.Head()
	if off != (exteth.Offload{}) {
		if off.GSOType != exteth.GSONone && int(off.CsumStart)+header.TCPHeaderMaximumSize > len(head) {
			p = p.Private() // the transport header follows options or extension headers
			head = p.Head()
		}
		if !checkOffload(off, head, total) {
			s.count.inc(RxDropOffload)
			return nil
		}
	}
	if dst.IsMulticast() && !s.isForAll(head) {
		s.count.inc(RxDropOtherHost)
		return nil
	}
	switch {
	case s.host == nil:
		s.toTransport(etherType, dst, off, p, hdr)
	case s.fast && hostOnly(head):
		s.count.inc(FastRx)
		return s.writeHost(off, p)
	default:
		s.toNetstack(etherType, dst, off, viewOf(p))
	}
	return nil
}

// isForAll reports whether a packet that begins with p may arrive in a broadcast or multicast
// frame: its destination must be a group, a broadcast address or this node. A host that forwards
// would otherwise forward it, as would all others (RFC 1122 3.3.6), because a TUN device does not
// show it the frame's destination.
func (s *Stack) isForAll(p []byte) bool {
	dst := dstAddr(p)
	if _, ok := multicastMAC(dst); ok {
		return true
	}
	proto := header.IPv6ProtocolNumber
	if isIPv4(p) {
		proto = header.IPv4ProtocolNumber
	}
	return s.nic.CheckLocalAddress(proto, tcpip.AddrFromSlice(dst))
}

// hostOnly reports whether a packet that begins with p is for the host alone, judging by
// its first header: it is no group membership message, no NDP, and has no IPv6 extension
// header that could precede either. (NDP in a fragment is invalid: RFC 6980.)
func hostOnly(p []byte) bool {
	if isIPv4(p) {
		return p[v4ProtoOff] != protoIGMP
	}
	switch p[v6NextOff] {
	case extHopByHop, extRouting, extDestOpts:
		return false
	case protoICMPv6:
		return len(p) > v6HdrLen && !isNDP(header.ICMPv6Type(p[v6HdrLen])) && !isMLD(header.ICMPv6Type(p[v6HdrLen]))
	}
	return true
}

// toTransport gives a packet to netstack's own transport protocols.
func (s *Stack) toTransport(etherType uint16, dst arp.MAC, off exteth.Offload, p foreign.Frame, hdr int) {
	if off.GSOType == exteth.GSOUDPL4 {
		// netstack would take it for one datagram.
		s.count.inc(RxDropOffload)
		return
	}
	v := viewOf(p) // copy first: netstack must get the bytes that were verified
	const vouched = exteth.OffloadNeedsChecksum | exteth.OffloadDataValid
	if off.Flags&vouched == 0 && !checksumOK(v.AsSlice(), hdr) {
		v.Release()
		s.count.inc(RxDropChecksum)
		return
	}
	s.toNetstack(etherType, dst, off, v)
}

// viewOf returns a copy of p, nil if it is empty.
func viewOf(p foreign.Frame) *buffer.View {
	if p.Len() == 0 {
		return nil
	}
	v := buffer.NewViewSize(p.Len())
	p.CopyTo(v.AsSlice())
	return v
}

// toNetstack gives netstack what follows the Ethernet header of a frame. It takes v.
func (s *Stack) toNetstack(etherType uint16, dst arp.MAC, off exteth.Offload, v *buffer.View) {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(v)})
	defer pkt.DecRef()
	pkt.PktType = packetType(dst)
	if s.host != nil {
		attachOffload(pkt, off)
	}
	s.count.inc(NetstackRx)
	if !s.endpoint.deliverPacket(tcpip.NetworkProtocolNumber(etherType), pkt) {
		s.count.inc(RxDropClosed)
	}
}

// packetType classifies a frame by its destination. netstack accepts an ARP reply as
// an answer only if it was sent to this node alone.
func packetType(dst arp.MAC) tcpip.PacketType {
	switch {
	case !dst.IsMulticast():
		return tcpip.PacketHost
	case dst.IsBroadcast():
		return tcpip.PacketBroadcast
	}
	return tcpip.PacketMulticast
}

// toHost hands a packet that went through netstack to the host.
func (s *Stack) toHost(pkt *stack.PacketBuffer) {
	var off exteth.Offload
	if m, ok := pkt.Owner.(*metadata); ok {
		off = m.Offload
	}
	s.count.inc(SlowRx)
	p, ok := wholeOf(pkt)
	if !ok {
		v := pkt.ToView() // copies
		defer v.Release()
		p = v.AsSlice()
	}
	// Only the counter reports an error: netstack is between this and the link.
	_ = s.writeHost(off, foreign.Private(p))
}

// wholeOf returns the bytes of pkt if they are contiguous, as those of a packet are that
// arrived in one frame. They belong to pkt.
func wholeOf(pkt *stack.PacketBuffer) (p []byte, ok bool) {
	views, skip := pkt.AsViewList()
	for v := views.Front(); v != nil; v = v.Next() {
		b := v.AsSlice()
		if skip >= len(b) {
			skip -= len(b)
			continue
		}
		if p != nil {
			return nil, false
		}
		p, skip = b[skip:], 0
	}
	return p, p != nil
}

func (s *Stack) writeHost(off exteth.Offload, p foreign.Frame) error {
	if err := s.host.WritePacket(off, p); err != nil {
		s.count.inc(RxDropHost)
		return fmt.Errorf("ipstack: packet of %d bytes to the host: %w", p.Len(), err)
	}
	return nil
}
