package ipstack

import (
	"net/netip"
	"slices"
	"testing"

	"exnet/arp"
)

func TestNeighbors(t *testing.T) {
	w := newWorld(t, true)
	a := w.add(1, "10.2.0.1/24", "fd00::1/64")
	b := w.add(2, "10.2.0.2/24", "fd00::2/64")
	if got := a.Neighbors(); len(got) != 0 {
		t.Errorf("at first %+v", got)
	}
	for _, p := range [][2]string{{"10.2.0.1", "10.2.0.2"}, {"10.2.0.1", "10.2.0.99"}, {"fd00::1", "fd00::2"}} {
		a.post(udpPacket(ipSpec{src: p[0], dst: p[1], ttl: 64}, nil))
		w.settle()
	}
	got := a.Neighbors()
	var addrs []netip.Addr
	for _, n := range got {
		addrs = append(addrs, n.Addr)
	}
	want := []netip.Addr{netip.MustParseAddr("10.2.0.2"), netip.MustParseAddr("10.2.0.99"), netip.MustParseAddr("fd00::2")}
	if !slices.Equal(addrs, want) {
		t.Fatalf("neighbours %+v", got)
	}
	for _, i := range []int{0, 2} {
		if n := got[i]; !n.Known || n.Node != 2 || n.MAC != arp.MAC(b.link.MAC()) || n.State == "incomplete" {
			t.Errorf("got %+v", n)
		}
	}
	if n := got[1]; n.Known || n.State != "incomplete" && n.State != "unreachable" {
		t.Errorf("got %+v", n)
	}
}
