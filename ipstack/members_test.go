package ipstack

import (
	"bytes"
	"maps"
	"net/netip"
	"testing"
	"time"

	"exnet/fabric/route"
	"exnet/multicast"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/faketime"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// registry returns a directory of groups with one node.
func registry(t *testing.T) multicast.Registry {
	t.Helper()
	n, err := multicast.NewLocal().Node(1, new(route.Table))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// igmpReport is what a kernel sends: IGMPv2, with a router alert.
func igmpReport(typ uint8, group string) []byte {
	body := make([]byte, header.IGMPMinimumSize)
	msg := header.IGMP(body)
	msg.SetType(header.IGMPType(typ))
	msg.SetGroupAddress(addr(group))
	msg.SetChecksum(^checksum.Checksum(body, 0))
	return ipSpec{src: "10.2.0.1", dst: group, proto: protoIGMP, ttl: 1, options: []byte{0x94, 4, 0, 0}, body: body}.packet()
}

func groupsOf(s *Stack) map[netip.Addr]bool {
	groups := make(map[netip.Addr]bool)
	for g := range s.Members().All() {
		groups[g] = true
	}
	return groups
}

// The host's reports are taken in and go no further, whether the fast path is on
// or not; queries come in time, and a membership that is not reported lapses.
func TestMembersOfHost(t *testing.T) {
	bothPaths(t, func(t *testing.T, w *world) {
		n := &node{w: w, host: &fakeHost{}}
		n.link, n.Stack = attach(t, w.hub, 1, w.mtu, Config{Host: n.host, NoFastPath: !w.fast, Clock: w.clock, Groups: registry(t)})
		if err := n.AddAddress(netip.MustParsePrefix("10.2.0.1/24")); err != nil {
			t.Fatal(err)
		}
		if err := n.AddAddress(netip.MustParsePrefix("fd00::1/64")); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.add(2, "10.2.0.2/24")
		n.host.takeAll()
		w.hub.startLog()
		before := n.Stats()
		a, b := netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("239.1.2.4")
		n.send(igmpReport(0x16, a.String()))
		n.send(igmpReport(0x16, b.String()))
		if got := groupsOf(n.Stack); !maps.Equal(got, map[netip.Addr]bool{a: true, b: true}) {
			t.Fatalf("member of %v", got)
		}
		n.send(igmpReport(0x17, b.String()))
		n.grown(before, MembershipReports, 3)
		if got := groupsOf(n.Stack); !maps.Equal(got, map[netip.Addr]bool{a: true}) {
			t.Fatalf("member of %v", got)
		}
		if got := w.hub.logged(); len(got) != 0 {
			t.Errorf("%d frames left", len(got))
		}
		w.advance(32 * time.Second)
		queries := n.host.takeAll()
		if len(queries) != 2 {
			t.Fatalf("%d queries, want 2", len(queries))
		}
		igmp := header.IGMP(header.IPv4(queries[0].packet).Payload())
		if igmp.Type() != header.IGMPMembershipQuery || !bytes.Equal(dstAddr(queries[0].packet), []byte{224, 0, 0, 1}) {
			t.Errorf("IGMP query %x", queries[0].packet)
		}
		src := header.IPv6(queries[1].packet).SourceAddress()
		if header.ICMPv6(queries[1].packet[v6HdrLen+8:]).Type() != header.ICMPv6MulticastListenerQuery || !header.IsV6LinkLocalUnicastAddress(src) {
			t.Errorf("MLD query %x", queries[1].packet)
		}
		w.advance(260 * time.Second)
		if got := groupsOf(n.Stack); len(got) != 0 {
			t.Errorf("member of %v, which was not reported again", got)
		}
		if s := n.Members().Stats(); s.Lapses != 1 || s.Queries != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// What netstack's programs join is followed in the same way, and netstack
// answers the queries.
func TestMembersOfNetstack(t *testing.T) {
	clock := faketime.NewManualClock()
	w := &world{t: t, hub: newHub(), clock: clock, mtu: 65535}
	_, s := attach(t, w.hub, 1, w.mtu, Config{Clock: clock, Groups: registry(t)})
	for _, a := range []string{"10.2.0.1/24", "fd00::1/64"} {
		if err := s.AddAddress(netip.MustParsePrefix(a)); err != nil {
			t.Fatal(err)
		}
	}
	w.settle()
	groups := map[netip.Addr]tcpip.NetworkProtocolNumber{
		netip.MustParseAddr("239.1.2.3"): header.IPv4ProtocolNumber,
		netip.MustParseAddr("ff15::1"):   header.IPv6ProtocolNumber,
	}
	for g, proto := range groups {
		if terr := s.Netstack().JoinGroup(proto, NIC, tcpipAddr(g)); terr != nil {
			t.Fatal(terr)
		}
		w.settle()
	}
	// For longer than a membership lasts.
	for range 100 {
		if got := groupsOf(s); len(got) != 2 {
			t.Fatalf("member of %v", got)
		}
		w.advance(10 * time.Second)
	}
	if st := s.Members().Stats(); st.Lapses != 0 || st.Queries < 7 || st.Bad != 0 {
		t.Errorf("%+v", st)
	}
	for g, proto := range groups {
		if terr := s.Netstack().LeaveGroup(proto, NIC, tcpipAddr(g)); terr != nil {
			t.Fatal(terr)
		}
		w.settle()
	}
	if got := groupsOf(s); len(got) != 0 {
		t.Errorf("still member of %v", got)
	}
}

// A stack that is closed leaves its groups.
func TestMembersClose(t *testing.T) {
	w := newWorld(t, true)
	reg := registry(t)
	_, s := attach(t, w.hub, 1, w.mtu, Config{Host: &fakeHost{}, Clock: w.clock, Groups: reg})
	group := netip.MustParseAddr("239.1.2.3")
	if !s.members.isReport(igmpReport(0x16, group.String())) {
		t.Fatal("no report")
	}
	if _, ok := reg.Lookup(group.AsSlice()); !ok {
		t.Fatal("not joined")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := reg.Lookup(group.AsSlice()); ok {
		t.Error("still a member")
	}
	w.advance(200 * time.Second)
	if got := s.Members().Stats().Queries; got != 0 {
		t.Errorf("%d queries after Close", got)
	}
}
