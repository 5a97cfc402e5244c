package topo

import (
	"fmt"
	"slices"

	"exnet/fabric"
)

// Tree is the route of a multicast from its source to all members of a group. Each link
// of the tree is crossed once, and its nodes replicate packets.
//
// Concurrency: it is immutable.
type Tree struct {
	routes   *Routes
	source   fabric.NodeID
	members  []fabric.NodeID // reached, ascending
	channels []int32         // crossed, each after those that lead to it
}

// Tree returns the tree from source to members. It reaches each member over a shortest
// path: the reverse of the tables' path from the member to the source. Such paths stay
// together once they meet, so every node is reached from one side only. Members that
// cannot be reached are left out, and so is the source. The error wraps
// fabric.ErrNoRoute if the source is not a node.
func (r *Routes) Tree(source fabric.NodeID, members []fabric.NodeID) (*Tree, error) {
	root := r.topo.positionOf(source)
	if root < 0 {
		return nil, fmt.Errorf("topo: multicast from node %d: %w", source, fabric.ErrNoRoute)
	}
	t := &Tree{routes: r, source: source}
	on := make([]bool, len(r.topo.nodes))
	on[root] = true
	for _, m := range members {
		if m == source || !r.Reachable(source, m) {
			continue
		}
		t.members = append(t.members, m)
		end := len(t.channels)
		for at := r.topo.positionOf(m); !on[at]; {
			on[at] = true
			h := r.topo.hopAt(at, r.tableAt(at).Port(source))
			t.channels = append(t.channels, h.channel^1) // the other direction
			at = h.node
		}
		slices.Reverse(t.channels[end:])
	}
	slices.Sort(t.members)
	t.members = slices.Compact(t.members)
	return t, nil
}

// Routes returns the routes that the tree was made from.
func (t *Tree) Routes() *Routes { return t.routes }

// Source returns the node where the tree begins.
func (t *Tree) Source() fabric.NodeID { return t.source }

// Members lends the members that the tree reaches, in ascending order.
func (t *Tree) Members() []fabric.NodeID { return t.members }

// Len returns how many links the tree has.
func (t *Tree) Len() int { return len(t.channels) }

// Carry counts a multicast of packets, with bytes in all, on every link of the
// tree. It does not allocate.
func (t *Tree) Carry(l *Load, packets, bytes uint64) {
	for _, c := range t.channels {
		l.channels[c].add(packets, bytes)
	}
}

// Hop is a step of a tree.
type Hop struct {
	From End
	To   End
}

// Hops returns the steps of the tree, each after the one that leads to it.
func (t *Tree) Hops() []Hop {
	hops := make([]Hop, len(t.channels))
	for i, c := range t.channels {
		l := t.routes.topo.links[c/2]
		hops[i] = Hop{l.A, l.B}
		if c%2 == 1 {
			hops[i] = Hop{l.B, l.A}
		}
	}
	return hops
}

// PortSet is a set of ports: bit p is Port p, and bit PortHost the node itself. It
// is an entry of a multicast table.
type PortSet uint16

// Has reports whether p is in the set.
func (s PortSet) Has(p Port) bool { return p <= PortHost && s>>p&1 == 1 }

// Ports returns the entry of n's multicast table for this tree: the ports to which n's
// crossbar forwards a packet.
func (t *Tree) Ports(n fabric.NodeID) (s PortSet) {
	for _, h := range t.Hops() {
		if h.From.Node == n {
			s |= 1 << h.From.Port
		}
	}
	if _, ok := slices.BinarySearch(t.members, n); ok {
		s |= 1 << PortHost
	}
	return s
}
