package routing

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"exnet/fabric/graph"
	"exnet/fabric/topo"
)

func network(tb testing.TB, name string) *graph.Graph {
	tb.Helper()
	g, err := graph.Parse(name, "")
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// all are flows between all hosts, of different sizes.
func all(g *graph.Graph) (flows []Flow) {
	for i, a := range g.Hosts() {
		for j, b := range g.Hosts() {
			flows = append(flows, Flow{a, b, uint64(1 + (7*i+13*j)%31)})
		}
	}
	return flows
}

// hops is the length of a shortest path, found without the routers' own distances.
func hops(g *graph.Graph, from, to int32) int {
	at, seen := []int32{from}, map[int32]bool{from: true}
	for n := 0; ; n++ {
		if slices.Contains(at, to) {
			return n
		}
		var next []int32
		for _, v := range at {
			for _, c := range g.Out(v) {
				if w := g.Channels()[c].To; !seen[w] && !g.Down(c) {
					seen[w] = true
					next = append(next, w)
				}
			}
		}
		at = next
	}
}

// Every router's path leads from end to end, and is a shortest one but for alg3's.
func TestPaths(t *testing.T) {
	for _, name := range []string{"torus:4x3x2", "mesh:5x2", "tree:3x4/2", "fattree:4", "tree:1x12/1"} {
		g := network(t, name)
		for _, router := range Names {
			r, err := New(router, g, 1)
			if errors.Is(err, ErrInvalid) && router == "dor" {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			l := NewLoad(g)
			count := make(map[[2]int32]uint64) // bytes of each pair
			sum := make([]uint64, len(g.Channels()))
			err = r.Route(all(g), l, func(f Flow, path []int32) {
				count[[2]int32{f.From, f.To}] += f.Bytes
				at := f.From
				for _, c := range path {
					if g.Channels()[c].From != at {
						t.Fatalf("%s, %s: %v goes %v", name, router, f, path)
					}
					at = g.Channels()[c].To
					sum[c] += f.Bytes
				}
				if n := hops(g, f.From, f.To); at != f.To || len(path) != n && router != "alg3" {
					t.Fatalf("%s, %s: %v goes %v; %d hops are enough", name, router, f, path, n)
				}
			})
			if n := len(g.Hosts()); err != nil || len(count) != n*(n-1) || !slices.Equal(sum, l.Bytes) {
				t.Errorf("%s, %s: %d flows, %v", name, router, len(count), err)
			}
			for _, f := range all(g) {
				if n := count[[2]int32{f.From, f.To}]; n != f.Bytes && f.From != f.To {
					t.Errorf("%s, %s: %d bytes of %v", name, router, n, f)
				}
			}
		}
	}
}

// minmax finds what a search of all shortest paths finds.
func TestMinMax(t *testing.T) {
	g := network(t, "torus:4x4")
	r, err := New("minmax", g, 0)
	if err != nil {
		t.Fatal(err)
	}
	before := NewLoad(g) // without the flow that is routed
	after := NewLoad(g)
	err = r.Route(all(g), after, func(f Flow, path []int32) {
		if got, want := most(before, path), least(g, before, f.From, f.To, hops(g, f.From, f.To)); got != want {
			t.Fatalf("%v over %v: %v, but %v is possible", f, path, got, want)
		}
		for _, c := range path {
			before.Add(c, f.Bytes)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func most(l *Load, path []int32) (m uint64) {
	for _, c := range path {
		m = max(m, l.Bytes[c])
	}
	return m
}

// least tries all paths of n hops.
func least(g *graph.Graph, l *Load, from, to int32, n int) uint64 {
	if from == to {
		return 0
	}
	best := ^uint64(0)
	if n == 0 {
		return best
	}
	for _, c := range g.Out(from) {
		best = min(best, max(l.Bytes[c], least(g, l, g.Channels()[c].To, to, n-1)))
	}
	return best
}

// D-mod-K spreads destinations over all spines and cores, not only over those that the
// first choice leads to.
func TestModK(t *testing.T) {
	g := network(t, "fattree:8")
	for _, router := range []string{"dmodk", "smodk"} {
		r, err := New(router, g, 0)
		if err != nil {
			t.Fatal(err)
		}
		l := NewLoad(g)
		if err := r.Route(all(g), l, func(Flow, []int32) {}); err != nil {
			t.Fatal(err)
		}
		used := 0
		for v, vertex := range g.Vertices() {
			if vertex.Level == 3 && slices.ContainsFunc(g.In(int32(v)), func(c int32) bool { return l.Count[c] > 0 }) {
				used++
			}
		}
		if used != 16 {
			t.Errorf("%s uses %d of 16 cores", router, used)
		}
	}
}

// A link that is cut carries nothing; hosts without a way are an error.
func TestCut(t *testing.T) {
	m, err := topo.NewMesh(topo.Dims{3, 1, 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	square, err := topo.NewMesh(topo.Dims{2, 2, 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		t   *topo.Topology
		way bool
	}{{m, false}, {square, true}} {
		routes, err := topo.NewRoutes(tt.t, 0)
		if err != nil {
			t.Fatal(err)
		}
		g, err := graph.FromTopology("cut", routes)
		if err != nil {
			t.Fatal(err)
		}
		for _, router := range Names {
			r, err := New(router, g, 0)
			if router == "dor" {
				if !errors.Is(err, ErrInvalid) {
					t.Errorf("dor with a cut link: %v", err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			l := NewLoad(g)
			err = r.Route([]Flow{{0, 1, 5}}, l, func(Flow, []int32) {})
			if (err == nil) != tt.way || !tt.way && !errors.Is(err, ErrNoRoute) || l.Count[0]+l.Count[1] > 0 {
				t.Errorf("%v, %s: %v, %v", tt.t, router, err, l.Count)
			}
		}
	}
}

// A link of twice the capacity takes twice as much.
func TestCapacity(t *testing.T) {
	vertices := []graph.Vertex{{Name: "a", Host: true}, {Name: "b", Host: true}, {Name: "x"}, {Name: "y"}}
	g, err := graph.New("two ways", vertices, []graph.Channel{
		{From: 0, To: 2, Capacity: 2}, {From: 2, To: 1, Capacity: 2}, {From: 0, To: 3, Capacity: 1}, {From: 3, To: 1, Capacity: 1}, {From: 1, To: 0, Capacity: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, router := range []string{"minmax", "minsum", "alg3"} {
		r, err := New(router, g, 0)
		if err != nil {
			t.Fatal(err)
		}
		l := NewLoad(g)
		if err := r.Route(slices.Repeat([]Flow{{0, 1, 1}}, 30), l, func(Flow, []int32) {}); err != nil {
			t.Fatal(err)
		}
		if l.Bytes[0] < 19 || l.Bytes[0] > 21 {
			t.Errorf("%s: %d and %d", router, l.Bytes[0], l.Bytes[2])
		}
	}
}

func TestDependencies(t *testing.T) {
	d := NewDependencies()
	path := func(channels ...int32) (p []Hop) {
		for _, c := range channels {
			p = append(p, Hop{Channel: c})
		}
		return p
	}
	for _, p := range [][]Hop{path(1, 2), path(2, 3), path(3, 4)} {
		if !d.Try(p) {
			t.Fatalf("%v was refused", p)
		}
	}
	if d.Cyclic() || d.Try(path(4, 1)) || d.Try(path(4, 9, 1)) || d.Cyclic() {
		t.Error("a cycle was made")
	}
	d.Add(path(4, 1))
	if !d.Cyclic() {
		t.Error("the cycle was not found")
	}
	d.Remove(path(4, 1))
	d.Remove(path(2, 3))
	if d.Cyclic() || !d.Try(path(4, 1)) {
		t.Error("what was removed is still there")
	}
	if !d.Try([]Hop{{Channel: 2}, {Channel: 3, Virtual: 1}, {Channel: 1, Virtual: 1}}) {
		t.Error("another virtual channel is another place")
	}
}

// By way of a vertex, where that does not lead back; if it does, as the tables say.
func TestVia(t *testing.T) {
	g, err := graph.Parse("tree:3x2/2", "")
	if err != nil {
		t.Fatal(err)
	}
	spine := int32(-1)
	for i, v := range g.Vertices() {
		if v.Name == "spine2" {
			spine = int32(i)
		}
	}
	r, err := NewVia(g, spine)
	if err != nil {
		t.Fatal(r, err)
	}
	var flows []Flow
	for _, a := range g.Hosts() {
		for _, b := range g.Hosts() {
			flows = append(flows, Flow{From: a, To: b, Bytes: 1})
		}
	}
	by, other := 0, 0
	err = r.Route(flows, NewLoad(g), func(_ Flow, path []int32) {
		switch n := len(path); {
		case n == 4 && g.Channels()[path[1]].To == spine:
			by++
		case n == 2: // on one leaf
			other++
		default:
			t.Errorf("path %v", path)
		}
	})
	if err != nil || by != 6*4 || other != 6 {
		t.Errorf("%d by the spine, %d not, %v", by, other, err)
	}
}

// refine is never worse than the tables, and for dimension order's worst traffic a third.
func TestRefine(t *testing.T) {
	for _, name := range []string{"torus:4x4", "mesh:4x4", "tree:4x4/2", "torus:3x3x3"} {
		g, err := graph.Parse(name, "")
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for range 5 {
			var flows []Flow
			for range 60 {
				h := g.Hosts()
				flows = append(flows, Flow{From: h[rng.IntN(len(h))], To: h[rng.IntN(len(h))], Bytes: 1 + rng.Uint64N(1000)})
			}
			most := make(map[string]uint64)
			for _, router := range []string{"tables", "refine"} {
				r, err := New(router, g, 1)
				if err != nil {
					t.Fatal(err)
				}
				l, hops := NewLoad(g), uint64(0)
				if err := r.Route(slices.Clone(flows), l, func(f Flow, path []int32) {
					at := f.From
					for _, c := range path {
						if g.Channels()[c].From != at {
							t.Fatalf("%v: %v is no path", f, path)
						}
						at = g.Channels()[c].To
					}
					if at != f.To {
						t.Fatalf("%v ends at %d", f, at)
					}
					hops += f.Bytes * uint64(len(path))
				}); err != nil {
					t.Fatal(err)
				}
				sum := uint64(0)
				for c, n := range l.Bytes {
					sum += n
					if l.Peak[c] != n || l.Total[c] != n {
						t.Fatalf("channel %d: %d now, peak %d, total %d", c, n, l.Peak[c], l.Total[c])
					}
				}
				if sum != hops {
					t.Errorf("%s: channels carry %d, paths %d", router, sum, hops)
				}
				most[router] = slices.Max(l.Peak)
			}
			if most["refine"] > most["tables"] {
				t.Errorf("%s: refined %d, tables %d", name, most["refine"], most["tables"])
			}
		}
	}
	g, err := graph.Parse("mesh:4x4", "")
	if err != nil {
		t.Fatal(err)
	}
	var transpose []Flow
	for i := range int32(16) {
		transpose = append(transpose, Flow{From: i, To: i%4*4 + i/4, Bytes: 10})
	}
	r, err := New("refine", g, 1)
	if err != nil {
		t.Fatal(err)
	}
	l := NewLoad(g)
	if err := r.Route(transpose, l, func(Flow, []int32) {}); err != nil {
		t.Fatal(err)
	}
	if most := slices.Max(l.Peak); most != 10 { // dimension order: 30
		t.Errorf("transpose: %d", most)
	}
}
