// Package route has the routing tables of a NIC: node to port, and multicast
// group to members (thesis 5.4.5.2).
//
// # Architecture
//
// A node ID is looked up in two steps: in a global table of 64 segments, then in the
// segment's local table of 1024 nodes. So no table has 65,536 entries. On a link where
// every peer is one hop away, the port leads straight to the peer. The multicast table
// has 64 groups. Packages topo and crossbar implement the hops of a fabric with a
// topology.
//
// # Concurrency
//
// Port and Members take no lock: an atomic pointer load and an array index each.
// Changes take a lock and become visible at once.
//
// # Limits
//
// No more than 64 groups; a group may have every node of the fabric.
package route

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/link"
)

// Table holds the routing tables of one NIC. The zero Table is empty.
type Table struct {
	// Links are the links that have to be polled.
	Links link.Set

	nodes  NodeMap[entry]
	mu     sync.Mutex // serialises changes of groups
	groups [fabric.Groups]atomic.Pointer[[]fabric.NodeID]

	otherwise   atomic.Pointer[func(fabric.NodeID) link.Port]
	elsewhere   atomic.Pointer[func(fabric.GroupID) []fabric.NodeID]
	onMulticast atomic.Pointer[func(fabric.GroupID, []fabric.NodeID, int)]
}

type entry struct{ port link.Port }

// Port returns the port that leads to n, or nil.
func (t *Table) Port(n fabric.NodeID) link.Port {
	e := t.nodes.Load(n)
	if e == nil {
		if f := t.otherwise.Load(); f != nil {
			return (*f)(n)
		}
		return nil
	}
	return e.port
}

// Otherwise sets a function that returns the port to a node that is not in the table, or nil. It is
// called at each use, so its owner need not know all nodes in advance.
func (t *Table) Otherwise(f func(fabric.NodeID) link.Port) { t.otherwise.Store(&f) }

// Set makes p the port to n.
func (t *Table) Set(n fabric.NodeID, p link.Port) { t.nodes.Store(n, &entry{p}) }

// Remove deletes the port to n, and removes n from every group.
func (t *Table) Remove(n fabric.NodeID) {
	t.nodes.Store(n, nil)
	for g := range fabric.GroupID(fabric.Groups) {
		t.removeMember(g, n)
	}
}

// OnMulticast sets a function that is called for each message to a group, with its
// members and the length of the payload: the crossbar replicates the message, and
// no port sees that. nil removes it.
func (t *Table) OnMulticast(f func(g fabric.GroupID, members []fabric.NodeID, n int)) {
	if f == nil {
		t.onMulticast.Store(nil)
		return
	}
	t.onMulticast.Store(&f)
}

// Multicast is called for a message of n bytes to g, before it is sent.
func (t *Table) Multicast(g fabric.GroupID, n int) {
	if f := t.onMulticast.Load(); f != nil {
		(*f)(g, t.Members(g), n)
	}
}

// Members returns the nodes that a message to g goes to, in ascending order. The
// caller must not change the slice; it is not updated when the group changes.
func (t *Table) Members(g fabric.GroupID) []fabric.NodeID {
	if !g.Valid() {
		return nil
	}
	if m := t.groups[g].Load(); m != nil && len(*m) > 0 {
		return *m
	}
	if f := t.elsewhere.Load(); f != nil {
		return (*f)(g)
	}
	return nil
}

// Elsewhere sets the function that returns the members of groups that no node was joined to in this
// table. f is called at each use, with a valid group, and must keep the promises of Members.
func (t *Table) Elsewhere(f func(fabric.GroupID) []fabric.NodeID) { t.elsewhere.Store(&f) }

// Join adds n to g. The owner of the table is never a member of its own groups:
// a multicast is not sent back.
func (t *Table) Join(g fabric.GroupID, n fabric.NodeID) error {
	if !g.Valid() {
		return fmt.Errorf("route: join: group %d: %w", g, fabric.ErrInvalid)
	}
	t.replaceMembers(g, func(m []fabric.NodeID) []fabric.NodeID {
		i, ok := slices.BinarySearch(m, n)
		if ok {
			return nil
		}
		return slices.Insert(slices.Clone(m), i, n)
	})
	return nil
}

// Leave removes n from g.
func (t *Table) Leave(g fabric.GroupID, n fabric.NodeID) error {
	if !g.Valid() {
		return fmt.Errorf("route: leave: group %d: %w", g, fabric.ErrInvalid)
	}
	t.removeMember(g, n)
	return nil
}

func (t *Table) removeMember(g fabric.GroupID, n fabric.NodeID) {
	t.replaceMembers(g, func(m []fabric.NodeID) []fabric.NodeID {
		i, ok := slices.BinarySearch(m, n)
		if !ok {
			return nil
		}
		return slices.Delete(slices.Clone(m), i, i+1)
	})
}

// replaceMembers replaces g's members by f's result, unless that is nil.
func (t *Table) replaceMembers(g fabric.GroupID, f func([]fabric.NodeID) []fabric.NodeID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var have []fabric.NodeID
	if m := t.groups[g].Load(); m != nil {
		have = *m
	}
	if m := f(have); m != nil {
		t.groups[g].Store(&m)
	}
}
