package daemon

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/route"
	"exnet/multicast"
)

// groups is the node's view of the multicast groups of the fabric: what EMP's
// directory says becomes the members in the routing table, and the table where
// the interface finds the fabric group of a frame.
//
// Concurrency: all methods may be called from many goroutines. Lookup takes no
// lock.
type groups struct {
	self   fabric.NodeID
	routes *route.Table // nil: not yet
	homes  []emp.Home
	// remote returns the members on other hosts; nil: there are none. Then the fabric
	// groups are the directory's, else this node's: what a frame's fabric group is matters
	// to its sender alone.
	remote func() map[netip.Addr][]fabric.NodeID

	table multicast.Table
	mu    sync.Mutex
	// inDirectory has the groups of the directory, current those of this node.
	inDirectory []emp.Group         // +checklocks:mu
	alloc       multicast.Allocator // +checklocks:mu
	current     []emp.Group         // +checklocks:mu
}

// setRoutes sets the routing table for the groups. Before that, changes are only recorded.
func (g *groups) setRoutes(routes *route.Table, homes []emp.Home, remote func() map[netip.Addr][]fabric.NodeID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.routes, g.homes = routes, homes
	if len(homes) > 1 {
		g.remote = remote
	}
}

var _ multicast.Registry = (*groups)(nil)

// Join implements multicast.Registry. Until EMP has recorded the node, only frames to
// all nodes reach it.
func (g *groups) Join(group netip.Addr) (fabric.GroupID, error) {
	if !group.IsMulticast() {
		return 0, fmt.Errorf("%w: %v", multicast.ErrGroup, group)
	}
	group = group.WithZone("").Unmap()
	if multicast.Everybody(group) {
		return fabric.GroupBroadcast, nil
	}
	for _, h := range g.homes {
		h.JoinGroup(group)
	}
	if id, ok := g.table.Lookup(group.AsSlice()); ok {
		return id, nil
	}
	return fabric.GroupBroadcast, nil
}

// Leave implements multicast.Registry.
func (g *groups) Leave(group netip.Addr) error {
	for _, h := range g.homes {
		h.LeaveGroup(group.WithZone("").Unmap())
	}
	return nil
}

// Lookup implements multicast.Registry.
func (g *groups) Lookup(group []byte) (fabric.GroupID, bool) { return g.table.Lookup(group) }

// setGroups updates the groups of the directory.
func (g *groups) setGroups(now []emp.Group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inDirectory = now
	g.applyLocked()
}

// announceAll is called when there is a way to another node.
func (g *groups) announceAll() { g.noteChanged() }

// noteChanged is called when there is a way to another node, or when one of another host has
// joined or left a group.
func (g *groups) noteChanged() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.applyLocked()
}

// mergeLocked merges the groups of the directory and of the other hosts.
//
// +checklocks:g.mu
func (g *groups) mergeLocked() {
	if g.remote == nil {
		g.current = g.inDirectory
		return
	}
	want := g.remote()
	for _, e := range g.inDirectory {
		want[e.Addr] = append(want[e.Addr], e.Members...)
	}
	for a, e := range maps.Collect(g.alloc.All()) {
		for _, n := range e.Members {
			if !slices.Contains(want[a], n) {
				g.alloc.Leave(a, n)
			}
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(want), netip.Addr.Compare) {
		for _, n := range want[a] {
			g.alloc.Join(a, n)
		}
	}
	given := maps.Collect(g.alloc.All())
	g.current = nil
	for _, a := range slices.SortedFunc(maps.Keys(given), netip.Addr.Compare) {
		g.current = append(g.current, emp.Group{Addr: a, ID: given[a].Group, Members: given[a].Members})
	}
}

// listGroups returns the groups.
func (g *groups) listGroups() []emp.Group {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.current)
}

// +checklocks:g.mu
func (g *groups) applyLocked() {
	if g.routes == nil {
		return
	}
	g.mergeLocked()
	var members [fabric.Groups][]fabric.NodeID
	for _, e := range g.current {
		if e.ID < multicast.FirstGroup || e.ID > multicast.LastGroup {
			continue // the members of group 63 are the links'
		}
		for _, n := range e.Members {
			if n != g.self && g.routes.Port(n) != nil {
				members[e.ID] = append(members[e.ID], n)
			}
		}
	}
	// The ways to the members first, then the groups that lead there.
	for id := multicast.FirstGroup; id <= multicast.LastGroup; id++ {
		have := g.routes.Members(id)
		for _, n := range members[id] {
			if !slices.Contains(have, n) {
				_ = g.routes.Join(id, n) // the group is valid
			}
		}
		for _, n := range have {
			if !slices.Contains(members[id], n) {
				_ = g.routes.Leave(id, n)
			}
		}
	}
	gone := make(map[netip.Addr]bool)
	for a := range g.table.All() {
		gone[a] = true
	}
	for _, e := range g.current {
		delete(gone, e.Addr)
		g.table.Set(e.Addr, e.ID)
	}
	for a := range gone {
		g.table.Delete(a)
	}
}
