package topo_test

import (
	_ "embed"
	"testing"

	"exnet/fabric"
	"exnet/fabric/topo"
	"exnet/fabric/topo/topofile"
)

func torus(tb testing.TB, dims string) *topo.Topology {
	tb.Helper()
	return grid(tb, topo.NewTorus, dims)
}

func mesh(tb testing.TB, dims string) *topo.Topology {
	tb.Helper()
	return grid(tb, topo.NewMesh, dims)
}

func grid(tb testing.TB, make func(topo.Dims, fabric.NodeID) (*topo.Topology, error), dims string) *topo.Topology {
	tb.Helper()
	d, err := topo.ParseDims(dims)
	if err != nil {
		tb.Fatal(err)
	}
	t, err := make(d, 0)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func parse(tb testing.TB, text string) *topo.Topology {
	tb.Helper()
	t, err := topofile.Parse("lab.toml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func routes(tb testing.TB, t *topo.Topology, down ...int) *topo.Routes {
	tb.Helper()
	r, err := topo.NewRoutes(t, down...)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// irregular has rings of different sizes, a tail, a seventh port and node IDs of several segments.
//
//go:embed topofile/testdata/irregular.toml
var irregular string

// distances are the hops from one node to all others over the links that are not
// down: the plainest breadth-first search, as an oracle.
func distances(t *topo.Topology, from fabric.NodeID, down ...int) map[fabric.NodeID]int {
	next := make(map[fabric.NodeID][]fabric.NodeID)
	cut := make(map[int]bool)
	for _, l := range down {
		cut[l] = true
	}
	for i, l := range t.Links() {
		if !cut[i] {
			next[l.A.Node] = append(next[l.A.Node], l.B.Node)
			next[l.B.Node] = append(next[l.B.Node], l.A.Node)
		}
	}
	dist := map[fabric.NodeID]int{from: 0}
	for queue := []fabric.NodeID{from}; len(queue) > 0; queue = queue[1:] {
		for _, n := range next[queue[0]] {
			if _, ok := dist[n]; !ok {
				dist[n] = dist[queue[0]] + 1
				queue = append(queue, n)
			}
		}
	}
	return dist
}
