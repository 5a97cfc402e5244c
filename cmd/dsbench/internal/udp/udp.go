package udp

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/cbuild"
	"exnet/internal/cli"
	"exnet/internal/display"
	"exnet/internal/tcpbench"
	"exnet/internal/tempdir"
)

//go:embed source/udpbench.c
var source embed.FS

// Measure is the command "dsbench udp".
var Measure = measure.Measure{
	Name: "udp", About: "UDP between two programs, with exn-run and without",
	Long: `Measures UDP between two programs on loopback, by the kernel (path kernel) and
under exn-run --loopback (path direct; path reliable: with the rule "reliable"), in
interleaved runs: half a round trip; datagrams one way as fast as the sender can, of
which it says how many were sent, received and lost, and whose rate is that of those
received; and the highest rate of which none is lost (RFC 2544), by trials of a fifth
of a run's time. It takes a C compiler.`,
	Examples: `dsbench udp
    14 bytes to and fro, 64 and 1,400 bytes one way, 5 runs of a second each
taskset -c 0,9 dsbench udp
    the same on these two CPUs
dsbench udp --runs 10 --duration 2s --json
    the same for longer, as JSON`,
	Define: func(fs *pflag.FlagSet) measure.Run { return defineFlags(fs) },
}

// options is what the command line asks for.
type options struct {
	runs     int
	duration time.Duration
	exnRun   string
	json     bool
	cpus     tcpbench.Placement
}

const minDuration = 10 * time.Millisecond

// defineFlags defines the flags and returns what they will say.
func defineFlags(fs *pflag.FlagSet) *options {
	o := &options{runs: 5, duration: time.Second}
	cli.Number(fs, &o.runs, "runs", 1, measure.MaxRuns, "`N` runs of each path (5)")
	cli.Duration(fs, &o.duration, "duration", minDuration, measure.MaxDuration, "`TIME` of a run (1s)")
	fs.StringVar(&o.exnRun, "exn-run", "", "`PATH` exn-run (beside dsbench, or in PATH)")
	fs.BoolVar(&o.json, "json", false, "one JSON object a line instead of a table")
	return o
}

// Check takes the flags in, and says what is wrong with them.
func (o *options) Check() (err error) {
	o.cpus = measure.FirstCPUs()
	o.exnRun, err = measure.Command("exn-run", o.exnRun)
	return err
}

// parts are the runs of the program.
var parts = []struct {
	name, measure, unit string
	size                int
}{
	{"pingpong", "udp-pingpong", "us", 14},
	{"oneway", "udp-oneway", "Mmsg/s", 64},
	{"oneway", "udp-oneway", "Mmsg/s", 1400},
	{"lossless", "udp-lossless", "Mmsg/s", 64},
	{"lossless", "udp-lossless", "Mmsg/s", 1400},
}

// paths are without exn-run, with it, and with its rule that has a sender wait for room.
var paths = []struct {
	name    string
	argv    []string // what the program runs under, after exn-run's path
	rules   string   // of the file that --rules names
	control bool
}{
	{name: "kernel", control: true},
	{name: "direct", argv: []string{"--loopback"}},
	{name: "reliable", argv: []string{"--loopback"}, rules: "direct * * * * proto=udp reliable\n"},
}

// addOutput adds what a run of the program has printed, and returns its figure.
func addOutput(r *result.Datagrams, out string) (float64, error) {
	var sent, received, late uint64
	var v float64
	if n, err := fmt.Sscanf(out, "%d %d %d %g", &sent, &received, &late, &v); n == 4 && err == nil && received <= sent && v > 0 {
		r.Sent, r.Received, r.Lost, r.Late = r.Sent+sent, r.Received+received, r.Lost+sent-received, r.Late+late
		return float64(received) / v / 1e6, nil
	}
	if n, err := fmt.Sscanf(out, "%g", &v); n == 1 && err == nil && v > 0 {
		return v, nil
	}
	return 0, fmt.Errorf("udpbench has printed %q", out)
}

// limit is how long a run of the program may take beside its duration, which the trials of a part
// may take so often.
const (
	limit  = time.Minute
	trials = 5
)

// table has the figures.
var table = result.NewTable(" ", "measure -13", "path -8", "bytes 5", "median 9", "=unit -7", "min 9", "max 9", "spread 7", "times 6",
	"sent 11", "received 11", "lost 9", "late 5")

// Take measures what the options ask for, and prints it.
func (o *options) Take(ctx context.Context, env measure.Env) error {
	m, d := result.ThisMachine(time.Now()), coredist.Measure(o.cpus.Client, o.cpus.Server)
	var rows []result.Row
	err := tempdir.Do("dsbench-udp", func(dir string) (err error) {
		program, err := cbuild.Source{Name: "udpbench", Files: source, Flags: []string{"-std=gnu11", "-O2"}, Libs: []string{"-lm"}}.BuildIn(ctx, dir)
		if err == nil {
			err = measure.Prepare(ctx, o.exnRun) // what it builds is no part of a run
		}
		if err == nil {
			rows, err = o.measureProgram(ctx, dir, program, m, d)
		}
		return err
	})
	if err != nil {
		return err
	}
	return result.Print(env.Stdout, o.json, rows, table, o.what(d), m, "")
}

func (o *options) what(d coredist.Distance) string {
	return fmt.Sprintf("UDP between two programs on loopback, by the kernel and under exn-run (direct; reliable, by a rule), %s of %v each, interleaved. CPUs %d and %d; %v.",
		display.Count(o.runs, "run"), o.duration, o.cpus.Client, o.cpus.Server, d)
}

// measureProgram runs the program. dir is for files of rules.
func (o *options) measureProgram(ctx context.Context, dir, program string, m result.Machine, d coredist.Distance) (rows []result.Row, err error) {
	prefixes, err := o.prefixes(dir)
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		set := make([]result.Row, len(paths))
		values := make([][]float64, len(paths))
		for i, path := range paths {
			set[i] = result.Row{
				Measure: p.measure, Path: path.name, Size: p.size, Streams: 1, Unit: p.unit, Control: paths[0].name, Distance: d,
				Placement: o.cpus.String(), Duration: o.duration.Seconds(), Machine: m, Datagrams: &result.Datagrams{},
			}
		}
		for range o.runs {
			for i := range paths {
				out, err := o.runPart(ctx, prefixes[i], program, p.name, p.size)
				if err != nil {
					return nil, err
				}
				v, err := addOutput(set[i].Datagrams, out)
				if err != nil {
					return nil, err
				}
				values[i] = append(values[i], v)
			}
		}
		for i := range paths {
			set[i].Take(values[i], values[0])
		}
		rows = append(rows, set...)
	}
	return rows, nil
}

// prefixes are what the program runs under, by path.
func (o *options) prefixes(dir string) ([][]string, error) {
	all := make([][]string, len(paths))
	for i, p := range paths {
		if p.control {
			continue
		}
		all[i] = append([]string{o.exnRun}, p.argv...)
		if p.rules != "" {
			file := filepath.Join(dir, p.name+".rules")
			if err := os.WriteFile(file, []byte(p.rules), 0o600); err != nil {
				return nil, err
			}
			all[i] = append(all[i], "--rules", file)
		}
		all[i] = append(all[i], "--")
	}
	return all, nil
}

// runPart runs a part of the program once.
func (o *options) runPart(ctx context.Context, prefix []string, program, part string, size int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+trials*o.duration)
	defer cancel()
	argv := append(slices.Clone(prefix), program, strconv.Itoa(o.cpus.Client), strconv.Itoa(o.cpus.Server), part, strconv.Itoa(size),
		strconv.Itoa(int(o.duration/time.Millisecond)))
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second
	out, _, err := measure.Output(ctx, cmd, (*exec.Cmd).Start)
	if err != nil {
		return "", fmt.Errorf("udpbench %s: %w", part, err)
	}
	return strings.TrimSpace(out), nil
}
