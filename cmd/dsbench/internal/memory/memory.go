package memory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/display"
	"exnet/internal/netns"
	"exnet/internal/tempdir"
)

// Measure is the command "dsbench memory".
var Measure = measure.Measure{
	Name: "memory", About: "the memory of other nodes, by leases and under exn-mem",
	Long: `Measures the memory of another node beside its controls, in interleaved rounds,
between nodes that it starts in namespaces of its own:
` + about() + `
Takes root, exn-tun and exn-mem, and a C compiler. A part whose programs are not
installed is left out.`,
	Examples: `dsbench memory
    all parts, 3 rounds: some two minutes
dsbench memory --only fault,row --runs 5 --json
    two of them, as JSON`,
	Values: map[string]cobra.CompletionFunc{"only": command.ListOf(names()...)},
	Define: func(fs *pflag.FlagSet) measure.Run { return define(fs) },
}

// options is what the command line asks for.
type options struct {
	list   string
	only   []string // parts; empty: all
	runs   int
	exnTun string
	plugin string
	json   bool
	scale  int // by which all sizes and times are divided, for a test
}

// define defines the flags and returns what they will say.
func define(fs *pflag.FlagSet) *options {
	o := &options{runs: 3, scale: 1}
	fs.StringVar(&o.list, "only", "", "`LIST` parts to measure (all that can be)")
	cli.Number(fs, &o.runs, "runs", 1, measure.MaxRuns, "`N` rounds (3)")
	fs.StringVar(&o.exnTun, "exn-tun", "", "`PATH` exn-tun, which has exn-mem beside it (beside dsbench, or in PATH)")
	fs.StringVar(&o.plugin, "plugin", "exnet", "`PATH` the plugin of nbdkit (the installed one)")
	fs.BoolVar(&o.json, "json", false, "one JSON object a line instead of a table")
	return o
}

// Check takes the flags in, and says what is wrong with them.
func (o *options) Check() (err error) {
	o.only, err = measure.Choose("--only", "part", o.list, names())
	return err
}

// figure is a line of the table.
type figure struct {
	path    string
	size    int
	streams int
	unit    string
	control int    // the place of its control among the figures of its part
	aim     string // as result.Row's
}

// part is what is measured together: its figures are taken one after the other in each round.
type part struct {
	name, about string
	needs       []string // programs
	figures     []figure
	// prepare is called before the first round; take takes all figures once.
	prepare func(ctx context.Context, l *lab) error
	take    func(ctx context.Context, l *lab) ([]float64, error)
}

func parts() []part {
	return []part{getPart(), faultPart(), rowPart(), redisPart(), fioPart(), hostsPart()}
}

func names() (list []string) {
	for _, p := range parts() {
		list = append(list, p.name)
	}
	return list
}

// about lists the parts, a line each, for the help text.
func about() string {
	var b strings.Builder
	for _, p := range parts() {
		fmt.Fprintf(&b, "  %-6s %s\n", p.name, p.about)
	}
	return b.String()
}

// missing says which program of a part is not there, "" if all are.
func (p part) missing() string {
	for _, name := range p.needs {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed"
		}
	}
	return ""
}

// table has the figures.
var table = result.NewTable(" ", "part=measure -7", "path -16", "bytes 8", "at=streams 4", "median 9", "=unit -5", "min 9", "max 9", "spread 7",
	"ratio 6", "aim -8")

// note explains it.
const note = "at: operations under way at a time. ratio: the median over that of the part's control. An aim without a unit is one for the ratio."

// Take measures what the options ask for, prints it, and says what is left out.
func (o *options) Take(ctx context.Context, env measure.Env) error {
	if !netns.Privileged() {
		return errors.New("it takes root: it makes namespaces, and exn-mem pages the memory of programs")
	}
	m, d := result.ThisMachine(time.Now()), env.Distance()
	var rows []result.Row
	err := tempdir.Do("dsbench-memory", func(dir string) (err error) {
		l, err := newLab(ctx, *o, dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.close()) }()
		chosen, err := l.choose(ctx, env.Stderr)
		if err == nil {
			rows, err = l.measure(ctx, chosen, m, d)
		}
		return err
	})
	if err != nil {
		return err
	}
	what := fmt.Sprintf("The memory of another node beside its controls, %s, interleaved; load %s; %v.", display.Count(o.runs, "round"), load(), d)
	return result.Print(env.Stdout, o.json, rows, table, what, m, note)
}

// choose prepares those parts that the options name and that can be measured here, and says what is
// left out.
func (l *lab) choose(ctx context.Context, stderr io.Writer) (chosen []part, err error) {
	for _, p := range parts() {
		if len(l.only) > 0 && !slices.Contains(l.only, p.name) {
			continue
		}
		reason := p.missing()
		if reason == "" {
			err := p.prepare(ctx, l)
			if err != nil && !errors.Is(err, errLeftOut) {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			if err != nil {
				reason = cli.Text(err)
			}
		}
		if reason != "" {
			fmt.Fprintf(stderr, "dsbench memory: %s is left out: %s\n", p.name, reason)
			continue
		}
		chosen = append(chosen, p)
	}
	if len(chosen) == 0 {
		return nil, errors.New("none of the parts can be measured")
	}
	return chosen, nil
}

// measure takes all figures of the parts in rounds.
func (l *lab) measure(ctx context.Context, chosen []part, m result.Machine, d coredist.Distance) (rows []result.Row, err error) {
	values := make([][][]float64, len(chosen)) // by part and round
	for range l.runs {
		for i, p := range chosen {
			v, err := p.take(ctx, l)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			values[i] = append(values[i], v)
		}
	}
	for i, p := range chosen {
		rows = append(rows, p.rows(values[i], m, d)...)
	}
	return rows, nil
}

// rows makes a part's rows of the values of its rounds.
func (p part) rows(rounds [][]float64, m result.Machine, d coredist.Distance) (rows []result.Row) {
	values := make([][]float64, len(p.figures))
	for _, r := range rounds {
		for i, v := range r {
			values[i] = append(values[i], v)
		}
	}
	for i, f := range p.figures {
		r := result.Row{
			Measure: p.name, Path: f.path, Size: f.size, Streams: f.streams, Unit: f.unit, Control: p.figures[f.control].path,
			Distance: d, Placement: "any", Machine: m, Aim: f.aim,
		}
		r.Take(values[i], values[f.control])
		rows = append(rows, r)
	}
	return rows
}

// load is the load of the last minute.
func load() string {
	proc, err := procfs.NewDefaultFS()
	if err == nil {
		if l, err := proc.LoadAvg(); err == nil {
			return fmt.Sprintf("%.2f", l.Load1)
		}
	}
	return "unknown"
}

// tools returns the paths of exn-tun and exn-mem.
func (o options) tools() (exnTun, exnMem string, err error) {
	if exnTun, err = measure.Command("exn-tun", o.exnTun); err != nil {
		return "", "", err
	}
	if exnMem, err = exec.LookPath(filepath.Join(filepath.Dir(exnTun), "exn-mem")); err != nil {
		return "", "", fmt.Errorf("--exn-tun: %w: go build -o bin ./cmd/exn-tun ./cmd/exn-mem, and give bin/exn-tun", err)
	}
	return exnTun, exnMem, nil
}
