package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exnet/test/testlab"
)

// exn-run reserves routes for its program, and they are released when that has ended: by itself, or
// killed.
func TestRootRunReserve(t *testing.T) {
	needRun(t, "sleep")
	checkLeaks(t)
	c := newCarriedOn(t, false, []string{"--topology", "mesh:2x1"})
	pattern := filepath.Join(t.TempDir(), "p.csv")
	if err := os.WriteFile(pattern, []byte("1,2,2000\n2,1,1000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bin, err := testlab.Build("exn-run", "exn-tun")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(bin) })
	listed := func(n int) {
		t.Helper()
		eventually(t, func() error {
			out := startIn(t, c.spaces[0], nil, c.bin+"/exn-tun", "route", "list", "--dir", c.dirs[0]).wait(t)
			if strings.Count(out, "p.csv.") != n {
				return fmt.Errorf("%s: want %d reservations", out, n)
			}
			return nil
		})
	}
	run := func(seconds string) *process {
		return startIn(t, c.spaces[0], nil, bin+"/exn-run", "--reserve", pattern, "--dir", c.dirs[0], "sleep", seconds)
	}
	long := run("1000")
	listed(1)
	run("0").wait(t)
	listed(1)
	long.stop()
	listed(0)
	p := startIn(t, c.spaces[0], nil, bin+"/exn-run", "--reserve", "none.csv", "--dir", c.dirs[0], "sleep", "0")
	<-p.done
	if out := p.out.String(); p.err == nil || !strings.Contains(out, "none.csv: no such file") {
		t.Errorf("a pattern that is missing: %v, %s", p.err, out)
	}
}
