package topo_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"exnet/fabric"
	"exnet/fabric/topo"
)

// checkPaths checks that every pair has a minimal path, or none if there is none,
// and that it leads where it says.
func checkPaths(t *testing.T, r *topo.Routes) {
	t.Helper()
	tp := r.Topology()
	for _, a := range tp.Nodes() {
		dist := distances(tp, a, r.Cut()...)
		for _, b := range tp.Nodes() {
			want, ok := dist[b]
			if !ok {
				want = -1
			}
			if got := r.Hops(a, b); got != want || r.Reachable(a, b) != ok {
				t.Fatalf("%v: %d hops from %d to %d, reachable %v, want %d", tp, got, a, b, r.Reachable(a, b), want)
			}
			path, err := r.Path(a, b)
			if !ok {
				if !errors.Is(err, fabric.ErrNoRoute) || r.Table(a).Port(b) != topo.PortNone {
					t.Fatalf("%v: no way from %d to %d: %v, port %v", tp, a, b, err, r.Table(a).Port(b))
				}
				continue
			}
			at := topo.End{Node: a}
			for _, e := range path {
				if e.Node != at.Node {
					t.Fatalf("%v: path %v from %d to %d is broken", tp, path, a, b)
				}
				if l, _ := tp.Between(a, b); r.Down(l) && len(path) == 1 {
					t.Fatalf("%v: path %v runs over the cut link %d", tp, path, l)
				}
				at, _ = tp.Neighbour(e.Node, e.Port)
			}
			if err != nil || at.Node != b || len(path) != want {
				t.Fatalf("%v: path %v from %d to %d: %v", tp, path, a, b, err)
			}
		}
	}
}

func TestPathsAreMinimal(t *testing.T) {
	for _, dims := range []string{"1", "2", "3", "8", "5x4", "2x2x2", "4x4x4", "3x5x2", "2x1x6"} {
		checkPaths(t, routes(t, torus(t, dims)))
		checkPaths(t, routes(t, mesh(t, dims)))
	}
	checkPaths(t, routes(t, parse(t, irregular)))
	checkPaths(t, routes(t, parse(t, "mesh = \"3x2\"\nnodes = [65535, 3, 1024, 7, 40000, 0]")))
}

// Links are cut at random, so many that the fabric falls apart in the end.
func TestPathsAroundCutLinks(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, tp := range []*topo.Topology{torus(t, "4x4"), torus(t, "3x3x3"), mesh(t, "4x3x2"), parse(t, irregular)} {
		order := rnd.Perm(len(tp.Links()))
		for n := 1; n <= len(order); n = n*3/2 + 1 {
			checkPaths(t, routes(t, tp, order[:n]...))
		}
		checkPaths(t, routes(t, tp, order...))
	}
}

// A grid routes along x, then y, then z, and pairs whose path was not cut keep it.
func TestDimensionOrder(t *testing.T) {
	tp := torus(t, "4x5x3")
	all := routes(t, tp)
	cut := []int{7, 30}
	some := routes(t, tp, cut...)
	kept := 0
	for _, a := range tp.Nodes() {
		for _, b := range tp.Nodes() {
			path, err := all.Path(a, b)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.IsSortedFunc(path, func(x, y topo.End) int { return int(x.Port/2) - int(y.Port/2) }) {
				t.Fatalf("path %v is not in dimension order", path)
			}
			if slices.ContainsFunc(path, func(e topo.End) bool {
				to, _ := tp.Neighbour(e.Node, e.Port)
				l, _ := tp.Between(e.Node, to.Node)
				return slices.Contains(cut, l)
			}) {
				continue
			}
			kept++
			if now, _ := some.Path(a, b); !slices.Equal(now, path) {
				t.Fatalf("path %v has become %v", path, now)
			}
		}
	}
	if n := len(tp.Nodes()) * len(tp.Nodes()); kept == n || kept < n/2 {
		t.Errorf("%d of %d paths kept", kept, n)
	}
}

// On a torus whose sizes are multiples of four, traffic of all with all loads all
// links of a dimension alike, in both directions.
func TestEvenLoad(t *testing.T) {
	tp := torus(t, "4x4x4")
	r, l := routes(t, tp), topo.NewLoad(tp)
	hops := uint64(0)
	for _, a := range tp.Nodes() {
		for _, b := range tp.Nodes() {
			if !r.Carry(l, a, b, 1, 100) {
				t.Fatalf("no way from %d to %d", a, b)
			}
			hops += uint64(r.Hops(a, b))
		}
	}
	for i, load := range l.Links() {
		want := topo.Counts{Packets: 32, Bytes: 3200}
		if load.AB != want || load.BA != want {
			t.Errorf("%v: %+v", tp.Links()[i], load)
		}
	}
	if sum := l.Total(); sum.Packets != hops || sum.Bytes != 100*hops {
		t.Errorf("%+v, %d hops", sum, hops)
	}
}

func TestRoutesOfUnknownNodes(t *testing.T) {
	tp := mesh(t, "3")
	r, l := routes(t, tp), topo.NewLoad(tp)
	if r.Table(3) != nil || r.Reachable(0, 3) || r.Reachable(3, 0) || r.Hops(0, 3) != -1 || r.Carry(l, 3, 0, 1, 1) || r.Carry(l, 0, 3, 1, 1) {
		t.Error("a node that is not there has a route")
	}
	if r.Table(0).Port(65535) != topo.PortNone {
		t.Error("the last node has a port")
	}
	if l.Total() != (topo.Counts{}) {
		t.Error("packets without a way were counted")
	}
	for _, n := range []int{-1, 2} {
		if _, err := topo.NewRoutes(tp, n); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("link %d: %v", n, err)
		}
	}
	if r.Topology() != tp || r.Cut() != nil || r.Down(0) {
		t.Error("routes of another topology, or with cut links")
	}
}

func TestParts(t *testing.T) {
	r := routes(t, mesh(t, "5"), 1, 3)
	want := [][]fabric.NodeID{{0, 1}, {2, 3}, {4}}
	if got := r.Parts(); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("parts %v, want %v", got, want)
	}
	if cut := r.Cut(); !slices.Equal(cut, []int{1, 3}) {
		t.Errorf("cut %v", cut)
	}
}

// Tables are made by whoever asks first.
func TestConcurrentTables(t *testing.T) {
	tp := torus(t, "6x6")
	r, l := routes(t, tp), topo.NewLoad(tp)
	done := make(chan bool)
	for range 4 {
		go func() {
			for _, a := range tp.Nodes() {
				for _, b := range tp.Nodes() {
					r.Carry(l, a, b, 1, 1)
				}
			}
			done <- true
		}()
	}
	for range 4 {
		<-done
	}
	if n, locals := r.Tables(); n != 36 || locals != 37 {
		t.Errorf("%d tables, %d local ones", n, locals)
	}
	// The mean distance on a ring of 6 is 1.5 hops.
	if sum := l.Total(); sum.Packets != 4*36*36*3 {
		t.Errorf("%d hops", sum.Packets)
	}
}

func TestCarryDoesNotAllocate(t *testing.T) {
	tp := torus(t, "4x4x4")
	r, l := routes(t, tp), topo.NewLoad(tp)
	tree, err := r.Tree(0, tp.Nodes())
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		r.Carry(l, 0, 42, 3, 1500)
		tree.Carry(l, 1, 136)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A lookup in one node's tables, for random nodes.
func BenchmarkLookup(b *testing.B) {
	for _, dims := range []string{"2x2x2", "4x4x4", "8x8x8", "16x16x16", "64x32x32"} {
		tp := torus(b, dims)
		b.Run(fmt.Sprintf("nodes=%d", len(tp.Nodes())), func(b *testing.B) {
			table := routes(b, tp).Table(0)
			var to [1024]fabric.NodeID
			for i := range to {
				to[i] = tp.Nodes()[rand.IntN(len(tp.Nodes()))]
			}
			i, sum := 0, topo.Port(0)
			b.ReportAllocs()
			for b.Loop() {
				sum += table.Port(to[i&1023])
				i++
			}
			_ = sum
		})
	}
}

// The walk of a packet to the opposite corner.
func BenchmarkCarry(b *testing.B) {
	for _, dims := range []string{"2x2x2", "4x4x4", "8x8x8", "64x32x32"} {
		tp := torus(b, dims)
		r, l := routes(b, tp), topo.NewLoad(tp)
		d := tp.Dims()
		to := fabric.NodeID(d[0]/2 + d[0]*(d[1]/2+d[1]*(d[2]/2)))
		b.Run(fmt.Sprintf("nodes=%d/hops=%d", len(tp.Nodes()), r.Hops(0, to)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Carry(l, 0, to, 1, 136)
			}
		})
	}
}

// What a cut link costs: new routes, and the tables of one node.
func BenchmarkRecompute(b *testing.B) {
	for _, dims := range []string{"4x4x4", "8x8x8", "64x32x32"} {
		tp := torus(b, dims)
		b.Run(fmt.Sprintf("nodes=%d", len(tp.Nodes())), func(b *testing.B) {
			for b.Loop() {
				routes(b, tp, 1).Table(0)
			}
		})
	}
}
