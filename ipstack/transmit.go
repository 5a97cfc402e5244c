package ipstack

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"runtime"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// fromHostMark marks packets of the host within netstack. One that netstack loops
// back (a subnet broadcast) must not reach the host, whose kernel has looped it back
// already.
const fromHostMark = 1

// maxPendingErrors is how many packets of the host may wait for a route or an ICMP
// error at a time. netstack queues as many for one neighbour.
const maxPendingErrors = 256

// FromHost sends an IP packet of the host. It takes buf, whose packet and offload
// metadata are set. The caller flushes the link when it has no more packets.
func (s *Stack) FromHost(buf *exteth.TxBuffer) {
	if s.closed.Load() || s.host == nil {
		s.count.inc(TxDropClosed)
		s.link.Free(buf)
		return
	}
	p := buf.Packet()
	if s.fast {
		if mac, etherType, ok := s.resolveHop(p, buf.Offload); ok {
			putEthernet(buf.Frame(), mac, s.mac, etherType)
			s.count.inc(FastTx)
			if err := s.link.Post(buf); err != nil {
				_ = s.linkError(err, mac)
			}
			return
		}
	}
	if !s.sendSlow(buf) {
		s.link.Free(buf)
	}
}

// resolveHop returns the MAC address of the packet's next hop, if the packet can take the
// fast path.
func (s *Stack) resolveHop(p []byte, off exteth.Offload) (mac arp.MAC, etherType uint16, ok bool) {
	etherType, dst, ok := parseUsual(p)
	if !ok || !checkOffload(off, p, len(p)) || !fitsMTU(off, p, s.mtu) {
		return mac, 0, false
	}
	if e, ok := s.table.Lookup(dst); ok {
		return e.MAC, etherType, !e.Stale || s.hops.countSent(dst)
	}
	mac, ok = multicastMAC(dst)
	return mac, etherType, ok
}

// Probe makes netstack probe the stale neighbours that packets were sent to. The caller of FromHost
// calls it when it has nothing else to do; no packet waits for it.
func (s *Stack) Probe() {
	for _, addr := range s.hops.takeDue() {
		_ = s.net.GetLinkAddress(NIC, tcpipAddr(addr), tcpip.Address{}, protocolOf(addr),
			func(stack.LinkResolutionResult) {}) // netstack tells hops
	}
}

// parseUsual returns the EtherType and the destination of a packet that can take the fast
// path: it has no options, and no extension header except a fragment's.
func parseUsual(p []byte) (etherType uint16, dst []byte, ok bool) {
	if len(p) < v4HdrLen {
		return 0, nil, false
	}
	if p[0] == v4PlainHeader {
		ok = int(binary.BigEndian.Uint16(p[v4LengthOff:])) == len(p)
		return etherTypeIPv4, p[v4DstOff : v4DstOff+header.IPv4AddressSize], ok
	}
	if p[0]>>4 != header.IPv6Version || len(p) < v6HdrLen ||
		v6HdrLen+int(binary.BigEndian.Uint16(p[v6LengthOff:])) != len(p) {
		return 0, nil, false
	}
	switch p[v6NextOff] {
	case protoTCP, protoUDP, protoICMPv6, extFragment:
		ok = true
	}
	return etherTypeIPv6, p[v6DstOff : v6DstOff+header.IPv6AddressSize], ok
}

// fitsMTU reports whether p, or every segment of it, fits mtu.
func fitsMTU(off exteth.Offload, p []byte, mtu int) bool {
	if off.GSOType == exteth.GSONone {
		return len(p) <= mtu
	}
	n, ok := segmentLen(off, p)
	return ok && n <= mtu
}

// linkError counts a frame to mac that the link refused, forgets the neighbour if its
// node is gone, and returns the error for netstack. A temporary error returns nil,
// because netstack gives up a neighbour at the first error of a probe.
func (s *Stack) linkError(err error, mac arp.MAC) tcpip.Error {
	switch {
	case errors.Is(err, fabric.ErrAgain):
		s.count.inc(TxDropBusy)
		return nil
	case errors.Is(err, fabric.ErrPeerDown), errors.Is(err, fabric.ErrNoRoute):
		s.count.inc(TxDropPeerDown)
		if mac.IsMulticast() {
			return nil // the group has no members, or one is gone
		}
		// Not here: the caller may hold locks of netstack.
		s.net.Clock().AfterFunc(0, func() { s.forgetMAC(mac) })
		return &tcpip.ErrHostUnreachable{}
	case errors.Is(err, fabric.ErrClosed):
		s.count.inc(TxDropLink)
		return &tcpip.ErrClosedForSend{}
	}
	s.count.inc(TxDropLink)
	return nil
}

// sendSlow sends a packet of the host through netstack. It takes buf if it returns
// true.
func (s *Stack) sendSlow(buf *exteth.TxBuffer) (taken bool) {
	p, off := buf.Packet(), buf.Offload
	_, total, ok := ipLen(p, len(p))
	if !ok || total != len(p) {
		s.count.inc(TxDropMalformed)
		return false
	}
	if !checkOffload(off, p, len(p)) {
		s.count.inc(TxDropOffload)
		return false
	}
	if s.members.isReport(p) {
		return false
	}
	mac, group := multicastMAC(dstAddr(p))
	fit := fitsMTU(off, p, s.mtu)
	if !fit && !s.mayFragment(p, off) {
		s.count.inc(TxDropTooBig)
		s.sendICMPError(p, reasonTooBig)
		return false
	}
	s.count.inc(SlowTx)
	if group && fit {
		s.sendGroup(p, off, mac)
		return false
	}
	if _, _, ok := parseUsual(p); !ok || !fit {
		buf = nil
	}
	sent, taken := s.sendRouted(p, off, fit, buf)
	if !sent {
		s.awaitRoute(p, off, fit)
	}
	// netstack asks for a neighbor by a timer that has expired already. Timers belong to a place
	// (P) in the Go scheduler, and the caller may keep this one, in a wait that the scheduler does
	// not know of (node/txloop).
	runtime.Gosched()
	return taken
}

// mayFragment reports whether netstack may cut p into fragments: an IPv4 packet
// without the don't-fragment flag. netstack cannot fragment a fragment (it would lose
// the offset), and only the host can make its segments smaller.
func (s *Stack) mayFragment(p []byte, off exteth.Offload) bool {
	return isIPv4(p) && off.GSOType == exteth.GSONone && !isV4Fragment(p) &&
		header.IPv4(p).Flags()&header.IPv4FlagDontFragment == 0
}

// sendGroup sends a multicast or limited broadcast packet that fits the MTU. It
// bypasses netstack's IP layer, which needs a local address and replaces an
// unspecified source, such as a DHCP or MLD message has.
func (s *Stack) sendGroup(p []byte, off exteth.Offload, mac arp.MAC) {
	pkt := s.packetBuffer(p, off)
	defer pkt.DecRef()
	pkt.NetworkProtocolNumber = header.IPv6ProtocolNumber
	if isIPv4(p) {
		pkt.NetworkProtocolNumber = header.IPv4ProtocolNumber
	}
	if terr := s.nic.WritePacketToRemote(tcpip.LinkAddress(mac[:]), pkt); terr != nil {
		s.count.inc(TxDropNetstack)
	}
}

// sendRouted sends a packet along netstack's routes. If there is no route, it does
// nothing and returns sent false. whole is the buffer that p is in, or nil if p must be
// copied; sendRouted takes it if it returns taken true. It borrows p.
func (s *Stack) sendRouted(p []byte, off exteth.Offload, fit bool, whole *exteth.TxBuffer) (sent, taken bool) {
	generation := s.hops.beginLearn()
	route, terr := s.findRoute(p)
	if terr != nil {
		return false, false
	}
	defer route.Release()

	if !fit {
		// Fragments have no offload metadata.
		var err error
		p = append([]byte(nil), p...)
		if off, err = off.Complete(p); err != nil {
			s.count.inc(TxDropOffload)
			return true, false
		}
	}
	if next, ok := nextHop(route); ok {
		if s.fast {
			s.hops.setHop(generation, dstOf(route), next)
		}
		if whole != nil && s.hops.isResolved(next) {
			if taken, terr := s.sendLent(route, whole); taken || terr != nil {
				s.countError(terr)
				return true, taken
			}
		}
		if !s.hops.isResolved(next) {
			s.watchNeighbor(route, p)
		}
	}
	pkt := s.packetBuffer(p, off)
	defer pkt.DecRef()
	s.countError(route.WriteHeaderIncludedPacket(pkt))
	return true, false
}

// countError counts a packet that netstack did not send.
func (s *Stack) countError(terr tcpip.Error) {
	switch terr.(type) {
	case nil:
	case *tcpip.ErrHostUnreachable, *tcpip.ErrClosedForSend:
		// The link refused, and linkError counted it.
	default:
		s.count.inc(TxDropNetstack)
	}
}

// findRoute finds the route of a packet of the host.
func (s *Stack) findRoute(p []byte) (*stack.Route, tcpip.Error) {
	var src tcpip.Address
	proto, dst := header.IPv4ProtocolNumber, tcpip.AddrFromSlice(dstAddr(p))
	if isIPv4(p) {
		src = header.IPv4(p).SourceAddress()
	} else {
		proto, src = header.IPv6ProtocolNumber, header.IPv6(p).SourceAddress()
	}
	// Use the packet's source if it is this node's, so that the solicitation has
	// it, too (RFC 4861 7.2.2). A host that forwards sends other sources.
	route, terr := s.net.FindRoute(NIC, src, dst, proto, false)
	if terr != nil {
		route, terr = s.net.FindRoute(NIC, tcpip.Address{}, dst, proto, false)
	}
	return route, terr
}

// packetBuffer copies p into a packet buffer of netstack.
func (s *Stack) packetBuffer(p []byte, off exteth.Offload) *stack.PacketBuffer {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
		ReserveHeaderBytes: int(s.endpoint.MaxHeaderLength()),
		Payload:            buffer.MakeWithData(p),
		Mark:               fromHostMark,
	})
	attachOffload(pkt, off)
	return pkt
}

// dstOf returns the destination of a route.
func dstOf(route *stack.Route) netip.Addr {
	dst, _ := addrOf(route.RemoteAddress())
	return dst
}

// nextHop returns the neighbour that a route leads to. A route whose MAC address
// is fixed (a subnet's broadcast address) leads to none.
func nextHop(route *stack.Route) (netip.Addr, bool) {
	if len(route.RemoteLinkAddress()) != 0 {
		return netip.Addr{}, false
	}
	if gw := route.NextHop(); gw.BitLen() != 0 {
		return addrOf(gw)
	}
	return addrOf(route.RemoteAddress())
}

// watchNeighbor sends an ICMP error to the host if the neighbour that p waits for does not
// answer. netstack would send that error only for a packet that it forwards, and from
// this node's address, which the kernel refuses. watch copies what it needs of p.
func (s *Stack) watchNeighbor(route *stack.Route, p []byte) {
	if s.pending.Add(1) > maxPendingErrors {
		s.pending.Add(-1)
		return
	}
	quote := append([]byte(nil), p[:min(len(p), maxICMPv6Error)]...)
	// The callback runs at once if the neighbour is known (stale). Otherwise
	// ResolvedFields returns ErrWouldBlock, and the callback runs under the lock of
	// the neighbour's entry when the neighbour is known or given up.
	_ = route.ResolvedFields(func(r stack.ResolvedFieldsResult) {
		s.pending.Add(-1)
		switch r.Err.(type) {
		case nil:
		case *tcpip.ErrAborted:
			// The neighbour was removed: forgotten, or the interface goes down.
			s.count.inc(TxDropUnreachable)
		default:
			s.count.inc(TxDropUnreachable)
			s.net.Clock().AfterFunc(0, func() { s.sendICMPError(quote, reasonUnreachable) })
		}
	})
}
