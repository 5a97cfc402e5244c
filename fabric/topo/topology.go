package topo

import (
	"errors"
	"fmt"
	"slices"

	"exnet/fabric"
	"exnet/internal/display"
)

// MaxNodes is how many nodes a fabric can have: one for each node ID.
const MaxNodes = fabric.Segments * fabric.NodesPerSegment

// End is where a link ends: a port of a node.
type End struct {
	Node fabric.NodeID
	Port Port
}

// String returns e in the form "3.x+", or "3" if it is at no port.
func (e End) String() string {
	if e.Port == PortNone {
		return fmt.Sprint(e.Node)
	}
	return fmt.Sprintf("%d.%v", e.Node, e.Port)
}

// Link is a cable between two nodes. It carries packets both ways.
type Link struct{ A, B End }

// String returns l in the form of topology files, "3.x+ 4.x-".
func (l Link) String() string { return l.A.String() + " " + l.B.String() }

// Kind is the shape of a topology.
type Kind uint8

// The kinds of topologies. The zero Kind is invalid.
const (
	KindFree Kind = iota + 1
	KindTorus
	KindMesh
	KindPairs // each node is one hop from every other; see NewPairs
)

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case KindFree:
		return "free"
	case KindTorus:
		return "torus"
	case KindMesh:
		return "mesh"
	case KindPairs:
		return "pairs"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Topology is the nodes and links of a fabric. Its constructors verify that every link
// joins two different nodes that exist, that no port and no pair of nodes has two
// links, and that all nodes are connected.
//
// Concurrency: it is immutable; all methods may be called from many goroutines.
type Topology struct {
	name  string
	kind  Kind
	dims  Dims
	nodes []fabric.NodeID
	links []Link
	index []int32 // by node ID: position in nodes, or -1
	hops  []hop   // by node and port, hopStride apart
}

// hop is where a port leads: channel 2l is link l from A to B, 2l+1 back.
type hop struct {
	node    int32 // position in nodes, or -1
	channel int32
}

const hopStride = 8 // Ports, rounded up to a power of two

// New returns a free topology of nodes and links. If something is wrong, the
// error has a line for each mistake and wraps fabric.ErrInvalid.
func New(name string, nodes []fabric.NodeID, links []Link) (*Topology, error) {
	return buildTopology(name, KindFree, Dims{}, nodes, links)
}

// NewPairs returns what a fabric without a topology looks like: pairs of nodes that are linked
// directly, at no port. It is for drawing; there are no routes over it. The error wraps
// fabric.ErrInvalid: a node or a pair is there twice, or a pair's node is none of nodes.
func NewPairs(name string, nodes []fabric.NodeID, pairs [][2]fabric.NodeID) (*Topology, error) {
	t := &Topology{name: name, kind: KindPairs, nodes: slices.Clone(nodes)}
	errs := t.enterNodes()
	seen := make(map[[2]fabric.NodeID]bool)
	for _, p := range pairs {
		p := [2]fabric.NodeID{min(p[0], p[1]), max(p[0], p[1])}
		if seen[p] || p[0] == p[1] || !t.Has(p[0]) || !t.Has(p[1]) {
			errs = append(errs, fmt.Errorf("pair %d and %d: each of two nodes, once: %w", p[0], p[1], fabric.ErrInvalid))
		}
		seen[p] = true
		t.links = append(t.links, Link{End{p[0], PortNone}, End{p[1], PortNone}})
	}
	return t, errors.Join(errs...)
}

func buildTopology(name string, k Kind, d Dims, nodes []fabric.NodeID, links []Link) (*Topology, error) {
	t := &Topology{name: name, kind: k, dims: d, nodes: slices.Clone(nodes), links: slices.Clone(links)}
	errs := t.enterNodes()
	for i, l := range t.links {
		if err := t.addLink(i, l); err != nil {
			errs = append(errs, &LinkError{Index: i, Link: l, Reason: err.Error()})
		}
	}
	if len(errs) == 0 {
		errs = append(errs, t.listUnconnected()...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

// LinkError is a mistake in a link.
type LinkError struct {
	Index  int // of the link, from 0
	Link   Link
	Reason string
}

// Error implements error.
func (e *LinkError) Error() string {
	return fmt.Sprintf("link %d (%v): %s", e.Index+1, e.Link, e.Reason)
}

// Unwrap returns fabric.ErrInvalid.
func (e *LinkError) Unwrap() error { return fabric.ErrInvalid }

func (t *Topology) enterNodes() (errs []error) {
	if len(t.nodes) == 0 {
		return []error{fmt.Errorf("no nodes: %w", fabric.ErrInvalid)}
	}
	t.index = make([]int32, int(slices.Max(t.nodes))+1)
	for i := range t.index {
		t.index[i] = -1
	}
	for i, n := range t.nodes {
		if t.index[n] >= 0 {
			errs = append(errs, fmt.Errorf("node %d appears twice: %w", n, fabric.ErrInvalid))
			continue
		}
		t.index[n] = int32(i)
	}
	t.hops = make([]hop, hopStride*len(t.nodes))
	for i := range t.hops {
		t.hops[i] = hop{-1, -1}
	}
	return errs
}

// addLink adds the link i to the table of ports.
func (t *Topology) addLink(i int, l Link) error {
	a, b := t.positionOf(l.A.Node), t.positionOf(l.B.Node)
	switch {
	case a < 0:
		return fmt.Errorf("no node %d", l.A.Node)
	case b < 0:
		return fmt.Errorf("no node %d", l.B.Node)
	case a == b:
		return errors.New("it joins a node to itself")
	case !l.A.Port.Valid() || !l.B.Port.Valid():
		return fmt.Errorf("a node has the ports 0 to %d", Ports-1)
	}
	for _, e := range []End{l.A, l.B} {
		if h := t.hopAt(t.positionOf(e.Node), e.Port); h.node >= 0 {
			return fmt.Errorf("port %v is taken by link %d (%v)", e, h.channel/2+1, t.links[h.channel/2])
		}
	}
	if j, ok := t.Between(l.A.Node, l.B.Node); ok {
		return fmt.Errorf("link %d (%v) joins the same nodes already", j+1, t.links[j])
	}
	t.hops[hopStride*a+int32(l.A.Port)] = hop{b, int32(2 * i)}
	t.hops[hopStride*b+int32(l.B.Port)] = hop{a, int32(2*i + 1)}
	return nil
}

// listUnconnected names the nodes that the first node cannot reach.
func (t *Topology) listUnconnected() []error {
	part := numberComponents(t, nil)
	var lost []fabric.NodeID
	for i, n := range t.nodes {
		if part[i] != part[0] {
			lost = append(lost, n)
		}
	}
	if lost == nil {
		return nil
	}
	slices.Sort(lost)
	more := ""
	if len(lost) > 8 {
		more = fmt.Sprintf(" and %d more", len(lost)-8)
		lost = lost[:8]
	}
	return []error{fmt.Errorf("no path from node %d to %v%s: %w", t.nodes[0], lost, more, fabric.ErrInvalid)}
}

// positionOf returns the position of n, or -1.
func (t *Topology) positionOf(n fabric.NodeID) int32 {
	if int(n) >= len(t.index) {
		return -1
	}
	return t.index[n]
}

func (t *Topology) hopAt(at int32, p Port) hop { return t.hops[hopStride*at+int32(p)] }

// Name returns the name given to the topology.
func (t *Topology) Name() string { return t.name }

// Kind returns the kind.
func (t *Topology) Kind() Kind { return t.kind }

// Dims returns the dimensions of a torus or mesh, and zeros otherwise.
func (t *Topology) Dims() Dims { return t.dims }

// Nodes lends the node IDs; in a grid x counts fastest. The caller must not change the
// slice.
func (t *Topology) Nodes() []fabric.NodeID { return t.nodes }

// Links lends the links. The caller must not change the slice. The index of a link in it
// is the number of the link.
func (t *Topology) Links() []Link { return t.links }

// Has reports whether n is a node.
func (t *Topology) Has(n fabric.NodeID) bool { return t.positionOf(n) >= 0 }

// Neighbour returns the other end of a port's link, or false if there is no link.
func (t *Topology) Neighbour(n fabric.NodeID, p Port) (End, bool) {
	if !t.Has(n) || !p.Valid() {
		return End{}, false
	}
	h := t.hopAt(t.positionOf(n), p)
	if h.node < 0 {
		return End{}, false
	}
	l := t.links[h.channel/2]
	if h.channel%2 == 0 {
		return l.B, true
	}
	return l.A, true
}

// Between returns the number of the link that joins a and b, or false if there is none.
func (t *Topology) Between(a, b fabric.NodeID) (int, bool) {
	i, j := t.positionOf(a), t.positionOf(b)
	if i < 0 || j < 0 {
		return 0, false
	}
	for p := range Ports {
		if h := t.hopAt(i, p); h.node == j {
			return int(h.channel / 2), true
		}
	}
	return 0, false
}

// Compare compares the topology with the nodes in present. missing are the nodes of the
// topology that are not there; unknown are those that do not belong to it. Both are in
// ascending order.
func (t *Topology) Compare(present []fabric.NodeID) (missing, unknown []fabric.NodeID) {
	seen := make([]bool, len(t.nodes))
	for _, n := range present {
		if i := t.positionOf(n); i >= 0 {
			seen[i] = true
		} else {
			unknown = append(unknown, n)
		}
	}
	for i, n := range t.nodes {
		if !seen[i] {
			missing = append(missing, n)
		}
	}
	slices.Sort(missing)
	slices.Sort(unknown)
	return missing, slices.Compact(unknown)
}

// String describes the topology in a few words: "torus 4x4x4: 64 nodes, 192 links".
func (t *Topology) String() string {
	s := t.kind.String()
	switch {
	case t.kind == KindPairs:
		return fmt.Sprintf("%s, without a topology: %s, linked pairs: %d", t.name, display.Count(len(t.nodes), "node"), len(t.links))
	case t.kind == KindFree && t.name != "":
		s = t.name
	case t.kind != KindFree && t.name != "":
		s = t.name + ": " + s + " " + t.dims.String()
	case t.kind != KindFree:
		s += " " + t.dims.String()
	}
	return fmt.Sprintf("%s: %d nodes, %d links", s, len(t.nodes), len(t.links))
}
