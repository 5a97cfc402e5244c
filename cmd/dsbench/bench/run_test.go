package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/benchtest"
	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/clitest"
	"exnet/internal/netns/netnstest"
)

func TestRunUsage(t *testing.T) {
	tests := []struct {
		words  string
		status int
		stdout string // that each must contain; "": must be empty
		stderr string
	}{
		{"", 2, "", "Usage:"},
		{"-h", 0, "\n  pingpong    latency: half a round trip\n", ""},
		{"help", 0, "\n  stream      bandwidth", ""},
		{"--version", 0, "dsbench ", ""},
		{"stream -h", 0, "dsbench stream --paths veth,exn --streams 2 --duration 2s", ""},
		{"pingpong --help", 0, "dsbench pingpong --paths veth,exn --size 1,64,512,2048 --runs 10", ""},
		{"worker", 1, "", "dsbench worker: reading the job: "},
		{"node-worker", 1, "", "dsbench node-worker: reading the job: "},
		{"daemon-worker", 1, "", "dsbench daemon-worker: reading the job: "},
		{"broker-worker", 1, "", "dsbench broker-worker: reading the job: "},
		{"foo", 2, "", `dsbench: unknown command "foo": choose from stream, pingpong, crr, rate, cpu, programs, udp, mpi, ports, report, readme, version, completion (see dsbench -h)` + "\n"},
		{"compare a b", 2, "", `dsbench: unknown command "compare": choose from stream`},
		{"steam", 2, "", `dsbench: unknown command "steam": did you mean stream? (see dsbench -h)` + "\n"},
		{"programs x", 2, "", `dsbench programs: unexpected argument "x" (see dsbench programs -h)` + "\n"},
		{"report b.html", 2, "", `dsbench report: unexpected argument "b.html" (see dsbench report -h)` + "\n"},
		{"report --runs 0", 2, "", "dsbench report: --runs: use a number from 1 to 1000 (see dsbench report -h)\n"},
		{"report -o a.txt", 2, "", `dsbench report: -o a.txt: give it a name that ends in .html (see dsbench report -h)` + "\n"},
		{"stream --paths foo", 2, "", `dsbench stream: --paths: unknown path "foo": choose from ` + strings.Join(pathNames(options{paths: paths.Kinds()}), ", ") + ` (see dsbench stream -h)` + "\n"},
		{"pingpong --size 0", 2, "", "dsbench pingpong: --size: 0 is not between 1 and 67108864 bytes (see dsbench pingpong -h)\n"},
	}
	for _, tt := range tests {
		status, stdout, stderr := runProgram(t.Context(), tt.words)
		if status != tt.status {
			t.Errorf("dsbench %s: status %d, want %d", tt.words, status, tt.status)
		}
		for _, s := range []struct{ name, got, want string }{{"stdout", stdout, tt.stdout}, {"stderr", stderr, tt.stderr}} {
			if !strings.Contains(s.got, s.want) || (s.want == "") != (s.got == "") {
				t.Errorf("dsbench %s: %s is %q, want %q", tt.words, s.name, s.got, s.want)
			}
		}
		fits(t, stdout)
	}
}

// TestHelpNamesEverything keeps the help text in step with the program.
func TestHelpNamesEverything(t *testing.T) {
	_, general, _ := runProgram(t.Context(), "-h")
	for _, k := range paths.Kinds() {
		if !strings.Contains(general, k.Name+" ") || !strings.Contains(general, k.About) {
			t.Errorf("dsbench -h does not explain %s", k.Name)
		}
	}
	const common = "paths control size duration warmup runs congestion cpus mtu no-fast-path json"
	for name, flags := range map[string]string{
		"stream":   common + " streams no-delay",
		"cpu":      common + " streams no-delay",
		"rate":     common + " streams",
		"crr":      common + " streams",
		"pingpong": common + " rest",
	} {
		_, help, _ := runProgram(t.Context(), name+" -h")
		for f := range strings.FieldsSeq(flags) {
			if !strings.Contains(help, "\n  --"+f+" ") {
				t.Errorf("dsbench %s -h does not explain --%s", name, f)
			}
		}
		if n := strings.Count(help, "\n  --"); n != len(strings.Fields(flags)) {
			t.Errorf("dsbench %s -h explains %d flags, want %d", name, n, len(strings.Fields(flags)))
		}
		// The examples must be right.
		for line := range strings.Lines(help) {
			args, isExample := strings.CutPrefix(strings.TrimSpace(line), "dsbench "+name)
			if !isExample {
				continue
			}
			m, _ := measureOf(name)
			if _, err := parseOptions(m, strings.Fields(args)); err != nil {
				t.Errorf("example dsbench %s%s: %v", name, args, err)
			}
		}
	}
}

// decodeRows reads the lines of --json.
func decodeRows(t *testing.T, text string) []result.Row {
	t.Helper()
	var rows []result.Row
	for line := range strings.Lines(text) {
		var r result.Row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		rows = append(rows, r)
	}
	return rows
}

const short = " --duration 20ms --warmup 5ms --runs 2 --json"

func checkRows(t *testing.T, rows []result.Row, paths ...string) {
	t.Helper()
	if len(rows) != len(paths) {
		t.Fatalf("%d rows, want %d: %+v", len(rows), len(paths), rows)
	}
	for i, r := range rows {
		if r.Path != paths[i] || r.Runs != 2 || len(r.Values) != 2 || r.MTU < 1500 || r.Ratio == nil || *r.Ratio < 0 || // 0: the control was busy with something else

			r.Median <= 0 || r.Min > r.Median || r.Max < r.Median || r.CPULoad <= 0 || r.CPU == "" || r.Date == "" {
			t.Errorf("row %+v", r)
		}
		if !strings.Contains("pingpong crr", r.Measure) && (r.CPUPerGB == nil || *r.CPUPerGB <= 0) {
			t.Errorf("row %+v", r)
		}
		if strings.Contains("pingpong crr", r.Measure) && (*r.P50 <= 0 || *r.P99 < *r.P50 || *r.P999 < *r.P99 || *r.P100 < *r.P999) {
			t.Errorf("row %+v", r)
		}
	}
}

func TestRunLo(t *testing.T) {
	flags := " --paths lo --congestion " + benchtest.Congestion(t) + short
	for _, words := range []string{"stream" + flags, "stream --streams 2 --size 1000" + flags, "pingpong" + flags, "crr --streams 2" + flags, "rate" + flags, "cpu --no-delay" + flags} {
		netnstest.CheckFDs(t)
		status, stdout, stderr := runProgram(t.Context(), words)
		if status != 0 || stderr != "" {
			t.Fatalf("dsbench %s: status %d, %s", words, status, stderr)
		}
		rows := decodeRows(t, stdout)
		checkRows(t, rows, "lo")
		if rows[0].Control != "lo" || *rows[0].Ratio != 1 {
			t.Errorf("row %+v", rows[0])
		}
		benchtest.NoChildren(t)
	}
}

func TestRootRunVeth(t *testing.T) {
	netnstest.Require(t)
	netnstest.CheckFDs(t)
	for _, measure := range []string{"stream", "pingpong"} {
		status, stdout, stderr := runProgram(t.Context(), measure+" --paths lo --control veth --size 1,4k"+short)
		if status != 0 || stderr != "dsbench "+measure+": measuring veth too, as the control\n" {
			t.Fatalf("dsbench %s: status %d, %s", measure, status, stderr)
		}
		rows := decodeRows(t, stdout)
		checkRows(t, rows, "veth", "lo", "veth", "lo")
		for i, r := range rows {
			if want := []int{1, 1, 4096, 4096}[i]; r.Size != want || r.Control != "veth" || r.Congestion != "cubic" {
				t.Errorf("row %+v", r)
			}
		}
		benchtest.NoChildren(t)
	}
}

func TestRootRunTable(t *testing.T) {
	netnstest.Require(t)
	status, stdout, stderr := runProgram(t.Context(), "stream --paths lo,veth --duration 10ms --warmup 0s --runs 1")
	if status != 0 || stderr != "" {
		t.Fatalf("status %d, %s", status, stderr)
	}
	fits(t, stdout)
	for _, want := range []string{"\n  131072  lo ", "\n  131072  veth ", "cubic, 1 run of 10ms each"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

func TestRunBadCongestion(t *testing.T) {
	if status, _, _ := runProgram(t.Context(), "stream --paths lo --congestion "+benchtest.Congestion(t)+short); status != 0 {
		t.Skip("lo does not work at all")
	}
	netnstest.Require(t) // else dsbench starts itself in a user namespace
	status, stdout, stderr := runProgram(t.Context(), "stream --paths lo --congestion nope"+short)
	want := "dsbench stream: path lo, 131072 bytes, run 1: congestion control nope is unknown here: " +
		"choose with --congestion from sysctl net.ipv4.tcp_available_congestion_control\n"
	if status != 1 || stdout != "" || stderr != want {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	benchtest.NoChildren(t)
}

// TestRunCancelled cancels in the second measurement, or soon after: what the first
// found is printed, at once, and nothing stays.
func TestRunCancelled(t *testing.T) {
	netnstest.CheckFDs(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var began atomic.Int64
	wg.Go(func() {
		measurements := benchtest.CountMeasurements(t, "self")
		for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			if measurements() > 1 {
				began.Store(time.Now().UnixNano())
				cancel()
			}
		}
	})
	status, stdout, stderr := runProgram(ctx, "stream --paths lo --duration 700ms --warmup 0s --runs 50 --json --congestion "+benchtest.Congestion(t))
	var n int
	if _, err := fmt.Sscanf(stderr, "dsbench stream: interrupted after %d of 50 measurements", &n); err != nil || status != 1 || n < 1 {
		t.Errorf("status %d, %s", status, stderr)
	}
	if rows := decodeRows(t, stdout); len(rows) != 1 || rows[0].Runs != n {
		t.Errorf("rows %+v", rows)
	}
	if d := time.Since(time.Unix(0, began.Load())); d > time.Minute {
		t.Errorf("it took %v to end", d)
	}
	benchtest.NoChildren(t)
}

// program starts dsbench as a process of its own.
func program(t *testing.T, words string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", strings.Fields(words)...)
	cmd.Env = append(os.Environ(), programEnv+"=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &stdout, &stderr
}

func TestProgramSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd, _, stderr := program(t, "stream --paths lo --duration 1m --json --congestion "+benchtest.Congestion(t))
			var workers []string
			benchtest.Eventually(t, "two workers", func() bool {
				workers = benchtest.Children(t, strconv.Itoa(cmd.Process.Pid))
				return len(workers) == 2
			})
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if sig != syscall.SIGKILL {
				if code := cmd.ProcessState.ExitCode(); code != 1 {
					t.Errorf("exit status %d, want 1", code)
				}
				if want := "dsbench stream: interrupted after 0 of 5 measurements\n"; stderr.String() != want {
					t.Errorf("stderr %q, want %q", stderr, want)
				}
			}
			benchtest.Eventually(t, "the workers' end", func() bool { return !benchtest.AnyAlive(workers) })
		})
	}
}

// Nothing is left in the directory for temporary files, whatever ends the program; what SIGKILL
// leaves goes with the next run.
func TestProgramLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	left := func(pattern string) []string {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		return paths
	}
	run := func(sig syscall.Signal) {
		t.Helper()
		before := left("*/*.sock")
		cmd, _, stderr := program(t, "stream --paths ds --duration 1m --json --congestion "+benchtest.Congestion(t))
		benchtest.Eventually(t, "a broker", func() bool {
			return slices.ContainsFunc(left("*/*.sock"), func(path string) bool { return !slices.Contains(before, path) })
		})
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // as the signal ends it
		t.Logf("%v: stderr %q", sig, stderr)
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE} {
		if run(sig); len(left("*")) > 0 {
			t.Fatalf("%v leaves %v", sig, left("*"))
		}
	}
	if run(syscall.SIGKILL); len(left("*")) == 0 {
		t.Error("SIGKILL leaves nothing: this tests nothing")
	}
	// What it was just forking has the lock, too, until it executes its program.
	for tries := 0; len(left("*")) > 0; tries++ {
		if run(syscall.SIGTERM); tries == 20 {
			t.Fatalf("after SIGKILL and %d runs there are %v", tries, left("*"))
		}
	}
}

func TestCommands(t *testing.T) { clitest.Tree(t, newRoot(), result.TableWidth) }
