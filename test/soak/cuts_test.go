package soak

import (
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	"exnet/internal/leaktest"
	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
	"exnet/test/testlab/paths"

	"go.uber.org/goleak"
)

// Numbered words go over the paths between nodes while the links between hosts are cut, and the
// nodes of one host stopped, every 0.1 to 3 seconds: none is wrong or missing, and no connection is
// reset. Each row takes -soak.time, or as long as that allows all of them together.
func TestRootSoakCuts(t *testing.T) {
	longtest.Nightly(t) // it takes minutes to be cut often
	netnstest.Require(t)
	netnstest.CheckFDs(t)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaktest.None(t, before) })
	seed := *soakSeed
	for seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	only, err := regexp.Compile("^hosts?(, TLS)?: (relay|exn0|ports),")
	if *soakPaths != "" {
		only, err = regexp.Compile(*soakPaths)
	}
	if err != nil {
		t.Fatal(err)
	}
	rows := paths.RowsOf(only)
	t.Logf("%d rows, %v with -soak.seed %d", rows, *soakTime, seed)
	paths.Run(t, paths.Options{Time: max(*soakTime/time.Duration(max(rows, 1)), cutTime), Pause: 20 * time.Millisecond, Only: only, Long: true, Disturb: true, Stop: *soakStop, Patience: *soakPatience, Slow: *soakSlow, Seed: seed})
}

// cutTime is the shortest time for a row, in which it is cut some times.
const cutTime = 10 * time.Second
