package portbench

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"exnet/internal/bench/coredist"
	"exnet/internal/bench/result"
	"exnet/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// options are those of a command line.
func options(t *testing.T, args ...string) (Options, error) {
	t.Helper()
	fs := pflag.NewFlagSet("ports", pflag.ContinueOnError)
	o := Define(fs)
	if err := fs.Parse(args); err != nil {
		return *o, err
	}
	return *o, o.Check()
}

// It measures all of its figures; how fast they are is not a matter of this test.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler")
	}
	o, err := options(t, "--runs", "1", "--rounds", "1000", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := Run(t.Context(), o, result.Machine{}, coredist.Distance{}, &out); err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(out.String()) {
		var r result.Row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if r.Runs != 1 || r.Median <= 0 && r.Unit != "us/s" || (r.Unit == "GB/s") != (r.Ratio != nil) {
			t.Errorf("%+v", r)
		}
		n++
	}
	if n != len(figures) {
		t.Errorf("%d rows, want %d", n, len(figures))
	}
	o.json = false
	out.Reset()
	if err := table(&out, o, nil, result.Machine{}, coredist.Distance{}); err != nil || !strings.Contains(out.String(), "median") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestCheck(t *testing.T) {
	for _, args := range [][]string{
		{"--runs", "0"}, {"--rounds", "99"}, {"--cpus", "0"}, {"--cpus", "0,x"}, {"--cpus", "0,100000"},
	} {
		if _, err := options(t, args...); err == nil || !strings.Contains(err.Error(), args[0]) {
			t.Errorf("%v: %v", args, err)
		}
	}
	if o, err := options(t, "--cpus", "0,0"); err == nil {
		if a, b := o.CPUs(); a != 0 || b != 0 {
			t.Errorf("CPUs %d, %d", a, b)
		}
	}
}
