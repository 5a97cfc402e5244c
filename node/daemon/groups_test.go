package daemon

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/link"
	"exnet/fabric/route"
	"exnet/multicast"
)

type fakePort struct{ link.Port }

type fakeMember struct{ joined, left []netip.Addr }

func (m *fakeMember) Peers() []emp.Peer       { return nil }
func (m *fakeMember) JoinGroup(a netip.Addr)  { m.joined = append(m.joined, a) }
func (m *fakeMember) LeaveGroup(a netip.Addr) { m.left = append(m.left, a) }

func TestGroups(t *testing.T) {
	var routes route.Table
	m := new(fakeMember)
	g := &groups{self: 1}
	g.setRoutes(&routes, []emp.Home{m}, nil)
	a, b := netip.MustParseAddr("239.1.1.1"), netip.MustParseAddr("ff05::1:3")
	lookup := func(addr netip.Addr, want fabric.GroupID, there bool) {
		t.Helper()
		if id, ok := g.Lookup(addr.AsSlice()); ok != there || id != want {
			t.Errorf("%v: group %d, %v; want %d, %v", addr, id, ok, want, there)
		}
	}
	members := func(id fabric.GroupID, want ...fabric.NodeID) {
		t.Helper()
		if got := routes.Members(id); !slices.Equal(got, want) {
			t.Errorf("group %d: members %v, want %v", id, got, want)
		}
	}

	if id, err := g.Join(a); id != fabric.GroupBroadcast || err != nil {
		t.Errorf("join: %d, %v; want the broadcast group for the moment", id, err)
	}
	lookup(a, 0, false)
	routes.Set(2, fakePort{})
	g.setGroups([]emp.Group{
		{Addr: a, ID: 5, Members: []fabric.NodeID{1, 2, 3}},
		{Addr: b, ID: fabric.GroupBroadcast, Members: []fabric.NodeID{2}},
	})
	members(5, 2) // not this node, and not the one that is not linked
	members(fabric.GroupBroadcast)
	lookup(a, 5, true)
	lookup(b, fabric.GroupBroadcast, true)
	if id, err := g.Join(a); id != 5 || err != nil {
		t.Errorf("join: %d, %v", id, err)
	}
	routes.Set(3, fakePort{})
	g.announceAll()
	members(5, 2, 3)
	routes.Remove(2) // the link is down, and comes back
	members(5, 3)
	routes.Set(2, fakePort{})
	g.announceAll()
	members(5, 2, 3)
	g.setGroups([]emp.Group{{Addr: b, ID: 6, Members: []fabric.NodeID{3}}})
	members(5)
	members(6, 3)
	lookup(a, 0, false)
	lookup(b, 6, true)
	if err := g.Leave(a); err != nil {
		t.Error(err)
	}

	// What everybody is in needs no entry.
	if id, err := g.Join(netip.MustParseAddr("224.0.0.251")); id != fabric.GroupBroadcast || err != nil {
		t.Errorf("join: %d, %v", id, err)
	}
	if _, err := g.Join(netip.MustParseAddr("10.2.0.1")); !errors.Is(err, multicast.ErrGroup) {
		t.Errorf("join: %v", err)
	}
	if !slices.Equal(m.joined, []netip.Addr{a, a}) || !slices.Equal(m.left, []netip.Addr{a}) {
		t.Errorf("EMP was told %v, %v", m.joined, m.left)
	}
}

// With other hosts there is no lock that gives fabric groups to all alike: each node gives
// its own.
func TestGroupsOfHosts(t *testing.T) {
	var routes route.Table
	here, there := new(fakeMember), new(fakeMember)
	a, b := netip.MustParseAddr("239.1.1.1"), netip.MustParseAddr("239.1.1.2")
	remote := make(map[netip.Addr][]fabric.NodeID)
	g := &groups{self: 1}
	g.setGroups([]emp.Group{{Addr: a, ID: 9, Members: []fabric.NodeID{1, 2}}}) // too early, but not forgotten
	g.setRoutes(&routes, []emp.Home{here, there}, func() map[netip.Addr][]fabric.NodeID {
		all := make(map[netip.Addr][]fabric.NodeID)
		for k, v := range remote {
			all[k] = slices.Clone(v)
		}
		return all
	})
	for _, n := range []fabric.NodeID{2, 7} {
		routes.Set(n, fakePort{})
	}
	check := func(addr netip.Addr, want ...fabric.NodeID) {
		t.Helper()
		id, ok := g.Lookup(addr.AsSlice())
		if got := routes.Members(id); ok != (want != nil) || ok && !slices.Equal(got, want) {
			t.Errorf("%v: group %d (%v), members %v, want %v", addr, id, ok, got, want)
		}
	}
	g.noteChanged()
	check(a, 2)
	remote[a], remote[b] = []fabric.NodeID{7}, []fabric.NodeID{7}
	g.noteChanged()
	check(a, 2, 7)
	check(b, 7)
	g.setGroups(nil)
	check(a, 7)
	delete(remote, b)
	g.noteChanged()
	check(b)
	if _, err := g.Join(a); err != nil || len(here.joined) != 1 || len(there.joined) != 1 {
		t.Errorf("%v: told %v, %v", err, here.joined, there.joined)
	}
}
