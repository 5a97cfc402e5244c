package multicast

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"exnet/fabric"
)

// ErrGroup says that an address is no multicast group.
var ErrGroup = errors.New("multicast: not a multicast group")

// Routes is what a Registry needs of a node's routing tables; *route.Table has
// it.
type Routes interface {
	Join(fabric.GroupID, fabric.NodeID) error
	Leave(fabric.GroupID, fabric.NodeID) error
}

// Local is the directory of a fabric whose nodes are all in this process. Make
// it with NewLocal.
//
// Concurrency: all methods may be called from many goroutines.
type Local struct {
	table Table
	mu    sync.Mutex
	// +checklocks:mu
	alloc Allocator
	// +checklocks:mu
	nodes map[fabric.NodeID]*Node
}

// NewLocal returns a directory without nodes.
func NewLocal() *Local { return &Local{nodes: make(map[fabric.NodeID]*Node)} }

// Node is a node's part of a Local: its Registry.
type Node struct {
	l      *Local
	id     fabric.NodeID
	routes Routes
}

var _ Registry = (*Node)(nil)

// Node adds a node, whose routing tables get the members that there are. The error
// wraps ErrInUse if there is one with that ID.
func (l *Local) Node(id fabric.NodeID, routes Routes) (*Node, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes[id] != nil {
		return nil, fmt.Errorf("multicast: node %d: %w", id, fabric.ErrInUse)
	}
	for _, a := range l.alloc.All() {
		if a.Group == fabric.GroupBroadcast {
			continue
		}
		for _, m := range a.Members {
			if err := routes.Join(a.Group, m); err != nil {
				return nil, err
			}
		}
	}
	n := &Node{l, id, routes}
	l.nodes[id] = n
	return n, nil
}

// All returns every IP group that has members, with what it has.
func (l *Local) All() map[netip.Addr]Allotment {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[netip.Addr]Allotment)
	for g, a := range l.alloc.All() {
		all[g] = a
	}
	return all
}

// Lookup implements Registry.
func (n *Node) Lookup(group []byte) (fabric.GroupID, bool) { return n.l.table.Lookup(group) }

// Join implements Registry.
func (n *Node) Join(group netip.Addr) (fabric.GroupID, error) {
	if !group.IsMulticast() {
		return 0, fmt.Errorf("%w: %v", ErrGroup, group)
	}
	group = group.WithZone("").Unmap()
	if Everybody(group) {
		return fabric.GroupBroadcast, nil
	}
	l := n.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes[n.id] != n {
		return 0, fmt.Errorf("multicast: node %d: %w", n.id, fabric.ErrClosed)
	}
	g, added := l.alloc.Join(group, n.id)
	if !added {
		return g, nil
	}
	// The way to the member first, then the group that leads there.
	err := l.routesLocked(g, n.id, Routes.Join)
	l.table.Set(group, g)
	return g, err
}

// Leave implements Registry.
func (n *Node) Leave(group netip.Addr) error {
	n.l.mu.Lock()
	defer n.l.mu.Unlock()
	if n.l.nodes[n.id] != n {
		return nil
	}
	return n.l.leaveLocked(group.WithZone("").Unmap(), n.id)
}

// Close leaves all groups and takes the node out of the directory, as when it
// has died. It is idempotent.
func (n *Node) Close() error {
	l := n.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes[n.id] != n {
		return nil
	}
	var errs []error
	for _, g := range l.alloc.GroupsOf(n.id) {
		errs = append(errs, l.leaveLocked(g, n.id))
	}
	delete(l.nodes, n.id)
	return errors.Join(errs...)
}

// +checklocks:l.mu
func (l *Local) leaveLocked(group netip.Addr, id fabric.NodeID) error {
	g, removed, gone := l.alloc.Leave(group, id)
	if gone {
		l.table.Delete(group)
	}
	if !removed {
		return nil
	}
	return l.routesLocked(g, id, Routes.Leave)
}

// routesLocked changes the members of a fabric group in the routing tables of
// all other nodes. Those of group 63 are not ours.
//
// +checklocks:l.mu
func (l *Local) routesLocked(g fabric.GroupID, id fabric.NodeID, change func(Routes, fabric.GroupID, fabric.NodeID) error) error {
	if g == fabric.GroupBroadcast {
		return nil
	}
	var errs []error
	for other, n := range l.nodes {
		if other != id {
			errs = append(errs, change(n.routes, g, id))
		}
	}
	return errors.Join(errs...)
}
