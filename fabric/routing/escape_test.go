package routing

import (
	"slices"
	"testing"

	"exnet/fabric"
)

// escapes are the extended dependencies of the escape channels of a torus or mesh (Duato, 1993): a
// packet that holds one may go on by any adaptive channels, each a hop closer, and then ask for
// another one. virtual changes what Escape says.
func escapes(tb testing.TB, name string, virtual func(uint8) uint8) *Dependencies {
	tb.Helper()
	g := network(tb, name)
	routes, nodes := g.Routes(), g.Routes().Topology().Nodes()
	leaving := func(from, to fabric.NodeID) (Hop, fabric.NodeID) {
		p, v := routes.Escape(from, to)
		n, ok := routes.Topology().Neighbour(from, p)
		if !ok || routes.Hops(n.Node, to) != routes.Hops(from, to)-1 {
			tb.Fatalf("%s: the escape from %d to %d leads nowhere", name, from, to)
		}
		for _, c := range g.Out(int32(slices.Index(nodes, from))) {
			if g.Channels()[c].Port == int(p) {
				return Hop{c, virtual(v)}, n.Node
			}
		}
		panic("no channel")
	}
	d := NewDependencies()
	for _, to := range nodes {
		for _, from := range nodes {
			if from == to {
				continue
			}
			held, at := leaving(from, to)
			seen := map[fabric.NodeID]bool{at: true}
			for next := []fabric.NodeID{at}; len(next) > 0; next = next[1:] {
				if next[0] == to {
					continue
				}
				asked, _ := leaving(next[0], to)
				d.Add([]Hop{held, asked})
				for _, p := range routes.Closer(nil, next[0], to) {
					if n, _ := routes.Topology().Neighbour(next[0], p); !seen[n.Node] {
						seen[n.Node] = true
						next = append(next, n.Node)
					}
				}
			}
		}
	}
	return d
}

// TestEscape shows that adaptive packets cannot deadlock: every node has an escape channel towards
// every other, and the extended dependencies among these have no cycle.
func TestEscape(t *testing.T) {
	same := func(v uint8) uint8 { return v }
	for _, name := range []string{"mesh:4x4", "mesh:5x3x2", "torus:8x8", "torus:5x5", "torus:4x4x4", "torus:3x2x4", "torus:2x2x2", "torus:9"} {
		if escapes(t, name, same).Cyclic() {
			t.Errorf("%s: a cycle of escape channels", name)
		}
	}
	// The test finds the cycle that a ring with one channel has.
	one := func(uint8) uint8 { return 0 }
	if !escapes(t, "torus:8x8", one).Cyclic() {
		t.Error("rings with one escape channel have no cycle: the test finds nothing")
	}
}
