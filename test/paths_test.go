package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"exnet/internal/longtest"
	"exnet/test/testlab/paths"
)

var (
	pathsTime  = flag.Duration("paths.time", 100*time.Millisecond, "how long a row of the table of paths makes new connections")
	pathsPause = flag.Duration("paths.pause", 4*time.Millisecond, "the mean pause of slow calls")
	pathsRun   = flag.String("paths.run", "", "the paths whose name and programs match the `expression`; all")
	pathsLong  = flag.Bool("paths.long", false, "all rows of the table of paths, also those of which others say the same")
	pathsSeed  = flag.Uint64("paths.seed", 0, "what sizes and pauses depend on (a random `number`, which is printed)")
)

// Numbered words go over every path that carries bytes, on 1 to 200 connections at a time, beside
// programs that spin, too: none is wrong.
func TestRootPaths(t *testing.T) {
	longtest.Skip(t)
	checkLeaks(t)
	only, err := regexp.Compile(*pathsRun)
	if err != nil {
		t.Fatal(err)
	}
	seed := *pathsSeed
	for seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	t.Logf("-paths.seed %d", seed)
	paths.Run(t, paths.Options{Time: *pathsTime, Pause: *pathsPause, Only: only, Long: *pathsLong, Seed: seed})
}

// The program that checks ports finds what is planted. (What checks sockets: package numbered.)
func TestRootPathsPlanted(t *testing.T) {
	longtest.Skip(t)
	checkLeaks(t)
	want := []string{"out of order: ", "8 bytes are missing: ", "out of order: ", "8 bytes are missing: "}
	for i, fault := range paths.Planted(t, "velo-swap", "velo-drop", "rma-swap", "rma-drop") {
		if conn := fmt.Sprintf("connection %d up, ", 1000+i/2); !strings.HasPrefix(fault, conn) || !strings.Contains(fault, want[i]) {
			t.Errorf("%s, want %s%s", fault, conn, want[i])
		}
	}
}
