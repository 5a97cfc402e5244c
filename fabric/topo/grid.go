package topo

import (
	"fmt"
	"strconv"
	"strings"

	"exnet/fabric"
)

// Dims are the sizes of a grid in x, y and z. A dimension of size 1 does not exist.
type Dims [3]int

// ParseDims reads dimensions such as "8", "4x4" or "4x4x4".
func ParseDims(s string) (Dims, error) {
	d := Dims{1, 1, 1}
	parts := strings.Split(s, "x")
	if len(parts) > len(d) {
		return Dims{}, fmt.Errorf("dimensions %q: use at most three: %w", s, fabric.ErrInvalid)
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 17)
		if err != nil || n == 0 {
			return Dims{}, fmt.Errorf("dimensions %q: use numbers such as 4x4x4: %w", s, fabric.ErrInvalid)
		}
		d[i] = int(n)
	}
	return d, d.check()
}

func (d Dims) check() error {
	for _, n := range d {
		if n < 1 || n > MaxNodes {
			return fmt.Errorf("dimensions %v: use sizes from 1 to %d: %w", d, MaxNodes, fabric.ErrInvalid)
		}
	}
	if d.Nodes() > MaxNodes {
		return fmt.Errorf("dimensions %v make %d nodes; use at most %d: %w", d, d.Nodes(), MaxNodes, fabric.ErrInvalid)
	}
	return nil
}

// Nodes is how many nodes the grid has.
func (d Dims) Nodes() int { return d[0] * d[1] * d[2] }

// String returns d in the form "4x4x4", without dimensions of size 1 at the end.
func (d Dims) String() string {
	s := strconv.Itoa(d[0])
	if d[1] > 1 || d[2] > 1 {
		s += "x" + strconv.Itoa(d[1])
	}
	if d[2] > 1 {
		s += "x" + strconv.Itoa(d[2])
	}
	return s
}

// coordsOf returns the coordinates of the i-th node of the grid, x counting fastest.
func (d Dims) coordsOf(i int) [3]int {
	return [3]int{i % d[0], i / d[0] % d[1], i / (d[0] * d[1])}
}

func (d Dims) positionOf(c [3]int) int { return c[0] + d[0]*(c[1]+d[1]*c[2]) }

// IDs returns as many consecutive node IDs as the grid has nodes, beginning with first.
func (d Dims) IDs(first fabric.NodeID) ([]fabric.NodeID, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if int(first)+d.Nodes() > MaxNodes {
		return nil, fmt.Errorf("dimensions %v, first node %d: node IDs end at %d: %w", d, first, MaxNodes-1, fabric.ErrInvalid)
	}
	nodes := make([]fabric.NodeID, d.Nodes())
	for i := range nodes {
		nodes[i] = first + fabric.NodeID(i)
	}
	return nodes, nil
}

// NewTorus returns a torus: a grid whose rows are rings. Node IDs begin with first, x
// counting fastest. A ring of two nodes has one link. The error wraps
// fabric.ErrInvalid.
func NewTorus(d Dims, first fabric.NodeID) (*Topology, error) {
	return gridFrom(KindTorus, d, first)
}

// NewMesh is NewTorus for a mesh: a grid whose rows have two ends.
func NewMesh(d Dims, first fabric.NodeID) (*Topology, error) {
	return gridFrom(KindMesh, d, first)
}

func gridFrom(k Kind, d Dims, first fabric.NodeID) (*Topology, error) {
	nodes, err := d.IDs(first)
	if err != nil {
		return nil, err
	}
	return NewGrid("", k, d, nodes)
}

// NewGrid returns a torus or mesh of the given nodes, x counting fastest. There must be as many
// as the grid has places.
func NewGrid(name string, k Kind, d Dims, nodes []fabric.NodeID) (*Topology, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if len(nodes) != d.Nodes() {
		return nil, fmt.Errorf("%d nodes, %v %v has %d: %w", len(nodes), k, d, d.Nodes(), fabric.ErrInvalid)
	}
	var links []Link
	for i, n := range nodes {
		c := d.coordsOf(i)
		for dim := range d {
			next := c
			if next[dim]++; next[dim] == d[dim] {
				if k == KindMesh || d[dim] <= 2 {
					continue
				}
				next[dim] = 0
			}
			plus := Port(2 * dim)
			links = append(links, Link{End{n, plus}, End{nodes[d.positionOf(next)], plus + 1}})
		}
	}
	return buildTopology(name, k, d, nodes, links)
}
