package topo

import (
	"fmt"
	"slices"
	"sync/atomic"

	"exnet/fabric"
)

// Routes are the routing tables of all nodes of a topology, some of whose links may be
// cut. They are immutable: a cut makes new Routes.
//
// Concurrency: all methods may be called from many goroutines.
type Routes struct {
	topo             *Topology
	down             []bool  // by link; nil: all are up
	part             []int32 // by position: the connected part that the node is in
	tables           []atomic.Pointer[Table]
	shelf            *shelf
	overrideChannels map[tagged][]int32 // channels of the overrides; immutable
}

// NewRoutes returns the routes of t without the links whose numbers are in down. The
// error wraps fabric.ErrInvalid if there is no such link.
func NewRoutes(t *Topology, down ...int) (*Routes, error) {
	r := &Routes{topo: t, tables: make([]atomic.Pointer[Table], len(t.nodes)), shelf: &shelf{tables: make(map[local]*local)}}
	for _, l := range down {
		if l < 0 || l >= len(t.links) {
			return nil, fmt.Errorf("topo: link %d of %d: %w", l, len(t.links), fabric.ErrInvalid)
		}
		if r.down == nil {
			r.down = make([]bool, len(t.links))
		}
		r.down[l] = true
	}
	r.part = numberComponents(t, r.down)
	return r, nil
}

// Topology returns the topology of the routes.
func (r *Routes) Topology() *Topology { return r.topo }

// Down reports whether a link is cut.
func (r *Routes) Down(link int) bool { return r.down != nil && r.down[link] }

// Cut returns the numbers of the links that are cut.
func (r *Routes) Cut() (links []int) {
	for i, d := range r.down {
		if d {
			links = append(links, i)
		}
	}
	return links
}

// Table returns the routing table of n, or nil if there is no such node.
func (r *Routes) Table(n fabric.NodeID) *Table {
	at := r.topo.positionOf(n)
	if at < 0 {
		return nil
	}
	return r.tableAt(at)
}

func (r *Routes) tableAt(at int32) *Table {
	if t := r.tables[at].Load(); t != nil {
		return t
	}
	return r.makeTable(at) // two goroutines may do the same work, with the same result
}

// makeTable makes the table of the node at a position.
func (r *Routes) makeTable(at int32) *Table {
	n := len(r.topo.nodes)
	ports := make([]Port, n)
	switch {
	case r.topo.kind == KindFree:
		r.shortestPorts(at, ports)
	case r.down == nil:
		r.dimensionOrder(at, ports)
	default:
		r.shortestPorts(at, ports)
		r.keepIntact(at, ports)
	}
	t := r.shelf.makeTable(r.topo.nodes, ports, make([]Port, len(r.topo.index)))
	r.tables[at].Store(t)
	return t
}

// Tables returns how many tables exist: one for each node whose table was used, and the
// local tables that these share.
func (r *Routes) Tables() (nodes, locals int) {
	for i := range r.tables {
		if r.tables[i].Load() != nil {
			nodes++
		}
	}
	return nodes, r.shelf.len()
}

// Reachable reports whether there is a path from a to b.
func (r *Routes) Reachable(a, b fabric.NodeID) bool {
	i, j := r.topo.positionOf(a), r.topo.positionOf(b)
	return i >= 0 && j >= 0 && r.part[i] == r.part[j]
}

// Path returns the ends at which a packet of no class from a to b leaves each node: none if
// a is b. The error wraps fabric.ErrNoRoute if there is no path.
func (r *Routes) Path(a, b fabric.NodeID) ([]End, error) { return r.PathOf(a, b, 0) }

// PathOf is Path for a packet of a class.
func (r *Routes) PathOf(a, b fabric.NodeID, c fabric.Class) ([]End, error) {
	if !r.Reachable(a, b) {
		return nil, fmt.Errorf("topo: node %d to node %d: %w", a, b, fabric.ErrNoRoute)
	}
	if over, ok := r.overrideFor(a, b, c); ok {
		return r.exitsOf(over), nil
	}
	var path []End
	for at := r.topo.positionOf(a); ; {
		p := r.tableAt(at).Port(b)
		if p == PortHost {
			return path, nil
		}
		path = append(path, End{r.topo.nodes[at], p})
		at = r.topo.hopAt(at, p).node
	}
}

// Hops returns how many links a packet of no class from a to b crosses, or -1 if there is no path.
func (r *Routes) Hops(a, b fabric.NodeID) int {
	if !r.Reachable(a, b) {
		return -1
	}
	if over, ok := r.overrideFor(a, b, 0); ok {
		return len(over)
	}
	at, n := r.topo.positionOf(a), 0
	for p := r.tableAt(at).Port(b); p != PortHost; p = r.tableAt(at).Port(b) {
		at = r.topo.hopAt(at, p).node
		n++
	}
	return n
}

// Carry counts packets of no class from a to b, with bytes in all, on every link that
// they cross, according to overrides and tables. It reports whether there is a path. It
// does not allocate once the tables of the nodes on the path exist.
func (r *Routes) Carry(l *Load, a, b fabric.NodeID, packets, bytes uint64) bool {
	return r.CarryOf(l, a, b, 0, packets, bytes)
}

// CarryOf is Carry for packets of a class.
func (r *Routes) CarryOf(l *Load, a, b fabric.NodeID, class fabric.Class, packets, bytes uint64) bool {
	if over, ok := r.overrideFor(a, b, class); ok {
		for _, c := range over {
			l.channels[c].add(packets, bytes)
		}
		return true
	}
	at := r.topo.positionOf(a)
	if at < 0 {
		return false
	}
	for {
		p := r.tableAt(at).Port(b)
		if p >= Ports {
			return p == PortHost
		}
		h := r.topo.hopAt(at, p)
		l.channels[h.channel].add(packets, bytes)
		at = h.node
	}
}

// Parts returns the nodes of each connected part, the part of the first node
// first.
func (r *Routes) Parts() [][]fabric.NodeID {
	parts := make([][]fabric.NodeID, slices.Max(r.part)+1)
	for i, n := range r.topo.nodes {
		parts[r.part[i]] = append(parts[r.part[i]], n)
	}
	return parts
}
