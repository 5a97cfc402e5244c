package control

import (
	"fmt"

	"exnet/fabric"
	"exnet/fabric/topo"
)

// Topology describes how a fabric is wired, and what its links have carried.
type Topology struct {
	Name  string          `json:"name,omitempty"`
	Kind  string          `json:"kind"`           // torus, mesh, free, or pairs: no topology
	Dims  string          `json:"dims,omitempty"` // of a torus or mesh: 4x4x4
	Nodes []fabric.NodeID `json:"nodes"`
	Links []TopologyLink  `json:"links"`
	Cut   []Ends          `json:"cut,omitempty"`   // links that are down
	Peers []fabric.NodeID `json:"peers,omitempty"` // nodes linked with the node that was asked
	// Shared is the traffic of direct sockets in shared memory, which no link carries.
	Shared []topo.Shared `json:"shared,omitempty"`
}

// TopologyLink is a link: its two ends, and its traffic from A to B and from B to A.
type TopologyLink struct {
	A     fabric.NodeID `json:"a"`
	APort string        `json:"a_port"` // none, of pairs
	B     fabric.NodeID `json:"b"`
	BPort string        `json:"b_port"` // none, of pairs
	topo.LinkLoad
}

// NewTopology returns the form of t for JSON. load may be nil.
func NewTopology(t *topo.Topology, load []topo.LinkLoad) *Topology {
	s := &Topology{Name: t.Name(), Kind: t.Kind().String(), Nodes: t.Nodes(), Links: make([]TopologyLink, len(t.Links()))}
	if t.Kind() == topo.KindTorus || t.Kind() == topo.KindMesh {
		s.Dims = t.Dims().String()
	}
	for i, l := range t.Links() {
		s.Links[i] = TopologyLink{A: l.A.Node, APort: l.A.Port.String(), B: l.B.Node, BPort: l.B.Port.String()}
		if i < len(load) {
			s.Links[i].LinkLoad = load[i]
		}
	}
	return s
}

// Build verifies s, and returns the topology and the load of its links.
func (s *Topology) Build() (*topo.Topology, []topo.LinkLoad, error) {
	t, err := s.wired()
	if err != nil {
		return nil, nil, err
	}
	load := make([]topo.LinkLoad, len(t.Links()))
	for _, l := range s.Links {
		i, ok := t.Between(l.A, l.B)
		if !ok {
			return nil, nil, fmt.Errorf("control: no link between node %d and node %d: %w", l.A, l.B, fabric.ErrNoRoute)
		}
		if t.Links()[i].A.Node != l.A {
			l.AB, l.BA = l.BA, l.AB
		}
		load[i] = l.LinkLoad
	}
	return t, load, nil
}

// wired returns the topology without its load.
func (s *Topology) wired() (*topo.Topology, error) {
	for _, k := range []topo.Kind{topo.KindTorus, topo.KindMesh} {
		if s.Kind == k.String() {
			d, err := topo.ParseDims(s.Dims)
			if err != nil {
				return nil, err
			}
			return topo.NewGrid(s.Name, k, d, s.Nodes)
		}
	}
	links := make([]topo.Link, len(s.Links))
	for i, l := range s.Links {
		a, err := topo.ParsePort(l.APort)
		if err != nil {
			return nil, err
		}
		b, err := topo.ParsePort(l.BPort)
		if err != nil {
			return nil, err
		}
		links[i] = topo.Link{A: topo.End{Node: l.A, Port: a}, B: topo.End{Node: l.B, Port: b}}
	}
	return topo.New(s.Name, s.Nodes, links)
}
