package topo_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"exnet/fabric"
	"exnet/fabric/topo"
)

// checkTree checks that a tree reaches each member once and over a minimal path,
// nobody else, and has no branch that leads to no member.
func checkTree(t *testing.T, r *topo.Routes, source fabric.NodeID, members []fabric.NodeID) {
	t.Helper()
	tree, err := r.Tree(source, members)
	if err != nil {
		t.Fatal(err)
	}
	if tree.Source() != source || tree.Routes() != r || len(tree.Hops()) != tree.Len() {
		t.Error("source, routes or length")
	}
	depth := map[fabric.NodeID]int{source: 0}
	used := make(map[fabric.NodeID]bool)
	for _, h := range tree.Hops() {
		if e, _ := r.Topology().Neighbour(h.From.Node, h.From.Port); e != h.To {
			t.Fatalf("no link %v", h)
		}
		if l, _ := r.Topology().Between(h.From.Node, h.To.Node); r.Down(l) {
			t.Fatalf("%v runs over a cut link", h)
		}
		d, ok := depth[h.From.Node]
		if _, again := depth[h.To.Node]; !ok || again {
			t.Fatalf("hop %v: begins on the tree %v, ends there already %v", h, ok, again)
		}
		depth[h.To.Node] = d + 1
		used[h.From.Node] = true
	}
	dist := distances(r.Topology(), source, r.Cut()...)
	want := slices.DeleteFunc(slices.Clone(members), func(m fabric.NodeID) bool {
		_, ok := dist[m]
		return !ok || m == source
	})
	slices.Sort(want)
	want = slices.Compact(want)
	if !slices.Equal(tree.Members(), want) {
		t.Fatalf("members %v, want %v", tree.Members(), want)
	}
	for _, m := range want {
		if d, ok := depth[m]; !ok || d != dist[m] {
			t.Fatalf("member %d after %d hops, want %d", m, d, dist[m])
		}
	}
	for n := range depth {
		if n != source && !used[n] && !slices.Contains(want, n) {
			t.Fatalf("the tree ends at %d, which is no member", n)
		}
	}
	if got := replicate(t, r.Topology(), tree); !slices.Equal(got, want) {
		t.Fatalf("the entries of the crossbars deliver to %v, want %v", got, want)
	}
}

// replicate sends a packet as the multicast tables of the nodes say, and returns
// whose host gets it, once for each copy.
func replicate(t *testing.T, tp *topo.Topology, tree *topo.Tree) (got []fabric.NodeID) {
	t.Helper()
	copies := []fabric.NodeID{tree.Source()}
	for i := 0; i < len(copies); i++ {
		set := tree.Ports(copies[i])
		if set.Has(topo.PortHost) {
			got = append(got, copies[i])
		}
		for p := range topo.Ports {
			if !set.Has(p) {
				continue
			}
			to, ok := tp.Neighbour(copies[i], p)
			if !ok || len(copies) > len(tp.Nodes()) {
				t.Fatalf("port %v of node %d, %d copies", p, copies[i], len(copies))
			}
			copies = append(copies, to.Node)
		}
	}
	slices.Sort(got)
	return got
}

func TestTrees(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, tp := range []*topo.Topology{torus(t, "4x4x4"), torus(t, "5x4"), mesh(t, "4x4x2"), torus(t, "2x2x2"), torus(t, "1"), parse(t, irregular)} {
		nodes, links := tp.Nodes(), len(tp.Links())
		for range 60 {
			var cut []int
			for range rnd.IntN(3) * links / 8 {
				cut = append(cut, rnd.IntN(links))
			}
			r := routes(t, tp, cut...)
			members := make([]fabric.NodeID, rnd.IntN(len(nodes)+1))
			for i := range members {
				members[i] = nodes[rnd.IntN(len(nodes))] // some of them twice
			}
			checkTree(t, r, nodes[rnd.IntN(len(nodes))], members)
		}
		for _, n := range nodes {
			checkTree(t, routes(t, tp), n, nodes)
		}
	}
}

// A broadcast crosses one link for each node that it reaches.
func TestBroadcastTree(t *testing.T) {
	tp := torus(t, "8x8x8")
	tree, err := routes(t, tp).Tree(100, tp.Nodes())
	if err != nil {
		t.Fatal(err)
	}
	l := topo.NewLoad(tp)
	tree.Carry(l, 2, 300)
	if sum := l.Total(); tree.Len() != 511 || sum != (topo.Counts{Packets: 2 * 511, Bytes: 300 * 511}) {
		t.Errorf("%d hops, %+v", tree.Len(), sum)
	}
}

func TestTreeFromNowhere(t *testing.T) {
	if _, err := routes(t, mesh(t, "3")).Tree(3, nil); !errors.Is(err, fabric.ErrNoRoute) {
		t.Errorf("%v", err)
	}
	tree, err := routes(t, mesh(t, "3")).Tree(0, []fabric.NodeID{7})
	if err != nil || tree.Len() != 0 || tree.Ports(0) != 0 {
		t.Errorf("a member that is not there: %v, %d hops", err, tree.Len())
	}
}
