package ipstack

import (
	"net/netip"
	"slices"

	"exnet/arp"
	"exnet/fabric"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// Neighbor is an entry of the neighbour cache.
type Neighbor struct {
	Addr  netip.Addr
	MAC   arp.MAC       // zero unless Known
	Node  fabric.NodeID // the node that the MAC address belongs to
	Known bool          // the neighbour has answered with a node's MAC address
	State string        // as RFC 4861 section 7.3.2 calls it, in lower case
}

// Neighbors returns the neighbour cache, IPv4 before IPv6, in ascending order.
func (s *Stack) Neighbors() []Neighbor {
	var all []Neighbor
	for _, proto := range []tcpip.NetworkProtocolNumber{header.IPv4ProtocolNumber, header.IPv6ProtocolNumber} {
		entries, terr := s.net.Neighbors(NIC, proto)
		if terr != nil {
			continue // no IPv6, or closed
		}
		for _, e := range entries {
			if n, ok := s.neighborOf(e); ok {
				all = append(all, n)
			}
		}
	}
	slices.SortFunc(all, func(a, b Neighbor) int { return a.Addr.Compare(b.Addr) })
	return all
}

func (s *Stack) neighborOf(e stack.NeighborEntry) (n Neighbor, ok bool) {
	if n.Addr, ok = addrOf(e.Addr); !ok {
		return n, false
	}
	switch e.State {
	case stack.Incomplete:
		n.State = "incomplete"
	case stack.Reachable:
		n.State = "reachable"
	case stack.Stale:
		n.State = "stale"
	case stack.Delay:
		n.State = "delay"
	case stack.Probe:
		n.State = "probe"
	case stack.Static:
		n.State = "permanent"
	case stack.Unreachable:
		n.State = "unreachable"
	default:
		return n, false
	}
	if len(e.LinkAddr) == len(n.MAC) {
		copy(n.MAC[:], e.LinkAddr)
		var err error
		n.Node, err = s.prefix.Node(n.MAC)
		n.Known = err == nil
	}
	return n, true
}
