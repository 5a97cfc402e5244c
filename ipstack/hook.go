package ipstack

import (
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// hook passes packets from netstack to the host. netstack calls it as its packet
// filter (nftables): with every received packet after checking its headers and
// before looking at its destination (CheckPrerouting), and with every packet that it
// is about to deliver to itself (CheckInput). The hook gives a packet to the host
// and rejects it, so that netstack drops its copy.
type hook struct{ s *Stack }

var _ stack.NFTablesInterface = (*hook)(nil)

// CheckPrerouting implements stack.NFTablesInterface.
func (h *hook) CheckPrerouting(pkt *stack.PacketBuffer, _ *stack.Route, _ stack.AddressFamily) bool {
	switch forWhom(pkt) {
	case forNetstack:
		return true
	case forBoth:
		h.s.toHost(pkt)
		return true
	}
	h.s.toHost(pkt)
	return false
}

// CheckInput implements stack.NFTablesInterface. It rejects the host's packets that
// netstack loops back.
func (*hook) CheckInput(pkt *stack.PacketBuffer, _ *stack.Route, _ stack.AddressFamily) bool {
	return pkt.Mark != fromHostMark
}

// CheckForward implements stack.NFTablesInterface.
func (*hook) CheckForward(*stack.PacketBuffer, *stack.Route, stack.AddressFamily) bool { return true }

// CheckOutput implements stack.NFTablesInterface.
func (*hook) CheckOutput(*stack.PacketBuffer, *stack.Route, stack.AddressFamily) bool { return true }

// CheckPostrouting implements stack.NFTablesInterface.
func (*hook) CheckPostrouting(*stack.PacketBuffer, *stack.Route, stack.AddressFamily) bool {
	return true
}

// CheckIngress implements stack.NFTablesInterface.
func (*hook) CheckIngress(*stack.PacketBuffer, *stack.Route, stack.AddressFamily) bool { return true }

// CheckEgress implements stack.NFTablesInterface.
func (*hook) CheckEgress(*stack.PacketBuffer, *stack.Route, stack.AddressFamily) bool { return true }

// receivers says who receives a packet.
type receivers uint8

const (
	forHost receivers = iota + 1
	forNetstack
	forBoth
)

// forWhom returns who receives a packet whose headers netstack has parsed. NDP is for
// netstack. Group membership messages are for both: the kernel has the groups of its
// programs, netstack the solicited-node groups of the addresses.
func forWhom(pkt *stack.PacketBuffer) receivers {
	if pkt.NetworkProtocolNumber == header.IPv4ProtocolNumber {
		if header.IPv4(pkt.NetworkHeader().Slice()).Protocol() == protoIGMP {
			return forBoth
		}
		return forHost
	}
	icmp := pkt.TransportHeader().Slice()
	if pkt.TransportProtocolNumber != header.ICMPv6ProtocolNumber || len(icmp) == 0 {
		return forHost
	}
	switch t := header.ICMPv6(icmp).Type(); {
	case isNDP(t):
		return forNetstack
	case isMLD(t):
		return forBoth
	}
	return forHost
}
