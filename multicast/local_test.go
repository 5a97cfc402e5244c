package multicast

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"exnet/fabric"
	"exnet/fabric/route"
)

func TestEverybody(t *testing.T) {
	for a, want := range map[string]bool{
		"224.0.0.0": true, "224.0.0.1": true, "224.0.0.255": true, "::ffff:224.0.0.1": true,
		"224.0.1.0": false, "239.1.1.1": false, "225.0.0.1": false, "192.0.0.1": false,
		"ff02::1": true, "ff02::16": true, "ff02::fb": true, "ff02::1:ff00:0": true, "ff02::1:ffff:ffff": true,
		"ff02::100": false, "ff02::1:2": false, "ff02::1:3": false, "ff02::2:ff00:0": false, "ff02:0:0:1::1": false,
		"ff05::1": false, "ff15::1234": false, "ff01::1": false,
	} {
		if got := Everybody(addr(a)); got != want {
			t.Errorf("%s: %v, want %v", a, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	var tab Table
	a, b := addr("239.1.1.1"), addr("ff15::1")
	look := func(g netip.Addr) string {
		id, ok := tab.Lookup(g.AsSlice())
		return fmt.Sprint(id, ok)
	}
	if look(a) != "0 false" || look(addr("ff02::1")) != "63 true" {
		t.Error("empty table:", look(a), look(addr("ff02::1")))
	}
	tab.Set(a, 5)
	tab.Set(b, 63)
	tab.Set(b, 6)
	if look(a) != "5 true" || look(b) != "6 true" || look(addr("239.1.1.2")) != "0 false" {
		t.Error(look(a), look(b))
	}
	if got := maps.Collect(tab.All()); !maps.Equal(got, map[netip.Addr]fabric.GroupID{a: 5, b: 6}) {
		t.Errorf("all: %v", got)
	}
	for range tab.All() {
		break
	}
	tab.Delete(a)
	tab.Delete(a)
	if look(a) != "0 false" || look(b) != "6 true" {
		t.Error("after Delete:", look(a), look(b))
	}
	for _, n := range []int{0, 3, 5, 17} {
		if _, ok := tab.Lookup(make([]byte, n)); ok {
			t.Errorf("an address of %d bytes was found", n)
		}
	}
	var key [16]byte = b.As16()
	if n := testing.AllocsPerRun(100, func() { tab.Lookup(key[:]) }); n != 0 {
		t.Errorf("%v allocations for a look-up", n)
	}
}

func group(i int) netip.Addr { return netip.AddrFrom4([4]byte{239, 0, byte(i >> 8), byte(i)}) }

// 62 IP groups have a fabric group of their own, further ones share 63. A group
// that is freed is given out again, but not at once.
func TestAllocator(t *testing.T) {
	var a Allocator
	for i := range 70 {
		g, added := a.Join(group(i), 1)
		want := fabric.GroupID(i + 1)
		if i >= 62 {
			want = 63
		}
		if g != want || !added {
			t.Errorf("group %d: %d, %v; want %d", i, g, added, want)
		}
	}
	if g, added := a.Join(group(3), 1); g != 4 || added {
		t.Errorf("again: %d, %v", g, added)
	}
	if g, added := a.Join(group(3), 2); g != 4 || !added {
		t.Errorf("a second member: %d, %v", g, added)
	}
	if g, removed, gone := a.Leave(group(3), 1); g != 4 || !removed || gone {
		t.Errorf("the first leaves: %d, %v, %v", g, removed, gone)
	}
	if _, removed, _ := a.Leave(group(3), 1); removed {
		t.Error("it leaves twice")
	}
	if _, removed, _ := a.Leave(group(1000), 1); removed {
		t.Error("it leaves a group that nobody is in")
	}
	if g, removed, gone := a.Leave(group(3), 2); g != 4 || !removed || !gone {
		t.Errorf("the last leaves: %d, %v, %v", g, removed, gone)
	}
	if g, _, gone := a.Leave(group(65), 1); g != 63 || !gone {
		t.Errorf("a group in 63: %d, %v", g, gone)
	}
	a.Leave(group(9), 1)
	if g, _ := a.Join(group(100), 1); g != 4 {
		t.Errorf("group %d, want 4", g)
	}
	a.Leave(group(100), 1)
	if g, _ := a.Join(group(101), 1); g != 10 {
		t.Errorf("group %d, want 10, as 4 was in use just now", g)
	}
	if got := len(a.GroupsOf(1)); got != 70-3+1 {
		t.Errorf("member of %d groups", got)
	}
}

// cluster is a Local with routing tables.
type cluster struct {
	*Local
	nodes  map[fabric.NodeID]*Node
	routes map[fabric.NodeID]*route.Table
}

func (c *cluster) add(t *testing.T, id fabric.NodeID) {
	t.Helper()
	r := new(route.Table)
	n, err := c.Node(id, r)
	if err != nil {
		t.Fatal(err)
	}
	c.nodes[id], c.routes[id] = n, r
}

func newCluster(t *testing.T, ids ...fabric.NodeID) *cluster {
	c := &cluster{NewLocal(), make(map[fabric.NodeID]*Node), make(map[fabric.NodeID]*route.Table)}
	for _, id := range ids {
		c.add(t, id)
	}
	return c
}

// check fails the test unless the members of an IP group, as every node's tables
// have them, are these.
func (c *cluster) check(t *testing.T, g netip.Addr, members ...fabric.NodeID) {
	t.Helper()
	for id, n := range c.nodes {
		f, ok := n.Lookup(g.AsSlice())
		if ok != (len(members) > 0) {
			t.Errorf("node %d: found %v is %v with members %v", id, g, ok, members)
		}
		if !ok {
			continue
		}
		want := slices.DeleteFunc(slices.Clone(members), func(m fabric.NodeID) bool { return m == id })
		if got := c.routes[id].Members(f); !slices.Equal(got, want) {
			t.Errorf("node %d: %v goes to %v, want %v", id, g, got, want)
		}
	}
}

func TestLocal(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	a, b := addr("239.1.1.1"), addr("ff15::1")
	join := func(n fabric.NodeID, g netip.Addr) {
		t.Helper()
		if _, err := c.nodes[n].Join(g); err != nil {
			t.Fatal(err)
		}
	}
	c.check(t, a)
	join(1, a)
	join(1, a)
	join(3, a)
	join(2, b)
	c.check(t, a, 1, 3)
	c.check(t, b, 2)
	c.add(t, 4) // it learns who is there
	c.check(t, a, 1, 3)
	join(4, a)
	c.check(t, a, 1, 3, 4)
	if err := c.nodes[1].Leave(a); err != nil {
		t.Fatal(err)
	}
	c.check(t, a, 3, 4)
	all := c.All()
	if len(all) != 2 || !slices.Equal(all[a].Members, []fabric.NodeID{3, 4}) || all[a].Group == all[b].Group {
		t.Errorf("all: %v", all)
	}
	for range 2 {
		if err := c.nodes[3].Close(); err != nil {
			t.Fatal(err)
		}
	}
	gone := c.nodes[3]
	delete(c.nodes, 3)
	c.check(t, a, 4)
	if _, err := gone.Join(b); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("join after Close: %v", err)
	}
	if err := gone.Leave(a); err != nil {
		t.Errorf("leave after Close: %v", err)
	}
	c.add(t, 3) // a successor is in no group
	c.check(t, a, 4)
	if _, err := c.Node(3, new(route.Table)); !errors.Is(err, fabric.ErrInUse) {
		t.Errorf("a second node 3: %v", err)
	}
	if _, err := c.nodes[1].Join(addr("10.0.0.1")); !errors.Is(err, ErrGroup) {
		t.Errorf("join a unicast address: %v", err)
	}
	if g, err := c.nodes[1].Join(addr("ff02::1")); g != 63 || err != nil {
		t.Errorf("join what everybody is in: %d, %v", g, err)
	}
}

// The groups beyond 62 go to everybody, and leave the broadcast group alone.
func TestLocalOverflow(t *testing.T) {
	c := newCluster(t, 1, 2)
	for _, r := range c.routes {
		r.Join(fabric.GroupBroadcast, 9)
	}
	for i := range 64 {
		if _, err := c.nodes[1].Join(group(i)); err != nil {
			t.Fatal(err)
		}
	}
	last := group(63)
	if g, ok := c.nodes[2].Lookup(last.AsSlice()); g != 63 || !ok {
		t.Errorf("group %d, %v", g, ok)
	}
	c.add(t, 3)
	if got := len(c.routes[3].Members(63)); got != 0 {
		t.Errorf("the broadcast group got %d members", got)
	}
	if err := c.nodes[1].Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.nodes[2].Lookup(last.AsSlice()); ok {
		t.Error("a group without members is found")
	}
	if got := c.routes[2].Members(63); !slices.Equal(got, []fabric.NodeID{9}) {
		t.Errorf("the broadcast group has %v", got)
	}
}

func TestLocalConcurrent(t *testing.T) {
	c := newCluster(t, 1, 2, 3, 4)
	var wg sync.WaitGroup
	for _, n := range c.nodes {
		wg.Go(func() {
			for i := range 300 {
				g := group(i % 7)
				if _, err := n.Join(g); err != nil {
					t.Error(err)
				}
				if _, ok := n.Lookup(g.AsSlice()); !ok {
					t.Error("a group is not found by its member")
				}
				if err := n.Leave(g); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range 7 {
		c.check(t, group(i))
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{1, 62, 4096} {
		b.Run(fmt.Sprintf("groups=%d", n), func(b *testing.B) {
			var tab Table
			for i := range n {
				tab.Set(group(i), 1)
			}
			g := group(n - 1).As4()
			b.ReportAllocs()
			for b.Loop() {
				tab.Lookup(g[:])
			}
		})
	}
}
