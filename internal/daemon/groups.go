package daemon

import (
	"fmt"
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
	routes *route.Table
	member member

	table multicast.Table
	mu    sync.Mutex
	now   []emp.Group // +checklocks:mu
}

// member is what groups needs of an emp.Member.
type member interface {
	JoinGroup(netip.Addr)
	LeaveGroup(netip.Addr)
}

var _ multicast.Registry = (*groups)(nil)

// Join implements multicast.Registry. Until EMP has entered the node, frames to
// the group reach it only if they go to everybody.
func (g *groups) Join(group netip.Addr) (fabric.GroupID, error) {
	if !group.IsMulticast() {
		return 0, fmt.Errorf("%w: %v", multicast.ErrGroup, group)
	}
	group = group.WithZone("").Unmap()
	if multicast.Everybody(group) {
		return fabric.GroupBroadcast, nil
	}
	g.member.JoinGroup(group)
	if id, ok := g.table.Lookup(group.AsSlice()); ok {
		return id, nil
	}
	return fabric.GroupBroadcast, nil
}

// Leave implements multicast.Registry.
func (g *groups) Leave(group netip.Addr) error {
	g.member.LeaveGroup(group.WithZone("").Unmap())
	return nil
}

// Lookup implements multicast.Registry.
func (g *groups) Lookup(group []byte) (fabric.GroupID, bool) { return g.table.Lookup(group) }

// set takes in what EMP says.
func (g *groups) set(now []emp.Group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now = now
	g.applyLocked()
}

// linked is called when there is a way to another node.
func (g *groups) linked() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.applyLocked()
}

// all returns the groups.
func (g *groups) all() []emp.Group {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.now)
}

// +checklocks:g.mu
func (g *groups) applyLocked() {
	var members [fabric.Groups][]fabric.NodeID
	for _, e := range g.now {
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
	for _, e := range g.now {
		delete(gone, e.Addr)
		g.table.Set(e.Addr, e.ID)
	}
	for a := range gone {
		g.table.Delete(a)
	}
}
