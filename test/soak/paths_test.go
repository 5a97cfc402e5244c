package soak

import (
	"math/rand/v2"
	"testing"
	"time"

	"exnet/internal/leaktest"
	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
	"exnet/test/testlab/paths"

	"go.uber.org/goleak"
)

// Numbered words go over every path, on each for as long as -soak.time allows all of them together;
// at least as long as in package e2e's short form.
func TestRootSoakPaths(t *testing.T) {
	longtest.Skip(t)
	netnstest.Require(t)
	netnstest.CheckFDs(t)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaktest.None(t, before) })
	seed := *soakSeed
	for seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	t.Logf("%v with -soak.seed %d", *soakTime, seed)
	if *soakTime < soakPathsTime {
		t.Skipf("package e2e has the short form; -soak.time %v or more has a long one", soakPathsTime)
	}
	paths.Run(t, paths.Options{Time: *soakTime / time.Duration(paths.Rows()), Pause: 20 * time.Millisecond, Long: true, Seed: seed})
}

// soakPathsTime is the shortest time in which the long form moves more than the short one.
const soakPathsTime = 2 * time.Minute
