package ipstack

import (
	"net/netip"
	"sync"

	"exnet/exteth"
	"exnet/foreign"
	"exnet/multicast"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// members tracks the memberships of the host or, in netstack mode, of netstack: it
// intercepts outgoing reports, and sends general queries as a router would.
type members struct {
	s *Stack
	*multicast.Members

	mu sync.Mutex
	// +checklocks:mu
	timer tcpip.Timer // nil after close
}

// newMembers tracks the memberships until close.
func newMembers(s *Stack, registry multicast.Registry, clock tcpip.Clock) (*members, error) {
	m := &members{s: s}
	now := clock.Now()
	var err error
	if m.Members, err = multicast.NewMembers(multicast.Config{Registry: registry}, now); err != nil {
		return nil, err
	}
	_, next := m.Tick(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timer = clock.AfterFunc(next.Sub(now), func() { m.expireDue(clock) })
	return m, nil
}

// expireDue does what is due and sets the timer again. A membership reported in between
// expires after the next tick, which is at the next query at the latest.
func (m *members) expireDue(clock tcpip.Clock) {
	now := clock.Now()
	query, next := m.Tick(now)
	if query {
		for _, q := range m.Queries(m.s.querierAddr()) {
			m.s.queryMembers(q)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timer != nil {
		m.timer.Reset(next.Sub(now))
	}
}

// close leaves all groups.
func (m *members) close() error {
	m.mu.Lock()
	if m.timer != nil {
		m.timer.Stop()
		m.timer = nil
	}
	m.mu.Unlock()
	return m.Close()
}

// isReport reports whether an outgoing packet is a membership report, which must not
// leave. It borrows p until return.
func (m *members) isReport(p []byte) bool {
	if m == nil || !m.Packet(m.s.net.Clock().Now(), p) {
		return false
	}
	m.s.count.inc(MembershipReports)
	return true
}

// takesOwn is takes for a membership report of netstack. With a host, netstack is
// only in groups whose frames reach all nodes anyway, so the report is dropped.
func (m *members) takesOwn(pkt *stack.PacketBuffer) bool {
	if m == nil {
		return false
	}
	if m.s.host != nil {
		m.s.count.inc(MembershipReports)
		return true
	}
	v := pkt.ToView()
	defer v.Release()
	return m.isReport(v.AsSlice()[len(pkt.LinkHeader().Slice()):])
}

// querierAddr returns the source address of MLD queries, or the zero Addr without IPv6.
// No node has this address: its MAC address would not be locally administered. The
// node's own address would not do, as netstack drops packets from it.
func (s *Stack) querierAddr() netip.Addr {
	if !s.ipv6 {
		return netip.Addr{}
	}
	const localBit = 0x02
	mac := s.mac
	mac[0] ^= localBit
	return mac.LinkLocal()
}

// queryMembers asks the host, or netstack, for its memberships.
func (s *Stack) queryMembers(p []byte) {
	if s.host != nil {
		_ = s.writeHost(exteth.Offload{}, foreign.Private(p)) // counted; the next one may get through
		return
	}
	proto := header.IPv6ProtocolNumber
	if isIPv4(p) {
		proto = header.IPv4ProtocolNumber
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(p)})
	defer pkt.DecRef()
	pkt.PktType = tcpip.PacketMulticast
	s.endpoint.deliverPacket(proto, pkt)
}

// Members returns the memberships of the host, or of netstack; nil without
// Config.Groups.
func (s *Stack) Members() *multicast.Members {
	if s.members == nil {
		return nil
	}
	return s.members.Members
}
