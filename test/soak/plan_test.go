package soak

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"exnet/internal/longtest"
)

// planned is a fault that is to happen.
type planned struct {
	After   time.Duration // since the one before
	Kind    faultKind
	Node    int
	Program string
	For     time.Duration // how long, or how long until it is started again
	MTU     int
}

// steady is the node whose daemon is never ended, so that its memory can be compared with what it
// was.
const steady = 1

// plan makes the faults of d from a seed. programs are those of each node.
func plan(seed uint64, d time.Duration, nodes int, programs func(node int) []string) []planned {
	rnd := rand.New(rand.NewPCG(seed, 0xfa17))
	weights := []struct {
		kind faultKind
		n    int
	}{{nodeKill, 4}, {nodeRestart, 1}, {nodeStop, 3}, {nodeCut, 1}, {ifDown, 2}, {ifMTU, 2}, {routeMTU, 1}, {programKill, 4}, {programStop, 3}}
	total := 0
	for _, w := range weights {
		total += w.n
	}
	ms := func(least, most int) time.Duration {
		return time.Duration(least+rnd.IntN(most-least)) * time.Millisecond
	}
	var all []planned
	for at := time.Duration(0); ; {
		p := planned{After: ms(200, 1500), Node: 1 + rnd.IntN(nodes)}
		if at += p.After; at > d {
			return all
		}
		n := rnd.IntN(total)
		for _, w := range weights {
			if n -= w.n; n < 0 {
				p.Kind = w.kind
				break
			}
		}
		switch p.Kind {
		case nodeKill, nodeRestart:
			if p.Node == steady {
				p.Node = steady + 1 + rnd.IntN(nodes-1)
			}
			if p.For = ms(0, 1500); rnd.IntN(2) == 0 {
				p.For = 0 // at once
			}
		case nodeCut:
			p.For = ms(1200, 2000)
		case nodeStop, programStop:
			p.For = ms(20, 500)
		case ifDown:
			p.For = ms(0, 1000)
		case ifMTU, routeMTU:
			p.For = ms(100, 3000)
			p.MTU = []int{1500, 4000, 9000, 20000}[rnd.IntN(4)]
		case programKill:
			p.For = ms(0, 500)
		}
		if p.Kind == programKill || p.Kind == programStop {
			names := programs(p.Node)
			p.Program = names[rnd.IntN(len(names))]
		}
		all = append(all, p)
	}
}

// The same seed makes the same faults, of every kind.
func TestPlan(t *testing.T) {
	longtest.Skip(t)
	programs := func(int) []string { return []string{roleServer, roleClient} }
	a, b := plan(1, 5*time.Minute, 4, programs), plan(1, 5*time.Minute, 4, programs)
	if !reflect.DeepEqual(a, b) {
		t.Error("two plans of one seed differ")
	}
	if reflect.DeepEqual(a, plan(2, 5*time.Minute, 4, programs)) {
		t.Error("two seeds make one plan")
	}
	seen := make(map[faultKind]int)
	for _, p := range a {
		seen[p.Kind]++
		if (p.Kind == nodeKill || p.Kind == nodeRestart) && p.Node == steady {
			t.Errorf("%+v ends the daemon that is to stay", p)
		}
	}
	if len(seen) != 9 {
		t.Errorf("not all kinds: %v", seen)
	}
}
