package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/clitest"
	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
)

// The same programs in namespaces, without an agent and with one: a row for each, with the CPU time
// of a request. A run that is not direct fails, so this shows that they were.
func TestRootBridge(t *testing.T) {
	longtest.Nightly(t) // node/agent's tests have agents, too, and a host has one
	netnstest.Require(t)
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin+"/", "exnet/cmd/exn-run", "exnet/cmd/exn-tun").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	o := Options{duration: time.Second, runs: 1, network: networkBridge, exnRun: filepath.Join(bin, "exn-run"), exnTun: filepath.Join(bin, "exn-tun")}
	pairs := allPairs()
	p := pairs[slices.IndexFunc(pairs, func(p Pair) bool { return p.Name == "haproxy-nginx" })]
	if missing := p.Missing(); missing != "" {
		t.Skip(missing)
	}
	rows, err := p.Measure(t.Context(), o, result.Machine{}, coredist.Distance{})
	if err != nil && strings.Contains(err.Error(), "BPF") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.MTU != bridgeMTU || r.Median <= 0 || r.P99 == nil || r.CPUPerRequest == nil || *r.CPUPerRequest <= 0 {
			t.Errorf("%+v", r)
		}
	}
	var b strings.Builder
	bridgeTable.Rows(&b, rows...)
	clitest.Fits(t, result.TableWidth, b.String())
	for _, left := range []string{"/sys/fs/cgroup/dsbench-*", "/sys/fs/cgroup/unified/dsbench-*"} {
		if dirs, _ := filepath.Glob(left); len(dirs) > 0 {
			t.Error("left behind: ", dirs)
		}
	}
}

func TestPgbenchTimes(t *testing.T) {
	e := &end{dir: t.TempDir()}
	if _, _, err := pgbenchTimes(e); err == nil {
		t.Error("no figure, and no error")
	}
	text := "0 1 300 0 1 2\n1 1 100 0 1 2\n2 1 200 0 1 2\n"
	if err := os.WriteFile(filepath.Join(e.dir, pgbenchLog+".17"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if p50, p99, err := pgbenchTimes(e); err != nil || p50 != 200 || p99 != 300 {
		t.Errorf("%v, %v, %v, want 200, 300", p50, p99, err)
	}
	if files, _ := filepath.Glob(filepath.Join(e.dir, pgbenchLog+"*")); len(files) > 0 {
		t.Error("left behind: ", files)
	}
}
