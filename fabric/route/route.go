// Package route has the routing tables of a NIC: node to port, and multicast
// group to members (thesis 5.4.5.2).
//
// # Architecture
//
// A node ID is looked up in two steps, a global table of 64 segments and a local
// table of 1024 nodes per segment, so that nobody needs a table of 65,536
// entries. On a link where every peer is one hop away, the port leads straight to
// the peer. The multicast table has 64 groups. Packages topo and crossbar
// implement the hops of a fabric with a topology.
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

// Otherwise sets what gives the port to a node that the table has no way to: whoever is asked at
// each use whether there is such a node need not know them all. It returns a port or nil.
func (t *Table) Otherwise(f func(fabric.NodeID) link.Port) { t.otherwise.Store(&f) }

// Set enters p as the way to n.
func (t *Table) Set(n fabric.NodeID, p link.Port) { t.nodes.Store(n, &entry{p}) }

// Remove deletes the way to n and takes n out of every group.
func (t *Table) Remove(n fabric.NodeID) {
	t.nodes.Store(n, nil)
	for g := range fabric.GroupID(fabric.Groups) {
		t.leave(g, n)
	}
}

// OnMulticast sets what is called for each message to a group, with its members
// and the length of the payload: the crossbar replicates it for all of them, which
// no port sees. nil: nothing.
func (t *Table) OnMulticast(f func(g fabric.GroupID, members []fabric.NodeID, n int)) {
	if f == nil {
		t.onMulticast.Store(nil)
		return
	}
	t.onMulticast.Store(&f)
}

// Multicast is called for a message of n bytes that goes to g, before it goes.
func (t *Table) Multicast(g fabric.GroupID, n int) {
	if f := t.onMulticast.Load(); f != nil {
		(*f)(g, t.Members(g), n)
	}
}

// Members returns the nodes that a message to g goes to, in ascending order. The
// slice must not be changed; it stays as it is when the group changes.
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

// Elsewhere sets what gives the members of groups that nobody has joined here: they are kept
// elsewhere. f is called at each use, with a valid group, and keeps the promises of Members.
func (t *Table) Elsewhere(f func(fabric.GroupID) []fabric.NodeID) { t.elsewhere.Store(&f) }

// Join adds n to g. The owner of the table is never a member of its own groups:
// a multicast is not sent back.
func (t *Table) Join(g fabric.GroupID, n fabric.NodeID) error {
	if !g.Valid() {
		return fmt.Errorf("route: join: group %d: %w", g, fabric.ErrInvalid)
	}
	t.change(g, func(m []fabric.NodeID) []fabric.NodeID {
		i, ok := slices.BinarySearch(m, n)
		if ok {
			return nil
		}
		return slices.Insert(slices.Clone(m), i, n)
	})
	return nil
}

// Leave takes n out of g.
func (t *Table) Leave(g fabric.GroupID, n fabric.NodeID) error {
	if !g.Valid() {
		return fmt.Errorf("route: leave: group %d: %w", g, fabric.ErrInvalid)
	}
	t.leave(g, n)
	return nil
}

func (t *Table) leave(g fabric.GroupID, n fabric.NodeID) {
	t.change(g, func(m []fabric.NodeID) []fabric.NodeID {
		i, ok := slices.BinarySearch(m, n)
		if !ok {
			return nil
		}
		return slices.Delete(slices.Clone(m), i, i+1)
	})
}

// change replaces g's members by f's result, unless that is nil.
func (t *Table) change(g fabric.GroupID, f func([]fabric.NodeID) []fabric.NodeID) {
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
