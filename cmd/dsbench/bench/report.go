package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/mpi"
	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/programs"
	"exnet/cmd/dsbench/internal/report"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/netns"
	"exnet/internal/outfile"
)

// reportCommand is dsbench report.
type reportCommand struct {
	quick, force  bool
	output, names string // of -o and --paths
	from          string
	html, data    string // files
	ro            reportOptions
}

// Durations of a run, unless --duration says another.
const (
	usualDuration = 200 * time.Millisecond
	quickDuration = 100 * time.Millisecond
)

func newReport() *cobra.Command {
	c := new(reportCommand)
	cmd := &cobra.Command{
		Use: "report [flags]", Short: "measure everything, as one HTML page and JSON",
		Long: `Measures every path and writes one HTML page that needs nothing else (the
figures of thesis section 5.6, drawn from this machine, with the thesis's values
as lines), and the raw data beside it as FILE.json. Takes about ten minutes.
Ctrl-C writes what has been measured so far.`,
		Example: `dsbench report
    writes dsbench-report.html and dsbench-report.json
dsbench report --quick -o quick.html
    fewer sizes and shorter runs: about a minute
dsbench report --from old.json --force -o old.html
    draws the page again from the raw data`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runReport(cmd.Context(), *c, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := command.NoArgs(cmd, args); err != nil {
			return err
		}
		return usageError(c.checkFlags(fs))
	}
	const usual = "dsbench-report.html"
	fs.BoolVar(&c.quick, "quick", false, "fewer sizes, shorter runs")
	cli.Number(fs, &c.ro.runs, "runs", 1, maxRuns, "`N` runs of each path and size (5; 3 with --quick)")
	cli.Duration(fs, &c.ro.duration, "duration", time.Millisecond, maxDuration,
		fmt.Sprintf("`TIME` measured time of a run (%v; %v with --quick)", usualDuration, quickDuration))
	fs.StringVar(&c.ro.congestion, "congestion", "cubic", "`NAME` TCP congestion control (cubic)")
	fs.StringVarP(&c.output, "output", "o", usual, "`FILE` the page, .html; the data go beside it ("+usual+")")
	fs.BoolVar(&c.force, "force", false, "replace files that exist")
	fs.StringVar(&c.names, "paths", "", "`LIST` only these paths, and lo")
	fs.StringVar(&c.from, "from", "", "`FILE.json` do not measure: take these data, which gzip may have compressed")
	return cmd
}

// checkFlags takes the flags in, and says what is wrong with them.
func (c *reportCommand) checkFlags(fs *pflag.FlagSet) error {
	base, ok := strings.CutSuffix(c.output, ".html")
	if !ok {
		return fmt.Errorf("-o %s: give it a name that ends in .html", c.output)
	}
	c.html, c.data = c.output, base+".json"
	runs, duration := 5, usualDuration
	if c.quick {
		runs, duration = 3, quickDuration
	}
	if !fs.Changed("runs") {
		c.ro.runs = runs
	}
	if !fs.Changed("duration") {
		c.ro.duration = duration
	}
	c.ro.quick, c.ro.warmup = c.quick, c.ro.duration/3
	if err := (&options{congestion: c.ro.congestion}).checkCongestion(); err != nil {
		return fmt.Errorf("--congestion: %w", err)
	}
	if c.names == "" {
		return nil
	}
	for name := range strings.SplitSeq(c.names, ",") {
		if _, err := paths.KindOf(name); err != nil {
			return fmt.Errorf("--paths: %w", err)
		}
		c.ro.only = append(c.ro.only, name)
	}
	return nil
}

// checkFiles looks before the measuring whether the files can be written. One that --from names may
// be there.
func (c reportCommand) checkFiles() error {
	for _, name := range []string{c.html, c.data} {
		if _, err := os.Lstat(name); err == nil && !c.force && name != c.from {
			return fmt.Errorf("%s exists: choose another name, or --force", name)
		}
	}
	dir := filepath.Dir(c.html)
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s cannot be written there: %s: %w", c.html, dir, err)
	}
	return nil
}

// includesPath says that the user did not exclude a path.
func (c reportCommand) includesPath(name string) bool {
	return c.ro.only == nil || name == "lo" || slices.Contains(c.ro.only, name)
}

// runReport does dsbench report.
func runReport(ctx context.Context, c reportCommand, stdout, stderr io.Writer) error {
	if err := c.checkFiles(); err != nil {
		return err
	}
	var d *report.Data
	var err error
	if c.from != "" {
		if d, err = report.Read(c.from); err != nil {
			return fmt.Errorf("--from: %w", err)
		}
	} else {
		if !netns.Privileged() {
			// The report says what needs privileges and was left out.
			if status, err := netns.ReexecInUserNS(); err == nil {
				return cli.ExitStatus(status)
			}
		}
		if d, err = c.measureParts(ctx, stderr); err != nil {
			return err
		}
	}
	if err := c.writeReport(d); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s and %s\n", c.html, c.data)
	if d.Partial != "" && c.from == "" {
		return errors.New(d.Partial)
	}
	return nil
}

// writeReport writes both files, each whole or not at all.
func (c reportCommand) writeReport(d *report.Data) error {
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	page, err := report.Render(d)
	if err != nil {
		return err
	}
	if c.data != c.from {
		if err := outfile.WriteText(c.data, append(text, '\n')); err != nil {
			return err
		}
	}
	return outfile.WriteText(c.html, page)
}

// perRun is what a measurement takes besides its warm-up and duration: to start
// and end the workers.
const perRun = 60 * time.Millisecond

// measureParts takes all measurements of a report. After ctx is done, or an error, it
// returns what there is; it fails only if there is nothing.
func (c reportCommand) measureParts(ctx context.Context, stderr io.Writer) (*report.Data, error) {
	begun := time.Now()
	ro := c.ro
	d := &report.Data{
		Version: report.Version, Machine: result.ThisMachine(begun), Distance: distance(), Busy: busyCPUs(200 * time.Millisecond),
		Quick: ro.quick, Runs: ro.runs, Duration: ro.duration.Seconds(), Warmup: ro.warmup.Seconds(), TCP: ro.congestion,
	}
	p := newProgress(stderr, 0, ro.duration+ro.warmup+perRun)
	usable := c.usablePaths(ctx, d, p)
	parts := planParts(ro, func(name string) bool { return usable[name] })
	for _, part := range parts {
		p.total += part.o.countMeasurements()
	}
	for _, part := range parts {
		var rows []result.Row
		var notes []string
		note := func(_ string, err error) {
			text := strings.ReplaceAll(err.Error(), "\n", "; ")
			notes = append(notes, text)
			p.clearLine()
			fmt.Fprintf(stderr, "dsbench report: %s: %s\n", part.id, text)
		}
		part.o.tolerate = note
		err := runAll(ctx, part.o, d.Machine, func(more []result.Row) error {
			rows = append(rows, more...)
			return nil
		}, p)
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
	p.clearLine()
	d.Took = result.Round(time.Since(begun).Seconds())
	for _, part := range d.Parts {
		if len(part.Rows) > 0 {
			return d, nil
		}
	}
	return nil, fmt.Errorf("nothing was measured: %s", d.Partial)
}

// parseMeasure returns what a command line asks of a measure.
func parseMeasure[R measure.Run](define func(*pflag.FlagSet) R, args ...string) (R, error) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	r := define(fs)
	if err := fs.Parse(args); err != nil {
		return r, err
	}
	return r, r.Check()
}

// addMPI measures the MPIs that are installed.
func addMPI(ctx context.Context, d *report.Data, ro reportOptions, p *progress) {
	const name = "MPI"
	o, err := parseMeasure(mpi.Define, "--runs", strconv.Itoa(ro.runs))
	if err != nil {
		d.Skip(name, err.Error())
		return
	}
	p.showMessage(name)
	rows, missing, err := o.Rows(ctx, d.Machine, distance())
	if ctx.Err() != nil {
		return
	}
	for _, text := range missing {
		d.Skip(name, text)
	}
	if err != nil {
		d.Skip(name, err.Error())
	}
	d.AddMPI(rows)
}

// addPrograms measures the real programs that are installed.
func addPrograms(ctx context.Context, d *report.Data, ro reportOptions, p *progress) {
	o, err := parseMeasure(programs.Define, "--duration", "1s", "--runs", strconv.Itoa(ro.runs))
	if err != nil {
		d.Skip(report.PartPrograms, err.Error())
		return
	}
	part := report.Part{ID: report.PartPrograms}
	var notes []string
	for _, pair := range programs.Pairs() {
		if missing := pair.Missing(); missing != "" {
			notes = append(notes, pair.Name+" is left out: "+missing)
			continue
		}
		p.showMessage("programs: %s", pair.Name)
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

// usablePaths finds which paths can be set up here, and notes why others cannot.
func (c reportCommand) usablePaths(ctx context.Context, d *report.Data, p *progress) map[string]bool {
	usable := make(map[string]bool)
	for _, k := range pathsOf(planParts(c.ro, c.includesPath)) {
		if _, err := paths.KindOf(k.Name); err != nil {
			continue // a setting that is varied
		}
		p.showMessage("looking for %s", k.Name)
		path := k.Open(paths.NodeConfig{})
		err := path.Setup(ctx)
		if closeErr := path.Close(); err == nil {
			err = closeErr
		}
		if err == nil {
			usable[k.Name] = true
		} else if ctx.Err() == nil {
			d.Skip(k.Name, err.Error())
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
