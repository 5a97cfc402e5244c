package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/clitest"
)

// builds makes two directories with commands: scripts that say what they were asked.
func builds(t *testing.T, script string) (dirs [2]string) {
	t.Helper()
	for i, build := range []string{"base", "head"} {
		dirs[i] = filepath.Join(t.TempDir(), build)
		if err := os.Mkdir(dirs[i], 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"dsbench", "exn-run", "exn-tun"} {
			if err := os.WriteFile(filepath.Join(dirs[i], name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dirs
}

func TestParse(t *testing.T) {
	dirs := builds(t, "")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "BASE and HEAD, not 0"},
		{[]string{dirs[0]}, "not 1"},
		{[]string{"-rounds", "0", dirs[0], dirs[1]}, "0 is not from 1"},
		{[]string{dirs[0], t.TempDir()}, "build the commands with GOBIN="},
	} {
		if _, err := parseArgs(tt.args); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
	}
	o, err := parseArgs([]string{"-rounds", "3", dirs[0], dirs[1]})
	if err != nil || o.rounds != 3 || o.dirs != dirs {
		t.Errorf("%+v, %v", o, err)
	}
}

// made adds pairs of values, each with the distances of the CPUs.
func made(m measure, unit string, pairs ...[4]float64) figure {
	f := figure{measure: m}
	for _, p := range pairs {
		f.addPair([2]result.Row{
			{Unit: unit, Median: p[0], Distance: coredist.Distance{Line: p[2]}},
			{Unit: unit, Median: p[1], Distance: coredist.Distance{Line: p[3]}},
		})
	}
	return f
}

func TestTable(t *testing.T) {
	up, down := measure{name: "redis-benchmark"}, measure{name: "ds, 64 bytes", lower: true}
	text := speedTable([]figure{
		made(up, "1/s", [4]float64{1000, 500, .06, .06}, [4]float64{1010, 510, .05, .06}, [4]float64{990, 505, .2, .25}, [4]float64{990, 2000, .2, .05}),
		made(down, "us", [4]float64{.4, .5, 0, 0}, [4]float64{.41, .51, 0, 0}, [4]float64{.4, .52, 0, 0}),
		made(down, "us", [4]float64{.5, .4, 0, 0}, [4]float64{.51, .41, 0, 0}, [4]float64{.52, .4, 0, 0}),
		made(up, "1/s", [4]float64{100, 200, 0, 0}, [4]float64{300, 100, 0, 0}, [4]float64{200, 300, 0, 0}),
		made(up, "1/s", [4]float64{100, 200, 0, 0}),
		made(up, "1/s", [4]float64{100, 200, .05, .2}),
		{measure: measure{name: "gone"}, err: errMissing},
	}, 4)
	clitest.Fits(t, 100, text)
	lines := strings.Split(text, "\n")
	for i, want := range []string{"head/base", "0.505    3/4  SLOWER", "1.27    3/3  SLOWER", "0.784    3/3  faster", "1.00    3/3  -", "1/1  too few runs", "0/1", "", "Medians of 4 interleaved runs"} {
		if i >= len(lines) || !strings.Contains(lines[i], want) {
			t.Errorf("line %d: want %q in\n%s", i, want, text)
		}
	}
	if !strings.Contains(strings.ReplaceAll(text, "\n", " "), "2 pairs not counted") {
		t.Errorf("pairs that do not count:\n%s", text)
	}
	if strings.Contains(text, "gone") {
		t.Errorf("what is left out:\n%s", text)
	}
}

// Each measure is taken with both builds, the workload of programs being the head's; figures have
// no influence on the end, what fails has.
func TestRun(t *testing.T) {
	if err := exec.Command("unshare", "-rn", "true").Run(); err != nil {
		t.Skip("no network namespaces here:", err)
	}
	var o options
	o.rounds = 1
	o.dirs = builds(t, `echo "$0 $*" >> `+filepath.Join(t.TempDir(), "log")+`
case "$*" in *--exn-run*base/exn-run) v=9 ;; *--exn-run*) v=5 ;; *) v=7 ;; esac
for path in lo direct ds exn exn-shm exn-ofi; do echo '{"path":"'$path'","measure":"udp-oneway","size":64,"unit":"1/s","median":'$v'}'; done`)
	var stdout, stderr strings.Builder
	if err := o.measureBuilds(t.Context(), &stdout, &stderr); err != nil {
		t.Fatal(err, stderr.String())
	}
	for _, m := range measures {
		if want := map[bool]string{true: "0.556", false: "1.00"}[m.program]; !strings.Contains(lineOf(stdout.String(), m.name), want) {
			t.Errorf("%s: want %s in\n%s", m.name, want, stdout.String())
		}
	}
	o.dirs = builds(t, `case "$*" in *nginx*) echo "dsbench programs: nginx-wrk is left out: wrk is not installed" >&2; exit 1 ;; *crr*) echo broken >&2; exit 1 ;; esac
for path in direct ds exn exn-shm exn-ofi; do echo '{"path":"'$path'","measure":"udp-oneway","size":64,"median":1}'; done`)
	stdout.Reset()
	if err := o.measureBuilds(t.Context(), &stdout, &stderr); err == nil || errors.Is(err, errMissing) {
		t.Errorf("a measure that fails: %v", err)
	}
	for _, want := range []string{"nginx-wrk is left out: not installed", "ds, 1 request is left out: exit status 1: broken"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("no %q in %s", want, stderr.String())
		}
	}
	if lineOf(stdout.String(), "iperf3") == "" || lineOf(stdout.String(), "nginx") != "" {
		t.Errorf("the table:\n%s", stdout.String())
	}
}

func lineOf(text, name string) string {
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, name) {
			return line
		}
	}
	return ""
}

// What check.sh does with its arguments.
func TestArguments(t *testing.T) {
	for args, want := range map[string]string{
		"speed no-such-commit": "no-such-commit is no commit",
		"speed HEAD HEAD":      "./check.sh speed [COMMIT]",
		"quick":                "unknown word quick",
		"full quick":           "unknown word quick",
	} {
		out, err := exec.Command("../../../../check.sh", strings.Fields(args)...).CombinedOutput()
		if e := (*exec.ExitError)(nil); !errors.As(err, &e) || e.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s", args, err, out)
		}
	}
}

func TestRowOf(t *testing.T) {
	for _, text := range []string{"", `{"path":"lo","median":2}`, `{"path":"ds","median":0}`, "no JSON"} {
		if row, err := (measure{path: "ds"}).rowOf(strings.NewReader(text)); err == nil {
			t.Errorf("%q: %+v", text, row)
		}
	}
}
