package topo_test

import (
	"slices"
	"testing"

	"exnet/fabric/topo"
)

// TestCloser checks that the ports are those after which there is a hop less to go.
func TestCloser(t *testing.T) {
	for _, r := range []*topo.Routes{
		routes(t, torus(t, "4x5")), routes(t, torus(t, "2x3x4")), routes(t, mesh(t, "3x4x2")),
	} {
		nodes := r.Topology().Nodes()
		for _, a := range nodes {
			for _, b := range nodes {
				var want []topo.Port
				for p := range topo.Port(topo.Ports) {
					if n, ok := r.Topology().Neighbour(a, p); ok && r.Hops(n.Node, b) < r.Hops(a, b) {
						want = append(want, p)
					}
				}
				if got := r.Closer(nil, a, b); !slices.Equal(got, want) {
					t.Fatalf("%v, %d to %d: %v, want %v", r.Topology(), a, b, got, want)
				}
			}
		}
	}
}

// TestCarryAdaptive sends from corner to corner of a mesh: all bytes arrive over as many links as
// on any shortest path, and no link carries all of them but the corners' own.
func TestCarryAdaptive(t *testing.T) {
	r := routes(t, mesh(t, "4x4"))
	l := topo.NewLoad(r.Topology())
	const packets, bytes = 1000, 512_001
	if !r.Adaptive() || !r.CarryAdaptive(l, 0, 15, 0, packets, bytes) {
		t.Fatal("no path")
	}
	if sum := l.Total(); sum != (topo.Counts{Packets: 6 * packets, Bytes: 6 * bytes}) {
		t.Errorf("%+v on 6 links", sum)
	}
	most := uint64(0)
	for _, link := range l.Links() {
		most = max(most, link.AB.Packets)
		if link.BA.Packets > 0 {
			t.Error("a packet goes back")
		}
	}
	if most > packets/2+16 {
		t.Errorf("%d of %d packets on one link", most, packets)
	}
	if n := testing.AllocsPerRun(100, func() { r.CarryAdaptive(l, 0, 15, 0, 100, 51200) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestAdaptiveByTables checks what follows the tables all the same.
func TestAdaptiveByTables(t *testing.T) {
	cut := routes(t, mesh(t, "3x3"), 0)
	reserved, err := routes(t, mesh(t, "3x3")).With([]topo.Override{{From: 0, To: 8, Ports: ports(t, "y+", "y+", "x+", "x+")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*topo.Routes{"cut": cut, "reserved": reserved} {
		ordered, adaptive := topo.NewLoad(r.Topology()), topo.NewLoad(r.Topology())
		r.CarryOf(ordered, 0, 8, 0, 100, 1000)
		r.CarryAdaptive(adaptive, 0, 8, 0, 100, 1000)
		if !slices.Equal(ordered.Links(), adaptive.Links()) {
			t.Errorf("%s: %+v, want %+v", name, adaptive.Links(), ordered.Links())
		}
	}
	if cut.Adaptive() || cut.CarryAdaptive(topo.NewLoad(cut.Topology()), 0, 99, 0, 1, 1) {
		t.Error("a path to a node that does not exist")
	}
}

func ports(tb testing.TB, names ...string) (list []topo.Port) {
	tb.Helper()
	for _, n := range names {
		p, err := topo.ParsePort(n)
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}
