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
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/report"
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
		return usageError(c.check(fs))
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

// check takes the flags in, and says what is wrong with them.
func (c *reportCommand) check(fs *pflag.FlagSet) error {
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

// wants says that the user did not exclude a path.
func (c reportCommand) wants(name string) bool {
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
		if d, err = c.measure(ctx, stderr); err != nil {
			return err
		}
	}
	if err := c.write(d); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s and %s\n", c.html, c.data)
	if d.Partial != "" && c.from == "" {
		return errors.New(d.Partial)
	}
	return nil
}

// write writes both files, each whole or not at all.
func (c reportCommand) write(d *report.Data) error {
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
