package udp

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/tcpbench"
)

// What the program prints becomes a figure, and what it cannot have printed an error.
func TestTake(t *testing.T) {
	var r result.Datagrams
	for _, out := range []string{"1000 900 1 0.5", "500 500 0 1"} {
		if _, err := addOutput(&r, out); err != nil {
			t.Error(err)
		}
	}
	if r.Sent != 1500 || r.Received != 1400 || r.Lost != 100 || r.Late != 1 {
		t.Errorf("%+v", r)
	}
	if v, err := addOutput(new(result.Datagrams), "3000000 2000000 0 2"); err != nil || v != 1 {
		t.Errorf("%g Mmsg/s, %v, want 1", v, err)
	}
	if v, err := addOutput(new(result.Datagrams), "0.3 0.4"); err != nil || v != 0.3 {
		t.Errorf("%g us, %v, want 0.3", v, err)
	}
	for _, out := range []string{"", "nothing", "0", "-1 2", "1 2 0 0"} {
		if v, err := addOutput(new(result.Datagrams), out); err == nil && v <= 0 {
			t.Errorf("%q: %g", out, v)
		}
	}
}

// The table says how many datagrams were lost.
func TestTable(t *testing.T) {
	r := result.Row{Measure: "udp-oneway", Path: "direct", Size: 64, Unit: "Mmsg/s", Datagrams: &result.Datagrams{Sent: 1000, Received: 990, Lost: 10}}
	var out strings.Builder
	o := &options{runs: 2, duration: time.Second, cpus: tcpbench.Placement{Server: 1}}
	if err := result.Print(&out, false, []result.Row{r}, table, o.what(coredist.Distance{}), result.Machine{}, ""); err != nil {
		t.Fatal(err)
	}
	if line := strings.Fields(out.String()[strings.LastIndex(out.String(), "udp-oneway"):]); strings.Join(line[len(line)-4:], " ") != "1000 990 10 0" {
		t.Error(out.String())
	}
}

// The program runs, here on the kernel's path thrice, and once in each round by the rule.
func TestMeasure(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	fake, said := filepath.Join(dir, "exn-run"), filepath.Join(dir, "said")
	script := "#!/bin/sh\n[ \"$1\" = --print-env ] && exit 0\nshift\n[ \"$1\" != --rules ] || { cat \"$2\" >>" + said + "; shift 2; }\nshift\nexec \"$@\"\n"
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	o := &options{runs: 1, duration: 20 * time.Millisecond, exnRun: fake}
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := o.Take(t.Context(), measure.Env{Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"udp-oneway", "udp-lossless"} {
		if n := strings.Count(out.String(), name); n != 6 {
			t.Errorf("%d lines of %s, want 6:\n%s", n, name, &out)
		}
	}
	rules, err := os.ReadFile(said)
	if want := strings.Repeat("direct * * * * proto=udp reliable\n", len(parts)); err != nil || string(rules) != want {
		t.Errorf("rules %q, %v, want %q", rules, err, want)
	}
}
