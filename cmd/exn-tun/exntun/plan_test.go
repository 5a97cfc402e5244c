package exntun

import (
	"slices"
	"strings"
	"testing"

	"exnet/fabric"
	"exnet/fabric/crossbar"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/mem"
	"exnet/fabric/topo"
	"exnet/fabric/topo/topofile"
	"exnet/fabric/velo"
)

// Two spines, 101 and 102, over four leaves with two hosts each.
const twoSpines = `nodes = [101, 102, 11, 12, 13, 14, 1, 2, 3, 4, 5, 6, 7, 8]
links = ["101 11", "101 12", "101 13", "101 14", "102 11", "102 12", "102 13", "102 14",
"11 1", "11 2", "12 3", "12 4", "13 5", "13 6", "14 7", "14 8"]`

// planned reserves a primitive's ways with a tag by way of a node, and returns the hosts'
// pairs.
func planned(t *testing.T, f *mem.Fabric, primitive string, via fabric.NodeID, class fabric.Class, existing []topo.Override, changes uint64) ([]topo.Override, [][2]fabric.NodeID) {
	t.Helper()
	hosts := []fabric.NodeID{1, 2, 3, 4, 5, 6, 7, 8}
	flows, err := primitiveFlows(primitive, hosts, f.Topology())
	if err != nil {
		t.Fatal(err)
	}
	p, err := planRoutes(f.Routes(), wish{via: &via, class: class}, flows, existing)
	if err != nil {
		t.Fatal(err)
	}
	if p.refused > 0 || len(p.overrides) != len(flows) || p.past == 0 {
		t.Fatalf("%s: %d overrides of %d, %d refused, %d not by the spine", primitive, len(p.overrides), len(flows), p.refused, p.past)
	}
	if err := f.Reserve(crossbar.Reservation{ID: primitive, Overrides: p.overrides}, changes); err != nil {
		t.Fatal(err)
	}
	var pairs [][2]fabric.NodeID
	for _, o := range p.overrides {
		pairs = append(pairs, [2]fabric.NodeID{o.From, o.To})
	}
	return p.overrides, pairs
}

// UnisonFlow's experiment (thesis, 4.4.2): broadcasts, then reductions, each with a tag that
// pins it to a spine: at least 99 % of what a phase sends over spines is on its own.
// Without tags it is not so. Messages of a pair come in order, also while tags change.
func TestTwoPhases(t *testing.T) {
	tp, err := topofile.Parse("twospines.toml", []byte(twoSpines))
	if err != nil {
		t.Fatal(err)
	}
	f, err := mem.NewRouted(tp)
	if err != nil {
		t.Fatal(err)
	}
	ends := make(map[fabric.NodeID]*velo.Endpoint)
	for _, id := range tp.Nodes() {
		n := fabrictest.NewNIC(t, id)
		if err := f.Attach(n); err != nil {
			t.Fatal(err)
		}
		ends[id] = fabrictest.OpenVELO(t, n, 0, velo.Config{})
	}
	overrides, bcast := planned(t, f, "bcast", 101, 10, nil, 0)
	_, reduce := planned(t, f, "reduce", 102, 12, overrides, 1)
	// spines is what the spines' links carry in a phase.
	spines := func(pairs [][2]fabric.NodeID, class fabric.Class) (byFirst, bySecond uint64) {
		before := f.Load().Links()
		for i := range 100 {
			for _, p := range pairs {
				if err := ends[p[0]].Send(velo.Descriptor{Dst: p[1], Class: class, Tag: uint8(i)}, make([]byte, 100)); err != nil {
					t.Fatal(err)
				}
				if s, _, ok := ends[p[1]].Peek(); !ok || s.Src != p[0] || s.Tag != uint8(i) {
					t.Fatalf("message %d of %v: %+v", i, p, s)
				}
				ends[p[1]].Advance()
			}
		}
		for i, l := range f.Load().Links() {
			sum := l.Since(before[i])
			switch tp.Links()[i].A.Node {
			case 101:
				byFirst += sum.AB.Bytes + sum.BA.Bytes
			case 102:
				bySecond += sum.AB.Bytes + sum.BA.Bytes
			}
		}
		return byFirst, bySecond
	}
	if a, b := spines(bcast, 10); a == 0 || float64(a) < 0.99*float64(a+b) {
		t.Errorf("broadcast: %d bytes on its spine, %d on the other", a, b)
	}
	if a, b := spines(reduce, 12); b == 0 || float64(b) < 0.99*float64(a+b) {
		t.Errorf("reduction: %d bytes on its spine, %d on the other", b, a)
	}
	both := slices.Concat(bcast, reduce)
	a, b := spines(both, 0)
	if mostly := max(a, b); mostly == 0 {
		t.Error("without tags nothing crossed a spine")
	} else if c, d := spines(both, 33); c != a || d != b {
		t.Errorf("a tag without ways of its own: %d and %d bytes, want %d and %d as without", c, d, a, b)
	}
}

func TestPrimitiveBadInput(t *testing.T) {
	tp, err := topofile.Parse("twospines.toml", []byte(twoSpines))
	if err != nil {
		t.Fatal(err)
	}
	_, err = primitiveFlows("bcast", []fabric.NodeID{1, 99, 2, 1}, tp)
	if err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), "--nodes: node 99 is not in the topology") || !strings.Contains(err.Error(), "node 1 appears twice") {
		t.Errorf("%v", err)
	}
	if _, err = primitiveFlows("gather", []fabric.NodeID{1, 2}, tp); err == nil || !strings.Contains(err.Error(), `--primitive: invalid pattern: "gather" is not one of`) {
		t.Errorf("%v", err)
	}
	r, err := topo.NewRoutes(tp)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := planRoutes(r, wish{via: new(fabric.NodeID(99))}, nil, nil); err == nil || !strings.Contains(err.Error(), "--via: node 99 is not in the topology") {
		t.Errorf("%v", err)
	}
	for args, want := range map[string]string{
		"route reserve --pattern x --primitive bcast":         "--pattern and --primitive exclude each other",
		"route reserve --pattern x --nodes 1,2":               "--nodes goes with --primitive",
		"route reserve --primitive bcast --tag 64":            "--tag 64: use 1 to 63",
		"route reserve --primitive bcast --via 1,2":           "--via 1,2: name a node",
		"route reserve --primitive bcast --tag x":             `--tag: "x" is not a whole number`,
		"route reserve --primitive bcast --tag -1":            "--tag -1: use 1 to 63",
		"route reserve --primitive bcast --tag 256":           "--tag",
		"route reserve --primitive bcast --dir /nil --tag 63": "no node is up",
	} {
		status, stdout, stderr := run(t.Context(), strings.Fields(args)...)
		if status == 0 || stdout != "" {
			t.Errorf("%s: %d, %s", args, status, stdout)
		}
		oneLineOf(t, stderr, want)
	}
}
