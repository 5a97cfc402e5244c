package control

import (
	"fmt"
	"strings"

	"exnet/fabric"
	"exnet/fabric/topo"
)

// Topology is how a fabric is wired, and what its links have carried.
type Topology struct {
	Name  string          `json:"name,omitempty"`
	Kind  string          `json:"kind"`           // torus, mesh or free
	Dims  string          `json:"dims,omitempty"` // of a torus or mesh: 4x4x4
	Nodes []fabric.NodeID `json:"nodes"`
	Links []TopologyLink  `json:"links"`
	Cut   []Ends          `json:"cut,omitempty"`   // links that are down
	Peers []fabric.NodeID `json:"peers,omitempty"` // nodes that the one that was asked is linked with
	// Shared is what direct sockets have moved through shared memory, on no link.
	Shared []topo.Shared `json:"shared,omitempty"`
}

// TopologyLink is a link: its two ends, and what has crossed it from A to B and
// back.
type TopologyLink struct {
	A     fabric.NodeID `json:"a"`
	APort string        `json:"a_port"`
	B     fabric.NodeID `json:"b"`
	BPort string        `json:"b_port"`
	topo.LinkLoad
}

// NewTopology returns the form of t for JSON. load may be nil.
func NewTopology(t *topo.Topology, load []topo.LinkLoad) *Topology {
	s := &Topology{Name: t.Name(), Kind: t.Kind().String(), Nodes: t.Nodes(), Links: make([]TopologyLink, len(t.Links()))}
	if t.Kind() != topo.KindFree {
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

// Build returns the topology again, and the load of its links.
func (s *Topology) Build() (*topo.Topology, []topo.LinkLoad, error) {
	var text strings.Builder // of a topology file: it is verified as one
	fmt.Fprintf(&text, "name = %q\n", s.Name)
	if s.Dims != "" && len(s.Nodes) > 0 {
		fmt.Fprintf(&text, "%s = %q\nfirst = %d\n", s.Kind, s.Dims, s.Nodes[0])
	} else {
		fmt.Fprintf(&text, "nodes = [%s]\nlinks = [", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(s.Nodes)), ", "), "[]"))
		for _, l := range s.Links {
			fmt.Fprintf(&text, "\"%d.%s %d.%s\", ", l.A, l.APort, l.B, l.BPort)
		}
		text.WriteString("]\n")
	}
	t, err := topo.Parse("topology", []byte(text.String()))
	if err != nil {
		return nil, nil, err
	}
	load := make([]topo.LinkLoad, len(t.Links()))
	for _, l := range s.Links {
		i, ok := t.Between(l.A, l.B)
		if !ok {
			return nil, nil, fmt.Errorf("topology: no link between node %d and node %d: %w", l.A, l.B, fabric.ErrNoRoute)
		}
		if t.Links()[i].A.Node != l.A {
			l.AB, l.BA = l.BA, l.AB
		}
		load[i] = l.LinkLoad
	}
	return t, load, nil
}
