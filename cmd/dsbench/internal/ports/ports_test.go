package ports

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/leaktest"
	"exnet/internal/tcpbench"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// parse reads the arguments of a command line.
func parse(args ...string) (*options, error) {
	fs := pflag.NewFlagSet("ports", pflag.ContinueOnError)
	o := defineFlags(fs)
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	return o, o.Check()
}

// It measures all of its figures; how fast they are is not a matter of this test.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler")
	}
	o, err := parse("--runs", "1", "--rounds", "1000", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := o.Take(t.Context(), measure.Env{Stdout: &out}); err != nil {
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
	o.json, o.rounds = false, minRounds
	out.Reset()
	if err := o.Take(t.Context(), measure.Env{Stdout: &out}); err != nil || !strings.Contains(out.String(), "median") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestCheck(t *testing.T) {
	for _, args := range [][]string{
		{"--runs", "0"}, {"--rounds", "99"}, {"--cpus", "0"}, {"--cpus", "0,x"}, {"--cpus", "0,100000"},
	} {
		if _, err := parse(args...); err == nil || !strings.Contains(err.Error(), args[0]) {
			t.Errorf("%v: %v", args, err)
		}
	}
	if o, err := parse("--cpus", "0,0"); err == nil {
		if o.cpus != (tcpbench.Placement{}) {
			t.Errorf("CPUs %v", o.cpus)
		}
	}
}
