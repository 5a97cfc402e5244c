package topo_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"exnet/fabric"
	"exnet/fabric/topo"
)

func TestMistakes(t *testing.T) {
	link := func(a fabric.NodeID, ap topo.Port, b fabric.NodeID, bp topo.Port) topo.Link {
		return topo.Link{A: topo.End{Node: a, Port: ap}, B: topo.End{Node: b, Port: bp}}
	}
	for _, tt := range []struct {
		name  string
		nodes []fabric.NodeID
		links []topo.Link
		want  []string
	}{
		{"no nodes", nil, nil, []string{"no nodes"}},
		{"node twice", []fabric.NodeID{1, 1}, nil, []string{"node 1 appears twice"}},
		{"unknown nodes", []fabric.NodeID{1}, []topo.Link{link(1, 0, 2, 1), link(3, 0, 1, 1)}, []string{
			"link 1 (1.x+ 2.x-): no node 2",
			"link 2 (3.x+ 1.x-): no node 3",
		}},
		{"to itself", []fabric.NodeID{1}, []topo.Link{link(1, 0, 1, 1)}, []string{
			"link 1 (1.x+ 1.x-): it joins a node to itself",
		}},
		{"no such port", []fabric.NodeID{1, 2}, []topo.Link{link(1, 7, 2, 0)}, []string{
			"link 1 (1.port(7) 2.x+): a node has the ports 0 to 6",
		}},
		{"port twice", []fabric.NodeID{1, 2, 3}, []topo.Link{link(1, 0, 2, 1), link(1, 2, 3, 1), link(3, 0, 1, 0)}, []string{
			"link 3 (3.x+ 1.x+): port 1.x+ is taken by link 1 (1.x+ 2.x-)",
		}},
		{"pair twice", []fabric.NodeID{1, 2}, []topo.Link{link(1, 0, 2, 1), link(2, 0, 1, 1)}, []string{
			"link 2 (2.x+ 1.x-): link 1 (1.x+ 2.x-) joins the same nodes already",
		}},
		{"unconnected", []fabric.NodeID{1, 2, 4, 3}, []topo.Link{link(1, 0, 2, 1), link(3, 0, 4, 1)}, []string{
			"no path from node 1 to [3 4]",
		}},
		{"many unconnected", []fabric.NodeID{0, 9, 8, 7, 6, 5, 4, 3, 2, 1}, nil, []string{
			"no path from node 0 to [1 2 3 4 5 6 7 8] and 1 more",
		}},
	} {
		_, err := topo.New("", tt.nodes, tt.links)
		if !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%s: error %v", tt.name, err)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(tt.want) {
			t.Errorf("%s: lines %q, want %q", tt.name, lines, tt.want)
			continue
		}
		for i, l := range lines {
			if l, _, _ = strings.Cut(l, ": fabric:"); l != tt.want[i] {
				t.Errorf("%s: %q, want %q", tt.name, l, tt.want[i])
			}
		}
	}
}

func TestNeighbours(t *testing.T) {
	tp := parse(t, irregular)
	for i, l := range tp.Links() {
		for _, d := range []topo.Link{l, {A: l.B, B: l.A}} {
			if e, ok := tp.Neighbour(d.A.Node, d.A.Port); !ok || e != d.B {
				t.Errorf("%v leads to %v %v, want %v", d.A, e, ok, d.B)
			}
			if n, ok := tp.Between(d.A.Node, d.B.Node); !ok || n != i {
				t.Errorf("between %d and %d is link %d %v, want %d", d.A.Node, d.B.Node, n, ok, i)
			}
		}
	}
	for _, e := range []topo.End{{Node: 10, Port: topo.Port7}, {Node: 4}, {Node: 1, Port: topo.PortHost}, {Node: 1, Port: topo.PortNone}} {
		if to, ok := tp.Neighbour(e.Node, e.Port); ok {
			t.Errorf("%v leads to %v", e, to)
		}
	}
	for _, p := range [][2]fabric.NodeID{{1, 3}, {1, 4}, {4, 1}, {1, 1}} {
		if l, ok := tp.Between(p[0], p[1]); ok {
			t.Errorf("link %d between %v", l, p)
		}
	}
}

func TestCompare(t *testing.T) {
	tp := mesh(t, "4")
	missing, unknown := tp.Compare([]fabric.NodeID{9, 3, 1, 8, 9})
	if !slices.Equal(missing, []fabric.NodeID{0, 2}) || !slices.Equal(unknown, []fabric.NodeID{8, 9}) {
		t.Errorf("missing %v, unknown %v", missing, unknown)
	}
	missing, unknown = tp.Compare(tp.Nodes())
	if missing != nil || unknown != nil {
		t.Errorf("missing %v, unknown %v", missing, unknown)
	}
}

func TestNames(t *testing.T) {
	for want, got := range map[string]string{
		"x+ x- y+ y- z+ z- 7": strings.Join([]string{
			topo.PortXPlus.String(), topo.PortXMinus.String(), topo.PortYPlus.String(), topo.PortYMinus.String(),
			topo.PortZPlus.String(), topo.PortZMinus.String(), topo.Port7.String(),
		}, " "),
		"host":                             topo.PortHost.String(),
		"none":                             topo.PortNone.String(),
		"port(7)":                          topo.Ports.String(),
		"free":                             topo.KindFree.String(),
		"kind(0)":                          topo.Kind(0).String(),
		"torus 4x2: 8 nodes, 12 links":     torus(t, "4x2").String(),
		"mesh 3x3x3: 27 nodes, 54 links":   mesh(t, "3x3x3").String(),
		"irregular: 10 nodes, 12 links":    parse(t, irregular).String(),
		"free: 1 nodes, 0 links":           parse(t, "nodes = [5]").String(),
		"small: torus 3: 3 nodes, 3 links": parse(t, "name = \"small\"\ntorus = \"3\"").String(),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for p := range topo.Ports {
		if got, err := topo.ParsePort(p.String()); err != nil || got != p {
			t.Errorf("port %v is read as %v, %v", p, got, err)
		}
	}
	for _, s := range []string{"", "host", "none", "X+", "8"} {
		if p, err := topo.ParsePort(s); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("port %q is read as %v, %v", s, p, err)
		}
	}
}
