package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/display"
	"exnet/internal/stats"
)

// measure is a figure that is watched.
type measure struct {
	name  string
	lower bool // is better
	// program: the head's dsbench takes it with the build's exn-run; else the build's own dsbench
	// does.
	program bool
	// path, what and size are of the row that counts; "", 0: any.
	path, what string
	size       int
	args       []string
}

// program is a measure of "dsbench programs", whose unit of duration is that of a run on TCP.
func program(name string, seconds int) measure {
	return measure{name: name, program: true, path: "direct",
		args: []string{"programs", "--only", name, "--direct-only", "--runs", "1", "--duration", fmt.Sprintf("%ds", seconds), "--json"}}
}

// agent is a measure of programs in network namespaces that an agent serves. It takes root.
func agent(name string, seconds int) measure {
	m := program(name, seconds)
	m.args = append(m.args, "--network", "bridge")
	return m
}

// path is a measure of a path of dsbench.
func path(name, what, path string, lower bool, args ...string) measure {
	return measure{name: name, lower: lower, path: path,
		args: append([]string{what, "--paths", path, "--control", path, "--runs", "1", "--duration", "1s", "--json"}, args...)}
}

var measures = []measure{
	program("redis-benchmark", 2),
	program("redis-reconnect", 1),
	program("nginx-wrk", 1),
	program("iperf3", 1),
	agent("nginx-close", 1),
	agent("redis-cli", 1),
	{name: "udp, 64 bytes", program: true, path: "direct", what: "udp-oneway", size: 64,
		args: []string{"udp", "--runs", "1", "--duration", "300ms", "--json"}},
	path("ds, 64 bytes", "pingpong", "ds", true, "--size", "64"),
	path("ds, 64 KiB", "stream", "ds", false, "--size", "64k"),
	path("ds, 1 request", "crr", "ds", false, "--size", "64"),
	path("exn0, stream", "stream", "exn", false, "--size", "64k"),
	path("exn-shm, stream", "stream", "exn-shm", false, "--size", "64k"),
	path("exn-shm, rested", "pingpong", "exn-shm", true, "--size", "64", "--rest", "10ms"),
	path("libfabric link", "pingpong", "exn-ofi", true, "--size", "64"),
}

const runTime = time.Minute // after which a run counts as hanging

// errMissing says that a program of others is not installed.
var errMissing = errors.New("not installed")

// measureBuilds measures, and prints the table.
func (o options) measureBuilds(ctx context.Context, stdout, stderr io.Writer) error {
	begun := time.Now()
	var list []figure
	for _, m := range measures {
		list = append(list, figure{measure: m})
	}
	var failed error
	for round := range o.rounds {
		for i := range list {
			f := &list[i]
			if f.err != nil {
				continue
			}
			var pair [2]result.Row
			for k := range pair {
				build := (k + round) % 2
				if pair[build], f.err = o.measureOnce(ctx, f.measure, build); f.err != nil {
					fmt.Fprintf(stderr, "speed: %s is left out: %v\n", f.name, f.err)
					if !errors.Is(f.err, errMissing) {
						failed = errors.New("not everything could be measured")
					}
					break
				}
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if f.err == nil {
				f.addPair(pair)
			}
		}
		fmt.Fprintf(stderr, "speed: round %d of %d, %.0f s\n", round+1, o.rounds, time.Since(begun).Seconds())
	}
	if _, err := io.WriteString(stdout, speedTable(list, o.rounds)); err != nil {
		return err
	}
	return failed
}

// measureOnce takes m once with a build: 0 base, 1 head.
func (o options) measureOnce(ctx context.Context, m measure, build int) (row result.Row, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runTime, errors.New("it hangs"))
	defer cancel()
	argv := append([]string{filepath.Join(o.dirs[build], "dsbench")}, m.args...)
	if m.program { // exn-tun is beside exn-run
		argv[0] = filepath.Join(o.dirs[1], "dsbench")
		argv = append(argv, "--exn-run", filepath.Join(o.dirs[build], "exn-run"))
	}
	apart := []string{"-n"}
	if os.Getuid() != 0 {
		apart = []string{"-rn"}
	}
	cmd := exec.CommandContext(ctx, "unshare", append(append(apart, "sh", "-c", `ip link set lo up && exec "$@"`, "sh"), argv...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) } // it ends what it has started
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if strings.Contains(stderr.String(), "is not installed") {
			err = errMissing
		}
		text := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return row, fmt.Errorf("%w: %s", err, text[0])
	}
	return m.rowOf(&stdout)
}

// rowOf returns the row of m in what dsbench prints with --json.
func (m measure) rowOf(r io.Reader) (row result.Row, err error) {
	for d := json.NewDecoder(r); ; {
		row = result.Row{}
		if err := d.Decode(&row); err == io.EOF {
			return row, fmt.Errorf("dsbench printed no figure of %s", m.path)
		} else if err != nil {
			return row, fmt.Errorf("dsbench's output: %w", err)
		}
		if row.Path == m.path && (m.what == "" || row.Measure == m.what && row.Size == m.size) && row.Median > 0 {
			return row, nil
		}
	}
}

// figure is what came of a measure.
type figure struct {
	measure
	unit   string
	values [2][]float64 // base, head; of pairs that count
	pairs  int          // that were taken
	err    error        // why it is left out
}

// farther is by how much two distances of CPUs differ at least that are not the same.
const farther = 1.6

// addPair adds a pair of runs, if both found the CPUs at the same distance.
func (f *figure) addPair(pair [2]result.Row) {
	f.pairs++
	f.unit = pair[1].Unit
	near, far := min(pair[0].Line, pair[1].Line), max(pair[0].Line, pair[1].Line)
	if far > farther*near {
		return
	}
	for i, r := range pair {
		f.values[i] = append(f.values[i], r.Median)
	}
}

// bound is the least change that counts.
const bound = 0.05

// verdict says whether the head differs from the base by more than the spread.
func (f *figure) verdict(d stats.Change) string {
	switch {
	case !d.Beyond && min(d.A.N, d.B.N) < stats.MinRunsForNoise:
		return "too few runs"
	case !d.Beyond:
		return "-"
	case (d.Ratio > 1) == f.lower:
		return "SLOWER"
	}
	return "faster"
}

// speedTable is the table for people.
func speedTable(list []figure, rounds int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s %-7s %10s %7s %10s %7s %10s %6s  %s\n", "measure", "", "base", "spread", "head", "spread", "head/base", "pairs", "beyond the noise")
	left := 0
	for _, f := range list {
		if f.err != nil {
			continue
		}
		pairs := fmt.Sprintf("%d/%d", len(f.values[0]), f.pairs)
		left += f.pairs - len(f.values[0])
		if len(f.values[0]) == 0 {
			fmt.Fprintf(&b, "%-16s %-7s %10s %7s %10s %7s %10s %6s\n", f.name, f.unit, "", "", "", "", "", pairs)
			continue
		}
		d := stats.Differ(f.values[0], f.values[1], bound)
		fmt.Fprintf(&b, "%-16s %-7s %10s %7s %10s %7s %10s %6s  %s\n", f.name, f.unit, display.Figure(d.A.Median), display.Percent(d.A.Spread()),
			display.Figure(d.B.Median), display.Percent(d.B.Spread()), display.Figure(d.Ratio), pairs, f.verdict(d))
	}
	b.WriteByte('\n')
	text := fmt.Sprintf("Medians of %s. The spread is how far apart the middle half of the runs lies, over the median.", display.Count(rounds, "interleaved run"))
	if left > 0 {
		text += fmt.Sprintf(" %s not counted: the CPUs were near in one run and far in the other.", display.Count(left, "pair"))
	}
	result.Wrap(&b, text)
	return b.String()
}
