package udp

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/internal/bench/coredist"
	"exnet/internal/bench/measure"
	"exnet/internal/bench/result"
)

// What the program prints becomes a figure, and what it cannot have printed an error.
func TestTake(t *testing.T) {
	var r row
	for _, out := range []string{"1000 900 1 0.5", "500 500 0 1"} {
		if _, err := r.take(out); err != nil {
			t.Error(err)
		}
	}
	if r.Sent != 1500 || r.Received != 1400 || r.Lost != 100 || r.Late != 1 {
		t.Errorf("%+v", r)
	}
	if v, err := new(row).take("3000000 2000000 0 2"); err != nil || v != 1 {
		t.Errorf("%g Mmsg/s, %v, want 1", v, err)
	}
	if v, err := new(row).take("0.3 0.4"); err != nil || v != 0.3 {
		t.Errorf("%g us, %v, want 0.3", v, err)
	}
	for _, out := range []string{"", "nothing", "0", "-1 2", "1 2 0 0"} {
		if v, err := new(row).take(out); err == nil && v <= 0 {
			t.Errorf("%q: %g", out, v)
		}
	}
}

// The table says how many datagrams were lost.
func TestTable(t *testing.T) {
	r := row{Row: result.Row{Measure: "udp-oneway", Path: "direct", Size: 64, Unit: "Mmsg/s"}, Sent: 1000, Received: 990, Lost: 10}
	var out strings.Builder
	o := &options{runs: 2, duration: time.Second, cpus: [2]int{0, 1}}
	if err := o.table(&out, []row{r}, result.Machine{}, coredist.Distance{}); err != nil {
		t.Fatal(err)
	}
	if line := strings.Fields(out.String()[strings.LastIndex(out.String(), "udp-oneway"):]); strings.Join(line[len(line)-4:], " ") != "1000 990 10 0" {
		t.Error(out.String())
	}
}

// The program runs, here on the kernel's path twice.
func TestMeasure(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip(err)
	}
	fake := filepath.Join(t.TempDir(), "exn-run")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\n[ \"$1\" = --print-env ] && exit 0\nshift 2\nexec \"$@\"\n"), 0o755); err != nil {
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
	if n := strings.Count(out.String(), "udp-oneway"); n != 4 {
		t.Errorf("%d lines of udp-oneway, want 4:\n%s", n, &out)
	}
}
