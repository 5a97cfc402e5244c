package exntun

import (
	"os/exec"
	"strings"
	"testing"

	"exnet/internal/cli"
)

// Two corners of a square: long packets from one to the other, which the other GETs, go by x, or by
// both corners between them while routing is adaptive.
func TestRootRouteAdaptive(t *testing.T) {
	dir, a := corners(t)
	call := func(want string, args ...string) {
		t.Helper()
		status, stdout, stderr := run(t.Context(), append(append([]string{"route"}, args...), "--dir", dir)...)
		if status != cli.ExitOK || !strings.Contains(stdout, want) {
			t.Fatalf("%v: %d, %s%s; want %q", args, status, stdout, stderr, want)
		}
	}
	// byBoth wants pings of 160 kB to cross both links from node 1, or one: the kernel may send
	// a little else meanwhile.
	byBoth := func(want bool) {
		t.Helper()
		before := leaving(t, dir)
		var x, y uint64
		eventually(t, "160 kB have left", func() bool { // a busy machine loses pings
			if err := a.ns.Run(exec.Command("ping", "-q", "-c", "20", "-i", "0.01", "-s", "8000", "10.2.0.4")); err != nil {
				t.Log(err)
			}
			after := leaving(t, dir)
			x, y = after[2]-before[2], after[3]-before[3]
			return x+y >= 160_000
		})
		if (min(x, y) > 50_000) != want {
			t.Errorf("%d bytes by x, %d by y; want both: %v", x, y, want)
		}
	}
	byBoth(false)
	call("the data of RMA is adaptive on 2 nodes", "adaptive", "on")
	call("adaptive on nodes 1 4", "list")
	byBoth(true)
	call("the data of RMA is ordered, by the tables on 2 nodes", "adaptive", "off")
	byBoth(false)
	for _, bad := range [][]string{{"adaptive"}, {"adaptive", "yes"}, {"adaptive", "on", "off"}} {
		if status, _, stderr := run(t.Context(), append(append([]string{"route"}, bad...), "--dir", dir)...); status != cli.ExitUsage || !strings.Contains(stderr, "give one argument, on or off") {
			t.Errorf("%v: %d, %s", bad, status, stderr)
		}
	}
}
