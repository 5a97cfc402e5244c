package study

import (
	"math"
	"os"
	"syscall"
	"testing"
	"time"

	"exnet/fabric/graph"
	"exnet/fabric/pattern"
	"exnet/fabric/routing"
	_ "exnet/internal/linux"
)

func network(tb testing.TB, name string) *graph.Graph {
	tb.Helper()
	g, err := graph.Parse(name, "testdata")
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func traffic(tb testing.TB, name string, p pattern.Params) *pattern.Pattern {
	tb.Helper()
	made, err := pattern.Make(name, p)
	if err != nil {
		tb.Fatal(err)
	}
	return made
}

// simulate runs one job, and checks that its traffic is gone afterwards.
func simulate(tb testing.TB, c Config, p *pattern.Pattern) *Result {
	tb.Helper()
	c.Scheduler = "fcfs"
	if c.Selector == "" {
		c.Selector = "linear"
	}
	c.Jobs = []Job{{Name: "one", Pattern: p, Duration: time.Second}}
	r, err := Simulate(c)
	if err != nil {
		tb.Fatal(err)
	}
	if !r.Load.Idle() {
		tb.Error("after all jobs a channel carries something")
	}
	return r
}

// The network of the thesis (2.4.2): 4 leaves with 5 hosts of 8 cores, 2 spines.
const thesisTree = "tree:4x5/2"

// The golden numbers of CG-C-128: largest load of a link in bytes.
func TestGoldenCG(t *testing.T) {
	p := traffic(t, "cg", pattern.Params{Ranks: 128, Class: 'C'})
	most := func(placement, router string) float64 {
		c := Config{Graph: network(t, thesisTree), Cores: 8, Placement: placement, Router: router}
		return float64(simulate(t, c, p).Stats().Max)
	}
	static, dynamic := most("block", "dmodk"), most("block", "minmax")
	if static != 5_929_050_624 || dynamic != 2_964_656_640 {
		t.Errorf("D-mod-K %.0f, min-max %.0f bytes; want 5929050624, 2964656640", static, dynamic)
	}
	for _, tt := range []struct {
		what             string
		got, want, close float64
	}{
		{"min-max, block", dynamic / static, 0.500022, 1e-6},
		{"D-mod-K, cyclic", most("cyclic", "dmodk") / static, 1.9747, 1e-4},
		{"min-max, cyclic", most("cyclic", "minmax") / static, 1.750, 1e-3},
	} {
		if math.Abs(tt.got-tt.want) > tt.close {
			t.Errorf("%s: %.6f of D-mod-K with block, want %.6f", tt.what, tt.got, tt.want)
		}
	}
}

// The published recording, if the caller has it: EXN_STUDY_CG names it.
func TestGoldenTrace(t *testing.T) {
	path := os.Getenv("EXN_STUDY_CG")
	if path == "" {
		t.Skip("EXN_STUDY_CG names no recording cg-c-128.tar.gz")
	}
	p, _, err := pattern.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		placement, router string
		want              uint64
	}{
		{"block", "dmodk", 5_928_262_656}, {"block", "minmax", 2_964_262_664},
		{"cyclic", "dmodk", 11_708_587_972}, {"cyclic", "minmax", 10_374_525_380},
	} {
		c := Config{Graph: network(t, thesisTree), Cores: 8, Placement: tt.placement, Router: tt.router}
		if got := simulate(t, c, p).Stats().Max; got != tt.want {
			t.Errorf("%s, %s: %d bytes, want %d", tt.placement, tt.router, got, tt.want)
		}
	}
}

// The most flows on a link between switches, 16 ranks of recursive doubling one after
// the other on 4 leaves with 7 hosts and 2 spines.
func TestGoldenFlows(t *testing.T) {
	p := traffic(t, "allreduce", pattern.Params{Ranks: 16, Bytes: 1})
	g := network(t, "tree:4x7/2")
	for router, want := range map[string][2]uint64{"tables": {14, 14}, "dmodk": {9, 9}, "alg3": {1, 8}} {
		r := simulate(t, Config{Graph: g, Placement: "block", Router: router}, p)
		most := uint64(0)
		for c, n := range r.Load.Count {
			ends := g.Channels()[c]
			if g.HostIndex(ends.From) < 0 && g.HostIndex(ends.To) < 0 {
				most = max(most, n)
			}
		}
		if most < want[0] || most > want[1] {
			t.Errorf("%s: %d flows, want %v", router, most, want)
		}
	}
}

// A million flows on 10,000 nodes: under a minute and 2 GB (the issue), each router for itself;
// testdata/million.toml is the same for exn-sim. Without EXN_STUDY_LONG it is a part of that, on a
// tenth of the nodes.
func TestMillion(t *testing.T) {
	flows, ranks, networks := 4_000, 1000, []string{"torus:10x10x10", "fattree:16"}
	if os.Getenv("EXN_STUDY_LONG") != "" {
		flows, ranks, networks = 1_000_000, 10_000, []string{"torus:22x22x21", "fattree:36"}
	}
	p := traffic(t, "random", pattern.Params{Ranks: ranks, Bytes: 1000, Flows: flows, Seed: 1})
	for _, name := range networks {
		for _, router := range []string{"tables", "dmodk", "smodk", "random", "minsum", "minmax"} {
			begin, cpu := time.Now(), processorTime(t)
			g := network(t, name)
			hops := 0
			c := Config{Graph: g, Placement: "block", Router: router, OnPath: func(_ int, _ routing.Flow, path []int32) { hops += len(path) }}
			r := simulate(t, c, p)
			sum := uint64(0)
			for _, n := range r.Load.Count {
				sum += n
			}
			if sum != uint64(hops) || r.Records[0].Flows < flows*9/10 {
				t.Errorf("%s: %d flows, %d hops, counted %d", router, r.Records[0].Flows, hops, sum)
			}
			t.Logf("%s %s: %.1f s, %.1f s of processor time, largest load %d", name, router, time.Since(begin).Seconds(), processorTime(t)-cpu, r.Stats().Max)
		}
	}
}

// processorTime is what this process has used so far, in seconds.
func processorTime(tb testing.TB) float64 {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
