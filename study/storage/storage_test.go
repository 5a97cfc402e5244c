package storage_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"exnet/study/storage"
)

// spider is one file system of Spider II.
var spider = storage.Shape{Routers: 216, Groups: 18, Servers: 144, Targets: 1008}

const clients = 4096

// choose returns the paths of a job's clients, and adds them to use.
func choose(t *testing.T, selector string, n int, use *storage.Use, seed uint64) []storage.Path {
	t.Helper()
	hops := func(client, router int) int { d := client - router*clients/spider.Routers; return max(d, -d) }
	c, err := storage.NewChoice(selector, spider, hops, rand.New(rand.NewPCG(seed, 0)))
	if err != nil {
		t.Fatal(err)
	}
	paths := make([]storage.Path, n)
	for i := range paths {
		paths[i] = c.Next(i)
		use.Add(paths[i], 1)
	}
	return paths
}

func spread(uses []int) int { return slices.Max(uses) - slices.Min(uses) }

// TestBalanced has 4096 clients write to 1008 targets: the uses of the parts of a stage differ
// by one at most, and each path leads from a router to a target of its group.
func TestBalanced(t *testing.T) {
	for seed := range uint64(8) {
		use := storage.NewUse(spider)
		paths := choose(t, "balanced", clients, use, seed)
		for name, uses := range map[string][]int{"routers": use.Routers, "groups": use.Groups, "servers": use.Servers, "targets": use.Targets} {
			if d := spread(uses); d > 1 {
				t.Errorf("seed %d: the uses of %s differ by %d", seed, name, d)
			}
		}
		for _, p := range paths {
			if p.Target%spider.Servers != p.Server || p.Server%spider.Groups != p.Group || p.Router%spider.Groups != p.Group {
				t.Fatalf("no such path: %+v", p)
			}
		}
	}
	use := storage.NewUse(spider)
	if choose(t, "random", clients, use, 1); spread(use.Targets) < 4 {
		t.Errorf("targets at random differ by %d: too even for a control", spread(use.Targets))
	}
}

// TestImbalance has a job write beside another one of 512 clients, which knows nothing of it,
// as in figure 7.14: 6.9 by default, 1.3 to 1.9 balanced.
func TestImbalance(t *testing.T) {
	factor := func(selector string) (low, high float64) {
		low = 1e9
		for seed := range uint64(30) {
			use := storage.NewUse(spider)
			choose(t, "random", 512, use, seed+1000)
			f := use.Imbalance(choose(t, selector, clients, use, seed))
			low, high = min(low, f), max(high, f)
		}
		return low, high
	}
	randomLow, randomHigh := factor("random")
	low, high := factor("balanced")
	t.Logf("imbalance factor of 30 runs: random %.2f to %.2f, balanced %.2f to %.2f", randomLow, randomHigh, low, high)
	if low < 1 || high >= randomLow {
		t.Error("balanced writers are no more even than those at random")
	}
}

// TestNearest checks that the router is the nearest of the target's group.
func TestNearest(t *testing.T) {
	use := storage.NewUse(spider)
	for client, p := range choose(t, "nearest", clients, use, 7) {
		hops := func(r int) int { d := client - r*clients/spider.Routers; return max(d, -d) }
		for r := p.Group; r < spider.Routers; r += spider.Groups {
			if hops(r) < hops(p.Router) {
				t.Fatalf("client %d: router %d is nearer than %d", client, r, p.Router)
			}
		}
	}
}

func TestImbalanceOfNobody(t *testing.T) {
	if f := storage.NewUse(spider).Imbalance(nil); f != 0 {
		t.Errorf("imbalance of nobody: %v", f)
	}
}

func TestInvalid(t *testing.T) {
	for _, s := range []storage.Shape{
		{}, {1, 1, 1, 0}, {3, 2, 2, 2}, {2, 2, 3, 3}, {2, 2, 2, 3}, {storage.MaxParts + 1, 1, 1, 1}, {1, -1, 1, 1},
	} {
		if _, err := storage.NewChoice("random", s, nil, rand.New(rand.NewPCG(1, 1))); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if _, err := storage.NewChoice("best", spider, nil, rand.New(rand.NewPCG(1, 1))); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("unknown selector: %v", err)
	}
}
