package mpi

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/clitest"
	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
	"exnet/test/testlab"
)

func parse(args ...string) (*Options, error) {
	fs := pflag.NewFlagSet("mpi", pflag.ContinueOnError)
	o := Define(fs)
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	return o, o.Check()
}

func TestOptions(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--paths lo,netstack", `unknown path of MPI "netstack"`},
		{"--mpi openmpi,intel", `unknown MPI "intel"`},
		{"--size 8,0", "--size: 0 is not between"},
		{"--size 65m", "--size"},
		{"--size 99999999999999999999", "--size"},
		{"--duration 0s", "--duration"},
		{"--runs 0", "--runs"},
		{"--paths ds --exn-run /no/such", "go build"},
		{"--paths ofi --exn-run /no/such", "go build"},
		{"--mpi mpich --paths lo,ofi-tcp", `path "ofi-tcp" takes openmpi`},
	} {
		if _, err := parse(strings.Fields(tt.args)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
		}
	}
	o, err := parse("--paths", "lo,exn", "--size", "8,2k,1M")
	if err != nil || !slices.Equal(o.sizes, []int{8, 2048, 1 << 20}) || !slices.Equal(o.paths, []string{"lo", "exn"}) || o.runs != 5 {
		t.Errorf("%+v, %v", o, err)
	}
}

// On path shm the ranks have shared memory in place of TCP, and no TCP beside it.
func TestSharedMemory(t *testing.T) {
	for _, l := range libraries {
		argv := l.argv("rsh", "lo", [2]string{"127.0.0.1", "127.0.0.1"})
		if n := len(slices.DeleteFunc(argv, func(a string) bool { return a != l.tcp })); n != 1 || strings.Contains(l.shm, "tcp") {
			t.Errorf("%s: %d arguments are %q, which %q replaces", l.name, n, l.tcp, l.shm)
		}
	}
	o, err := parse()
	if err != nil && !strings.Contains(err.Error(), "exn-run") || slices.Contains(strings.Split(o.pathList, ","), sharedMemory) {
		t.Errorf("the default paths are %v, %v", o.pathList, err)
	}
}

// Ranks of Open MPI that connect to each other at the same time still look at their connections,
// on the paths that have any.
func TestEventTickRate(t *testing.T) {
	for _, path := range pathNames {
		argv := libraries[0].command("rsh", "exn-run", &site{name: path, device: "lo"})
		i := slices.Index(argv, "mpi_event_tick_rate")
		if tcp := path != sharedMemory && providers[path] == ""; tcp != (i >= 1 && argv[i-1] == "--mca" && argv[i+1] == "1") {
			t.Errorf("%s: %q", path, argv)
		}
	}
}

// On the paths of libfabric, ranks have the provider, and nothing that could take its place.
func TestProviders(t *testing.T) {
	for path, provider := range providers {
		argv := libraries[0].command("rsh", "exn-run", &site{name: path, device: "lo"})
		all := strings.Join(argv, " ")
		if !strings.Contains(all, "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include "+provider+" ") {
			t.Errorf("%s: %q", path, argv)
		}
		if by := strings.HasPrefix(all, "exn-run --libfabric mpirun.openmpi "); by != (path == exnetOFI) {
			t.Errorf("%s: %q", path, argv)
		}
	}
}

func TestRead(t *testing.T) {
	var got []figure
	found := func(f figure, v float64) {
		if v != 1.5 {
			t.Errorf("%v", v)
		}
		got = append(got, f)
	}
	if !read(strings.NewReader("Warning: x\nlatency 8 1.5\nrate 64 1.5\nrate x\nrate 1 -2\nend\nrate 1 1.5\n"), "m", "p", found) {
		t.Error("not whole")
	}
	if want := []figure{{"m", "p", "latency", 8}, {"m", "p", "rate", 64}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if read(strings.NewReader("latency 8 1.5\n"), "m", "p", found) {
		t.Error("whole without an end")
	}
}

// A run that hangs counts for nothing and is repeated; one that always hangs fails.
func TestHungRun(t *testing.T) {
	b := &bench{dir: t.TempDir(), grace: time.Second / 2}
	l, s := library{name: "m", argv: func(string, string, [2]string) []string { return nil }}, &site{name: "lo"}
	for _, c := range []struct {
		script string
		want   float64 // 0: none
	}{
		{"#!/bin/sh\ncd $(dirname $0)\necho latency 8 9\n[ -e hung ] || { touch hung; exec sleep 1000; }\necho end\n", 9},
		{"#!/bin/sh\nexec sleep 1000\n", 0},
	} {
		if err := os.WriteFile(b.rsh(), []byte(c.script), 0o755); err != nil {
			t.Fatal(err)
		}
		values := make(map[figure]float64)
		err := b.runOnce(t.Context(), l, s, values)
		if got := values[figure{"m", "lo", "latency", 8}]; got != c.want || errors.Is(err, errHung) != (c.want == 0) {
			t.Errorf("%q: %v, %v", c.script, got, err)
		}
	}
}

// exn-run has its library before a run, whose time is limited.
func TestBuildsLibrary(t *testing.T) {
	dir := t.TempDir()
	exnRun, asked := filepath.Join(dir, "exn-run"), filepath.Join(dir, "asked")
	if err := os.WriteFile(exnRun, []byte("#!/bin/sh\necho \"$@\" > "+asked+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"lo": "", "ds": "--print-env\n"} {
		b := &bench{dir: t.TempDir(), o: Options{exnRun: exnRun, paths: []string{path}}}
		if err := b.buildPrograms(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if text, _ := os.ReadFile(asked); string(text) != want { // it may not be there
			t.Errorf("%s: exn-run was asked for %q, want %q", path, text, want)
		}
		os.Remove(asked)
	}
}

// A path of each kind: each figure is there, and direct sockets were direct, or Take had
// failed. (TestRootMPI in ./test has MPICH, too.)
func TestRootRun(t *testing.T) { takes(t, "lo", "veth", "ds", "ds-exn", "shm") }

// The same for libfabric; Open MPI has nothing else there.
func TestRootRunLibfabric(t *testing.T) {
	longtest.Skip(t)
	netnstest.Require(t)
	if err := exec.CommandContext(t.Context(), "cc", "-E", "-include", "rdma/fabric.h", "-xc", os.DevNull).Run(); err != nil && os.Getenv("CI") != "true" {
		t.Skip("libfabric's headers are missing: apt-get install libfabric-dev")
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "make", "-s", "-C", "../../../../ports/ofi", "BUILD="+dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("FI_PROVIDER_PATH", dir)
	takes(t, "shm", "ofi", "ofi-tcp")
	t.Setenv("FI_PROVIDER_PATH", t.TempDir())
	o, err := parse("--exn-run", exnRun(t), "--mpi", "openmpi", "--paths", "ofi", "--size", "8", "--duration", "1ms", "--runs", "1")
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if err := o.Take(t.Context(), env(&stdout, &stderr)); err == nil || !strings.Contains(err.Error(), "is the provider there?") {
		t.Errorf("without the provider: %v\n%s%s", err, &stdout, &stderr)
	}
}

// exnRun builds exn-run.
func exnRun(t *testing.T) string {
	t.Helper()
	dir, err := testlab.Build("exn-run")
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err != nil {
		t.Fatal(err)
	}
	return dir + "/exn-run"
}

func env(stdout, stderr *bytes.Buffer) measure.Env {
	return measure.Env{Stdout: stdout, Stderr: stderr, Distance: func() coredist.Distance { return coredist.Distance{} }}
}

// takes measures Open MPI on some paths, and expects each figure.
func takes(t *testing.T, paths ...string) {
	t.Helper()
	netnstest.Require(t)
	testlab.RequireTUN(t)
	if missing := libraries[0].missing(); missing != "" {
		t.Skip(missing)
	}
	o, err := parse("--exn-run", exnRun(t), "--mpi", "openmpi", "--paths", strings.Join(paths, ","), "--size", "4k", "--duration", "1ms", "--runs", "1", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if err := o.Take(t.Context(), env(&stdout, &stderr)); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var rows []result.Row
	for lines := json.NewDecoder(&stdout); lines.More(); {
		var r result.Row
		if err := lines.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if r.Median <= 0 || r.Runs != 1 || r.Ratio == nil {
			t.Errorf("%+v", r)
		}
		rows = append(rows, r)
	}
	if want := len(units) * len(paths); len(rows) != want {
		t.Errorf("%d rows, want %d", len(rows), want)
	}
	var text strings.Builder
	if err := result.Print(&text, false, rows, table, "", result.Machine{}, ""); err != nil {
		t.Fatal(err)
	}
	clitest.Fits(t, result.TableWidth, text.String())
}
