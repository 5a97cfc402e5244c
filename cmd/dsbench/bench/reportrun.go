package bench

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"exnet/cmd/dsbench/internal/mpi"
	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/programs"
	"exnet/cmd/dsbench/internal/report"
	"exnet/cmd/dsbench/internal/result"

	"github.com/spf13/pflag"
)

// perRun is what a measurement takes besides its warm-up and duration: to start
// and end the workers.
const perRun = 60 * time.Millisecond

// measure takes all measurements of a report. After ctx is done, or an error, it
// returns what there is; it fails only if there is nothing.
func (c reportCommand) measure(ctx context.Context, stderr io.Writer) (*report.Data, error) {
	begun := time.Now()
	ro := c.ro
	d := &report.Data{
		Version: report.Version, Machine: result.ThisMachine(begun), Distance: distance(), Busy: busyCPUs(200 * time.Millisecond),
		Quick: ro.quick, Runs: ro.runs, Duration: ro.duration.Seconds(), Warmup: ro.warmup.Seconds(), TCP: ro.congestion,
	}
	p := newProgress(stderr, 0, ro.duration+ro.warmup+perRun)
	usable := c.usable(ctx, d, p)
	parts := plan(ro, func(name string) bool { return usable[name] })
	for _, part := range parts {
		p.total += part.o.measurements()
	}
	for _, part := range parts {
		var rows collector
		var notes []string
		note := func(_ string, err error) {
			text := strings.ReplaceAll(err.Error(), "\n", "; ")
			notes = append(notes, text)
			p.clear()
			fmt.Fprintf(stderr, "dsbench report: %s: %s\n", part.id, text)
		}
		part.o.tolerate = note
		err := runAll(ctx, part.o, d.Machine, &rows, p)
		if ctx.Err() != nil {
			d.Partial = fmt.Sprintf("interrupted after %d of %d measurements", p.done, p.total)
		} else if err != nil {
			note("", err)
		}
		got := report.Part{ID: part.id, Rows: rows, Note: strings.Join(notes, "; ")}
		if len(got.Rows) > 0 || got.Note != "" {
			d.Parts = append(d.Parts, got)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if ctx.Err() == nil && !ro.quick && ro.only == nil {
		addMPI(ctx, d, ro, p)
		addPrograms(ctx, d, ro, p)
		if ctx.Err() != nil {
			d.Partial = "interrupted while MPI or real programs were measured"
		}
	}
	p.clear()
	d.Took = result.Round(time.Since(begun).Seconds())
	for _, part := range d.Parts {
		if len(part.Rows) > 0 {
			return d, nil
		}
	}
	return nil, fmt.Errorf("nothing was measured: %s", d.Partial)
}

// addMPI measures the MPIs that are installed.
func addMPI(ctx context.Context, d *report.Data, ro reportOptions, p *progress) {
	skip := func(why string) {
		d.Skipped = append(d.Skipped, report.Skipped{Path: "MPI", Why: strings.ReplaceAll(why, "\n", "; ")})
	}
	fs := pflag.NewFlagSet("mpi", pflag.ContinueOnError)
	o := mpi.Define(fs)
	err := fs.Parse([]string{"--runs", strconv.Itoa(ro.runs)})
	if err == nil {
		err = o.Check()
	}
	if err != nil {
		skip(err.Error())
		return
	}
	p.say("MPI")
	rows, missing, err := o.Rows(ctx, d.Machine, distance())
	if ctx.Err() != nil {
		return
	}
	for _, text := range missing {
		skip(text)
	}
	if err != nil {
		skip(err.Error())
	}
	d.AddMPI(rows)
}

// addPrograms measures the real programs that are installed.
func addPrograms(ctx context.Context, d *report.Data, ro reportOptions, p *progress) {
	fs := pflag.NewFlagSet("programs", pflag.ContinueOnError)
	o := programs.Define(fs)
	err := fs.Parse([]string{"--duration", "1s", "--runs", strconv.Itoa(ro.runs)})
	if err == nil {
		err = o.Check()
	}
	if err != nil {
		d.Skipped = append(d.Skipped, report.Skipped{Path: report.PartPrograms, Why: strings.ReplaceAll(err.Error(), "\n", "; ")})
		return
	}
	part := report.Part{ID: report.PartPrograms}
	var notes []string
	for _, pair := range programs.Pairs() {
		if missing := pair.Missing(); missing != "" {
			notes = append(notes, pair.Name+" is left out: "+missing)
			continue
		}
		p.say("programs: %s", pair.Name)
		rows, err := pair.Measure(ctx, *o, d.Machine, distance())
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			notes = append(notes, pair.Name+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
			continue
		}
		part.Rows = append(part.Rows, rows...)
	}
	part.Note = strings.Join(notes, "; ")
	if len(part.Rows) > 0 || part.Note != "" {
		d.Parts = append(d.Parts, part)
	}
}

// collector is a sink that keeps the rows.
type collector []result.Row

func (c *collector) rows(rows []result.Row) error {
	*c = append(*c, rows...)
	return nil
}

func (c *collector) end() error { return nil }

// usable finds which paths can be set up here, and notes why others cannot.
func (c reportCommand) usable(ctx context.Context, d *report.Data, p *progress) map[string]bool {
	usable := make(map[string]bool)
	for _, k := range pathsOf(plan(c.ro, c.wants)) {
		if _, err := paths.KindOf(k.Name); err != nil {
			continue // a setting that is varied
		}
		p.say("looking for %s", k.Name)
		path := k.Open(paths.NodeConfig{})
		err := path.Setup(ctx)
		if closeErr := path.Close(); err == nil {
			err = closeErr
		}
		if err == nil {
			usable[k.Name] = true
		} else if ctx.Err() == nil {
			d.Skipped = append(d.Skipped, report.Skipped{Path: k.Name, Why: strings.ReplaceAll(err.Error(), "\n", "; ")})
		}
	}
	return usable
}

// busyCPUs returns how many CPUs others use for the next while, of this machine and of its host:
// noise.
func busyCPUs(while time.Duration) float64 {
	before := takenTime()
	time.Sleep(while)
	return result.Round(max(0, takenTime()-before).Seconds() / while.Seconds())
}

// takenTime returns how long all CPUs were not idle.
func takenTime() time.Duration {
	busy, stolen, _ := result.BusyTime() // without /proc nobody is busy
	return busy + stolen
}
