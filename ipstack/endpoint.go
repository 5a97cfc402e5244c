package ipstack

import (
	"sync"

	"exnet/arp"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// endpoint is the interface as netstack sees it: an Ethernet device that can
// segment TCP itself (it leaves that to the far side) and never sees a wrong
// checksum (Stack.ReceiveFrame verifies what nobody vouches for).
//
// It does not announce checksum offload for transmission. TCP leaves its checksum
// out with segmentation offload anyway, and a UDP packet that netstack fragments
// needs its checksum.
type endpoint struct {
	s   *Stack
	mac tcpip.LinkAddress

	mu sync.RWMutex
	// +checklocks:mu
	dispatcher stack.NetworkDispatcher
	// +checklocks:mu
	onClose func()

	parts sync.Pool // of *[]([]byte)
}

var (
	_ stack.LinkEndpoint = (*endpoint)(nil)
	_ stack.GSOEndpoint  = (*endpoint)(nil)
)

// typicalParts is the number of pieces that a frame of netstack rarely exceeds:
// headers, and a segment's payload in a few chunks.
const typicalParts = 16

func newEndpoint(s *Stack) *endpoint {
	return &endpoint{s: s, mac: tcpip.LinkAddress(s.mac[:]), parts: sync.Pool{New: func() any {
		parts := make([][]byte, 0, typicalParts)
		return &parts
	}}}
}

// deliverPacket hands a received packet to netstack. It returns false if netstack is not
// attached.
func (e *endpoint) deliverPacket(proto tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) bool {
	e.mu.RLock()
	d := e.dispatcher
	e.mu.RUnlock()
	if d == nil {
		return false
	}
	d.DeliverNetworkPacket(proto, pkt)
	return true
}

// WritePackets implements stack.LinkWriter.
func (e *endpoint) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	for n, pkt := range pkts.AsSlice() {
		if sentUnderLock(pkt) {
			e.writeLater(pkt)
		} else if err := e.write(pkt); err != nil {
			return n, err
		}
	}
	return pkts.Len(), nil
}

// sentUnderLock reports whether pkt is an IGMP or MLD message of netstack, which
// sends those, and only those, with the lock of its IP endpoint held.
func sentUnderLock(pkt *stack.PacketBuffer) bool {
	h := pkt.NetworkHeader().Slice()
	if len(h) == 0 || pkt.Mark == fromHostMark {
		return false
	}
	switch pkt.NetworkProtocolNumber {
	case header.IPv4ProtocolNumber:
		return h[v4ProtoOff] == protoIGMP
	case header.IPv6ProtocolNumber:
		return h[v6NextOff] == extHopByHop // the router alert of MLD (RFC 3810 5)
	}
	return false
}

// writeLater writes pkt when the caller's locks are released. A link may deliver a
// frame in the goroutine that sends it, and the receiver may answer there: under the
// lock, that would deadlock.
func (e *endpoint) writeLater(pkt *stack.PacketBuffer) {
	if e.s.closed.Load() {
		return // netstack leaves its groups; members.close removes them
	}
	if e.s.members.takesOwn(pkt) {
		return
	}
	pkt.IncRef()
	e.s.net.Clock().AfterFunc(0, func() {
		defer pkt.DecRef()
		_ = e.write(pkt) // counted
	})
}

func (e *endpoint) write(pkt *stack.PacketBuffer) tcpip.Error {
	if l, ok := pkt.Owner.(*loan); ok {
		return e.writeLent(l, pkt)
	}
	parts := e.parts.Get().(*[][]byte)
	views, skip := pkt.AsViewList()
	for v := views.Front(); v != nil; v = v.Next() {
		b := v.AsSlice()
		if skip >= len(b) {
			skip -= len(b)
			continue
		}
		*parts = append(*parts, b[skip:])
		skip = 0
	}
	e.s.count.inc(NetstackTx)
	err := e.s.link.TransmitCopy(offloadOf(pkt), *parts...)
	clear(*parts)
	*parts = (*parts)[:0]
	e.parts.Put(parts)
	if err == nil {
		return nil
	}
	return e.s.linkError(err, macOf(pkt.LinkHeader().Slice()))
}

// macOf returns the destination of a frame that begins with eth.
func macOf(eth []byte) arp.MAC { return arp.MAC(eth[ethDstOff:]) }

// AddHeader implements stack.NetworkLinkEndpoint.
func (e *endpoint) AddHeader(pkt *stack.PacketBuffer) {
	header.Ethernet(pkt.LinkHeader().Push(ethHdrLen)).Encode(&header.EthernetFields{
		SrcAddr: e.LinkAddress(),
		DstAddr: pkt.EgressRoute.RemoteLinkAddress,
		Type:    pkt.NetworkProtocolNumber,
	})
}

// ParseHeader implements stack.NetworkLinkEndpoint.
func (*endpoint) ParseHeader(pkt *stack.PacketBuffer) bool {
	_, ok := pkt.LinkHeader().Consume(ethHdrLen)
	return ok
}

// MTU implements stack.NetworkLinkEndpoint.
func (e *endpoint) MTU() uint32 { return uint32(e.s.mtu) }

// SetMTU implements stack.NetworkLinkEndpoint. The link's MTU is fixed.
func (*endpoint) SetMTU(uint32) {}

// MaxHeaderLength implements stack.NetworkLinkEndpoint.
func (*endpoint) MaxHeaderLength() uint16 { return ethHdrLen }

// LinkAddress implements stack.NetworkLinkEndpoint.
func (e *endpoint) LinkAddress() tcpip.LinkAddress { return e.mac }

// SetLinkAddress implements stack.NetworkLinkEndpoint. The link's address is fixed.
func (*endpoint) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities implements stack.NetworkLinkEndpoint.
func (*endpoint) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityResolutionRequired | stack.CapabilityRXChecksumOffload
}

// GSOMaxSize implements stack.GSOEndpoint.
func (*endpoint) GSOMaxSize() uint32 { return gsoMaxSize }

// SupportedGSO implements stack.GSOEndpoint.
func (*endpoint) SupportedGSO() stack.SupportedGSO { return stack.HostGSOSupported }

// Attach implements stack.NetworkLinkEndpoint.
func (e *endpoint) Attach(d stack.NetworkDispatcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dispatcher = d
}

// IsAttached implements stack.NetworkLinkEndpoint.
func (e *endpoint) IsAttached() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.dispatcher != nil
}

// Wait implements stack.NetworkLinkEndpoint. There is no goroutine to wait for.
func (*endpoint) Wait() {}

// ARPHardwareType implements stack.NetworkLinkEndpoint.
func (*endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// Close implements stack.NetworkLinkEndpoint.
func (e *endpoint) Close() {
	e.mu.Lock()
	f := e.onClose
	e.onClose = nil
	e.mu.Unlock()
	if f != nil {
		f()
	}
}

// SetOnCloseAction implements stack.NetworkLinkEndpoint.
func (e *endpoint) SetOnCloseAction(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.onClose = f
}
