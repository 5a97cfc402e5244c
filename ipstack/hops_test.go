package ipstack

import (
	"net/netip"
	"testing"

	"exnet/arp"
	"exnet/fabric"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// A destination that has another next hop from now on no longer follows the old one.
func TestHopsMove(t *testing.T) {
	table := arp.NewTable(0)
	h := newHops(table, arp.DefaultPrefix())
	dst := netip.MustParseAddr("10.9.0.1")
	hops := []netip.Addr{netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("10.2.0.2")}
	news := func(hop int, s stack.NeighborState) {
		mac := arp.DefaultPrefix().MAC(fabric.NodeID(1 + hop))
		h.setState(stack.NeighborEntry{Addr: tcpip.AddrFromSlice(hops[hop].AsSlice()), LinkAddr: tcpip.LinkAddress(mac[:]), State: s})
	}
	via := func() int {
		e, ok := table.Lookup(dst.AsSlice())
		if !ok {
			return -1
		}
		return int(e.Node) - 1
	}
	for hop := range hops {
		news(hop, stack.Reachable)
	}
	h.setHop(h.beginLearn(), dst, hops[0])
	if got := via(); got != 0 {
		t.Fatalf("by hop %d, want 0", got)
	}
	h.setHop(h.beginLearn(), dst, hops[1])
	for _, s := range []stack.NeighborState{stack.Stale, stack.Reachable, stack.Unreachable} {
		if news(0, s); via() != 1 {
			t.Errorf("by hop %d, want 1, when hop 0 is %v", via(), s)
		}
	}
	if news(1, stack.Unreachable); via() != -1 {
		t.Errorf("by hop %d, which is unreachable", via())
	}
}
