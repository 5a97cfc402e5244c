package dsbench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"exnet/internal/dsbench/coredist"
	"exnet/internal/dsbench/result"
	"exnet/internal/stats"
	"exnet/internal/tcpbench"
)

// programsCommand measures real programs, without exn-run and with it.
const programsCommand = "programs"

// Paths of "dsbench programs".
const (
	pathTCP    = "tcp"
	pathDirect = "direct"
)

// programsOptions is what the command line of "dsbench programs" asks for.
type programsOptions struct {
	only     []string // measures; empty: all that can be
	duration time.Duration
	runs     int
	exnRun   string
	cpus     tcpbench.Placement
	json     bool
}

func parsePrograms(args []string) (o programsOptions, err error) {
	fs := flag.NewFlagSet(programsCommand, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var only string
	fs.StringVar(&only, "only", "", "")
	fs.DurationVar(&o.duration, "duration", 2*time.Second, "")
	fs.IntVar(&o.runs, "runs", 5, "")
	fs.StringVar(&o.exnRun, "exn-run", "", "")
	fs.BoolVar(&o.json, "json", false, "")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	o.cpus = tcpbench.Apart()
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	for _, name := range o.only {
		if !slices.ContainsFunc(programPairs(), func(p programPair) bool { return p.name == name }) {
			return o, fmt.Errorf("--only: there is no measure %q: choose from %s", name, strings.Join(programNames(), ", "))
		}
	}
	if err := between(o.duration, time.Second, maxDuration); err != nil {
		return o, fmt.Errorf("--duration: %w", err)
	}
	if o.duration%time.Second != 0 {
		return o, errors.New("--duration: use whole seconds, as the programs do")
	}
	if err := between(o.runs, 1, maxRuns); err != nil {
		return o, fmt.Errorf("--runs: %w", err)
	}
	if o.exnRun == "" {
		o.exnRun = "exn-run"
		if self, err := os.Executable(); err == nil {
			beside := filepath.Join(filepath.Dir(self), "exn-run")
			if _, err := os.Stat(beside); err == nil {
				o.exnRun = beside
			}
		}
	}
	if o.exnRun, err = exec.LookPath(o.exnRun); err != nil {
		return o, fmt.Errorf("--exn-run: %w: go build ./cmd/exn-run, and give its path", err)
	}
	return o, nil
}

func programNames() []string {
	var names []string
	for _, p := range programPairs() {
		names = append(names, p.name)
	}
	return names
}

// runPrograms is "dsbench programs".
func runPrograms(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parsePrograms(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, programsHelp())
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "dsbench %s: %v (see dsbench %s -h)\n", programsCommand, err, programsCommand)
		return exitUsage
	}
	m, d := result.ThisMachine(time.Now()), distance()
	out := programsTable{w: stdout}
	if !o.json {
		if err := out.head(o, m, d); err != nil {
			return fail(stderr, programsCommand, err)
		}
	}
	measured := 0
	for _, p := range programPairs() {
		if len(o.only) > 0 && !slices.Contains(o.only, p.name) {
			continue
		}
		if missing := p.missing(); missing != "" {
			fmt.Fprintf(stderr, "dsbench %s: %s is left out: %s\n", programsCommand, p.name, missing)
			continue
		}
		samples, err := measurePair(ctx, o, p)
		if err == nil {
			rows := programRows(o, p, m, d, samples)
			measured++
			if o.json {
				err = jsonSink{stdout}.rows(rows)
			} else {
				err = out.rows(p, rows)
			}
		}
		if err != nil {
			return fail(stderr, programsCommand, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	if measured == 0 {
		return fail(stderr, programsCommand, errors.New("none of the programs is installed"))
	}
	return exitOK
}

// programSample is what one run of a client said.
type programSample struct {
	value    float64
	p50, p99 float64 // microseconds; 0: it does not say
}

// measurePair runs the client alternately on both paths, against a server on each.
func measurePair(ctx context.Context, o programsOptions, p programPair) (samples [2][]programSample, err error) {
	dir, err := os.MkdirTemp("", "dsbench-programs-")
	if err != nil {
		return samples, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // servers may be other users'
		return samples, err
	}
	if p.oneCPU {
		o.cpus.Server = o.cpus.Client
	}
	var ends [2]*programEnd
	for i := range ends {
		e := &programEnd{o: o, p: p, direct: i == 1, dir: filepath.Join(dir, []string{pathTCP, pathDirect}[i]), cpus: o.cpus}
		defer func() { err = errors.Join(err, e.stop()) }()
		if err := e.start(ctx); err != nil {
			return samples, err
		}
		ends[i] = e
	}
	// The first run of each warms up, and shows that it works.
	for run := range o.runs + 1 {
		for i, e := range ends {
			s, err := e.run(ctx)
			if err != nil {
				return samples, err
			}
			if run > 0 {
				samples[i] = append(samples[i], s)
			}
		}
	}
	return samples, nil
}

// programRows makes the rows of a measure, in the form of every other one.
func programRows(o programsOptions, p programPair, m result.Machine, d coredist.Distance, samples [2][]programSample) []result.Row {
	var rows []result.Row
	for i, path := range []string{pathTCP, pathDirect} {
		r := result.Row{
			Measure: p.name, Path: path, Size: p.size, Streams: p.streams, Unit: p.unit, Control: pathTCP,
			Runs: len(samples[i]), Duration: o.duration.Seconds(), Distance: d, MTU: loopbackMTU, Placement: tcpbench.Anywhere().String(), Machine: m,
			Congestion: systemCongestion(),
		}
		if p.bound {
			cpus := o.cpus
			if p.oneCPU {
				cpus.Server = cpus.Client
			}
			r.Placement = cpus.String()
		}
		var values, p50, p99 []float64
		for _, s := range samples[i] {
			values = append(values, s.value)
			r.Values = append(r.Values, result.Round(s.value))
			if s.p99 > 0 {
				p50, p99 = append(p50, s.p50), append(p99, s.p99)
			}
		}
		sum := stats.Summarize(values)
		r.Median, r.Min, r.Max = result.Round(sum.Median), result.Round(sum.Min), result.Round(sum.Max)
		r.Spread, r.Noisy = result.Round(sum.Spread()), sum.Noisy(result.NoiseBound)
		if len(p99) > 0 {
			r.P50, r.P99 = result.Rounded(stats.Summarize(p50).Median), result.Rounded(stats.Summarize(p99).Median)
		}
		rows = append(rows, r)
	}
	for i := range rows {
		if rows[0].Median > 0 {
			rows[i].Ratio = result.Rounded(rows[i].Median / rows[0].Median)
		}
	}
	return rows
}

const loopbackMTU = 65536

// systemCongestion is the congestion control that the programs get.
func systemCongestion() string {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// programsTable writes a table for people, a measure at a time.
type programsTable struct {
	w io.Writer
}

func (t programsTable) head(o programsOptions, m result.Machine, d coredist.Distance) error {
	var b strings.Builder
	result.Wrap(&b, fmt.Sprintf("Programs over loopback, with exn-run (direct) and without (tcp), %s of %v each, interleaved; %v.",
		result.Count(o.runs, "run"), o.duration, d))
	result.Wrap(&b, m.String()+".")
	fmt.Fprintf(&b, "\n%-22s %-7s %10s %-7s %10s %10s %7s %6s %9s\n", "measure", "path", "median", "", "min", "max", "spread", "ratio", "p99 us")
	_, err := io.WriteString(t.w, b.String())
	return err
}

func (t programsTable) rows(p programPair, rows []result.Row) error {
	var b strings.Builder
	for _, r := range rows {
		noisy := " "
		if r.Noisy {
			noisy = "!"
		}
		fmt.Fprintf(&b, "%-22s %-7s %10s %-7s %10s %10s %6s%s %6s %9s\n", r.Measure, r.Path, result.Figure(r.Median), r.Unit,
			result.Figure(r.Min), result.Figure(r.Max), result.Percent(r.Spread), noisy, result.Optional(r.Ratio), result.Optional(r.P99))
	}
	_, err := io.WriteString(t.w, b.String())
	return err
}

func programsHelp() string {
	var b strings.Builder
	b.WriteString(`Usage: dsbench programs [flags]

Measures real programs over loopback, as they are (path tcp) and under exn-run
--loopback (path direct), in interleaved runs against two servers. A run in which
no connection of the client was direct fails.

Examples:
  dsbench programs
      all that are installed, 5 runs of 2 seconds on each path
  dsbench programs --only iperf3,sockperf --runs 10 --json
      two of them, as JSON

Measures:
`)
	for _, p := range programPairs() {
		fmt.Fprintf(&b, "  %-22s %s\n", p.name, p.about)
	}
	b.WriteString(`
Flags:
  --only LIST        measures to take (all whose programs are installed)
  --duration TIME    of a run, whole seconds (2s)
  --runs N           runs of each path, after one that is not counted (5)
  --exn-run PATH     exn-run (beside dsbench, or in PATH)
  --json             one JSON object a line instead of a table
`)
	return b.String()
}
