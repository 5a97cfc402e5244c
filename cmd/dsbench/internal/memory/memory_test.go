package memory

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/clitest"
	"exnet/internal/leaktest"
	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
	"exnet/memory/pager"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// parse reads the arguments of a command line.
func parse(args ...string) (*options, error) {
	fs := pflag.NewFlagSet("memory", pflag.ContinueOnError)
	o := define(fs)
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	return o, o.Check()
}

func TestCheck(t *testing.T) {
	for _, args := range [][]string{{"--runs", "0"}, {"--only", "nothing"}, {"--only", "get,"}} {
		if _, err := parse(args...); err == nil || !strings.Contains(err.Error(), args[0]) {
			t.Errorf("%v: %v", args, err)
		}
	}
	if o, err := parse("--only", "get,fio"); err != nil || len(o.only) != 2 {
		t.Errorf("%+v, %v", o, err)
	}
}

// All parts are measured that can be, sizes and times a 64th; how fast they are is not a
// matter of this test. Nothing is left of them.
func TestRootMeasure(t *testing.T) {
	longtest.Skip(t)
	netnstest.Require(t)
	if err := pager.Check(); err != nil {
		t.Skip(err)
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-trimpath", "-o", bin+"/", "exnet/cmd/exn-tun", "exnet/cmd/exn-mem").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	args := []string{"--runs", "1", "--json", "--exn-tun", filepath.Join(bin, "exn-tun")}
	if _, err := os.Stat("/usr/include/nbdkit-plugin.h"); err == nil {
		if out, err := exec.Command("make", "-s", "-C", "../../../../memory/c", "BUILD="+bin).CombinedOutput(); err != nil {
			t.Fatalf("make: %v\n%s", err, out)
		}
		args = append(args, "--plugin", filepath.Join(bin, "nbdkit-exnet-plugin.so"))
	}
	o, err := parse(args...)
	if err != nil {
		t.Fatal(err)
	}
	o.scale = 64
	var out, said strings.Builder
	env := measure.Env{Stdout: &out, Stderr: &said, Distance: func() coredist.Distance { return coredist.Distance{} }}
	if err := o.Take(t.Context(), env); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	var rows []result.Row
	seen := make(map[string]int)
	for line := range strings.Lines(out.String()) {
		var r result.Row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		// A page that a busy agent has not taken away yet is read in no time. Its ratio is 0.
		if r.Runs != 1 || r.Median <= 0 || r.Ratio == nil || *r.Ratio < 0 {
			t.Errorf("%+v", r)
		}
		seen[r.Measure]++
		rows = append(rows, r)
	}
	for _, p := range parts() {
		if seen[p.name] != len(p.figures) && !strings.Contains(said.String(), p.name+" is left out: ") {
			t.Errorf("%s: %d rows, want %d\n%s", p.name, seen[p.name], len(p.figures), said.String())
		}
	}
	t.Log(said.String())
	var text strings.Builder
	if err := result.Print(&text, false, rows, table, "", result.Machine{}, note); err != nil {
		t.Fatal(err)
	}
	clitest.Fits(t, result.TableWidth, text.String())
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A rate is never 0, though the time is over before any goroutine begins.
func TestRate(t *testing.T) {
	for range 1000 {
		reads := 0
		v, err := rate(0, 1, pageSize, func([]byte, int64) error { reads++; return nil })
		if err != nil || v <= 0 || reads == 0 {
			t.Fatalf("%g a second, %d reads, %v", v, reads, err)
		}
	}
}

// Each control is that of its own part, and a ratio is of the medians.
func TestRows(t *testing.T) {
	p := hostsPart()
	rows := p.rows([][]float64{{100, 50, 80, 10, 5, 8}, {300, 50, 80, 30, 5, 8}, {200, 50, 80, 20, 5, 8}}, result.Machine{}, coredist.Distance{})
	for i, want := range []float64{1, 0.25, 0.4, 1, 0.25, 0.4} {
		if *rows[i].Ratio != want || rows[i].Runs != 3 {
			t.Errorf("%s: ratio %v, want %v", rows[i].Path, *rows[i].Ratio, want)
		}
	}
	if rows[4].Control != "iperf3 per core" || rows[4].Aim == "" || rows[0].Aim != "" {
		t.Errorf("%+v", rows[4])
	}
	for _, p := range parts() {
		for _, f := range p.figures {
			if f.control < 0 || f.control >= len(p.figures) || p.figures[f.control].unit != f.unit {
				t.Errorf("%s, %s: control %d", p.name, f.path, f.control)
			}
		}
	}
}

// What programs print becomes a figure, and what they cannot have printed an error.
func TestPrinted(t *testing.T) {
	for _, c := range []struct {
		pattern, out string
		want         float64 // 0: an error
	}{
		{requests, "\"test\",\"rps\"\n\"eval local\",\"10184.5\",\"4.1\"", 10184.5},
		{requests, "Could not connect", 0},
		{requests, "\"a\",\"-1\",\"-2\"", 0},
		{operations, `fio: a note
{"jobs": [{"error": 0, "read": {"iops": 92000.5}, "write": {"iops": 0}}]}`, 92000.5},
		{operations, `{"jobs": [{"error": 0, "read": {"iops": 0.000000}, "write": {"iops": 250.5}}]}`, 250.5},
		{operations, `{"jobs": [{"error": 5, "read": {"iops": 92000.5}}]}`, 0},
		{operations, `{"jobs": []}`, 0},
		{operations, "fio: nbd", 0},
		{measure.Iperf3Rate, `{"end": {"sum_received": {"bits_per_second": 8e9}}}`, 8e9},
		{measure.Iperf3Rate, `{"error": "unable to connect"}`, 0},
		{printed, "43.2500", 43.25},
		{printed, "0.0000", 0},
		{printed, "43 errors", 0},
	} {
		if v, err := measure.Figure(c.pattern, c.out); v != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%q: %g, %v, want %g", c.out, v, err, c.want)
		}
	}
}
