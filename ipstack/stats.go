package ipstack

import (
	"iter"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// Counter names one statistic of a Stack. TX leaves the host, RX enters it.
type Counter uint8

// The counters. Those that start with TxDrop or RxDrop count dropped packets.
const (
	// FastTx counts packets of the host sent without netstack.
	FastTx Counter = iota
	// SlowTx counts packets of the host given to netstack.
	SlowTx
	// NetstackTx counts frames that left through netstack: those of SlowTx,
	// ARP, NDP, its own IGMP and MLD, and all traffic in netstack mode.
	NetstackTx
	// FastRx counts packets handed to the host without netstack.
	FastRx
	// SlowRx counts packets handed to the host through netstack.
	SlowRx
	// NetstackRx counts frames given to netstack: those of SlowRx, ARP, NDP,
	// and all traffic in netstack mode.
	NetstackRx

	// TxDropMalformed: not an IP packet, or its length is not what it says.
	TxDropMalformed
	// TxDropOffload: offload metadata that does not fit the packet.
	TxDropOffload
	// TxDropTooBig: larger than the MTU and must not be fragmented. The host
	// gets an ICMP error where the RFCs allow one.
	TxDropTooBig
	// TxDropNoRoute: no route to the destination, even a quarter of a second
	// later. The host gets an ICMP error.
	TxDropNoRoute
	// TxDropUnreachable: the next hop did not answer. The host gets an ICMP
	// error.
	TxDropUnreachable
	// TxDropNetstack: netstack refused the packet.
	TxDropNetstack
	// TxDropBusy: the link had no room for the frame.
	TxDropBusy
	// TxDropPeerDown: the link cannot reach the frame's node.
	TxDropPeerDown
	// TxDropLink: the link refused the frame for another reason.
	TxDropLink
	// TxDropClosed: the stack is closed, or was made without a host.
	TxDropClosed

	// RxDropShort: shorter than an Ethernet header.
	RxDropShort
	// RxDropOtherHost: for the MAC address of another node, or a broadcast frame
	// whose packet is for another host.
	RxDropOtherHost
	// RxDropSpoofed: the source MAC address is not that of the sending node.
	RxDropSpoofed
	// RxDropEtherType: neither IPv4, IPv6 nor ARP.
	RxDropEtherType
	// RxDropMalformed: not an IP packet, or its length is not what it says.
	RxDropMalformed
	// RxDropOffload: offload metadata that does not fit the packet.
	RxDropOffload
	// RxDropChecksum: wrong TCP or UDP checksum (netstack mode; the host checks
	// its own).
	RxDropChecksum
	// RxDropHost: the host did not take the packet.
	RxDropHost
	// RxDropNetstack: netstack found the packet malformed or its source invalid.
	RxDropNetstack
	// RxDropClosed: the stack is closed.
	RxDropClosed

	// NetstackTxErrors counts packets that netstack dropped: the neighbour did
	// not answer, too many packets waited for it, or the link refused. The
	// host's packets among them also count above, except those that were
	// dropped because too many others waited.
	NetstackTxErrors

	// ICMPErrors counts ICMP errors handed to the host.
	ICMPErrors
	// MembershipReports counts reports, leave and done messages of IGMP and MLD
	// that the host, or netstack, sent and that were intercepted.
	MembershipReports
	// Announcements counts addresses announced to the link (gratuitous ARP,
	// unsolicited neighbour advertisement).
	Announcements
	// NeighborsForgotten counts neighbours dropped because the link reported
	// their node as gone.
	NeighborsForgotten

	numCounters
)

// counterNames are the names of the counters as programs print them.
var counterNames = [numCounters]string{
	FastTx:             "fast_tx",
	SlowTx:             "slow_tx",
	NetstackTx:         "netstack_tx",
	FastRx:             "fast_rx",
	SlowRx:             "slow_rx",
	NetstackRx:         "netstack_rx",
	TxDropMalformed:    "tx_drop_malformed",
	TxDropOffload:      "tx_drop_offload",
	TxDropTooBig:       "tx_drop_too_big",
	TxDropNoRoute:      "tx_drop_no_route",
	TxDropUnreachable:  "tx_drop_unreachable",
	TxDropNetstack:     "tx_drop_netstack",
	TxDropBusy:         "tx_drop_busy",
	TxDropPeerDown:     "tx_drop_peer_down",
	TxDropLink:         "tx_drop_link",
	TxDropClosed:       "tx_drop_closed",
	RxDropShort:        "rx_drop_short",
	RxDropOtherHost:    "rx_drop_other_host",
	RxDropSpoofed:      "rx_drop_spoofed",
	RxDropEtherType:    "rx_drop_ethertype",
	RxDropMalformed:    "rx_drop_malformed",
	RxDropOffload:      "rx_drop_offload",
	RxDropChecksum:     "rx_drop_checksum",
	RxDropHost:         "rx_drop_host",
	RxDropNetstack:     "rx_drop_netstack",
	RxDropClosed:       "rx_drop_closed",
	NetstackTxErrors:   "netstack_tx_errors",
	ICMPErrors:         "icmp_errors",
	MembershipReports:  "membership_reports",
	Announcements:      "announcements",
	NeighborsForgotten: "neighbors_forgotten",
}

// String returns the name of the counter.
func (c Counter) String() string {
	if c >= numCounters {
		return "unknown"
	}
	return counterNames[c]
}

// Stats is a snapshot of a Stack's counters, indexed by Counter.
type Stats [numCounters]uint64

// All yields every counter by name, in the order of their definition.
func (s Stats) All() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		for c, v := range s {
			if !yield(counterNames[c], v) {
				return
			}
		}
	}
}

// counters are the live counters of a Stack.
type counters [numCounters]atomic.Uint64

func (c *counters) inc(n Counter) { c[n].Add(1) }

// snapshot reads the counters and those that netstack keeps.
func (c *counters) snapshot(net *stack.Stack) Stats {
	var s Stats
	for i := range c {
		s[i] = c[i].Load()
	}
	ns := net.Stats()
	s[RxDropNetstack] = ns.IP.MalformedPacketsReceived.Value() + ns.IP.InvalidSourceAddressesReceived.Value() +
		ns.ARP.MalformedPacketsReceived.Value()
	s[NetstackTxErrors] = ns.IP.OutgoingPacketErrors.Value()
	return s
}
