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
	"exnet/internal/netns"
	"exnet/internal/outfile"
)

// reportCommand is dsbench report.
type reportCommand struct {
	fs    *pflag.FlagSet
	names string // of --paths
	ro    reportOptions
	from  string
	force bool
	html  string // file
	json  string
}

func newReport() *cobra.Command {
	var c *reportCommand
	cmd := &cobra.Command{
		Use: "report [flags] [FILE.html]", Short: "measure everything, as one HTML page and JSON",
		Long: `Measures every path and writes one HTML page that needs nothing else (the
figures of thesis section 5.6, drawn from this machine, with the thesis's values
as lines), and the raw data beside it as FILE.json. Takes about ten minutes.
Ctrl-C writes what has been measured so far.`,
		Example: `dsbench report
    writes dsbench-report.html and dsbench-report.json
dsbench report --quick quick.html
    fewer sizes and shorter runs: about a minute
dsbench report --from old.json --force old.html
    draws the page again from the raw data`,
		Args: func(_ *cobra.Command, args []string) error { return usageError(c.check(args)) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runReport(cmd.Context(), *c, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c = newReportCommand(cmd.Flags())
	return cmd
}

// newReportCommand defines the flags of "dsbench report".
func newReportCommand(fs *pflag.FlagSet) *reportCommand {
	c := &reportCommand{fs: fs}
	fs.BoolVar(&c.ro.quick, "quick", false, "fewer sizes, shorter runs")
	cli.Number(fs, &c.ro.runs, "runs", 1, maxRuns, "`N` runs of each path and size (5; 3 with --quick)")
	cli.Duration(fs, &c.ro.duration, "duration", time.Millisecond, maxDuration, "`TIME` measured time of a run (200ms; 100ms with --quick)")
	fs.StringVar(&c.names, "paths", "", "`LIST` only these paths, and lo")
	fs.StringVar(&c.ro.congestion, "congestion", "cubic", "`NAME` TCP congestion control (cubic)")
	fs.StringVar(&c.from, "from", "", "`FILE.json` do not measure: take these data, which gzip may have compressed")
	fs.BoolVar(&c.force, "force", false, "replace files that exist")
	return c
}

// check takes the flags and arguments in, and says what is wrong with them.
func (c *reportCommand) check(args []string) error {
	c.html = "dsbench-report.html"
	if len(args) > 1 {
		return fmt.Errorf("unexpected argument %q", args[1])
	} else if len(args) == 1 {
		c.html = args[0]
	}
	if !strings.HasSuffix(c.html, ".html") {
		return fmt.Errorf("%q: give the report a name that ends in .html", c.html)
	}
	c.json = strings.TrimSuffix(c.html, ".html") + ".json"
	if !c.fs.Changed("runs") {
		c.ro.runs = 5
		if c.ro.quick {
			c.ro.runs = 3
		}
	}
	if !c.fs.Changed("duration") {
		c.ro.duration = 200 * time.Millisecond
		if c.ro.quick {
			c.ro.duration = 100 * time.Millisecond
		}
	}
	c.ro.warmup = c.ro.duration / 3
	if c.names != "" {
		for name := range strings.SplitSeq(c.names, ",") {
			if _, err := paths.KindOf(name); err != nil {
				return fmt.Errorf("--paths: %w", err)
			}
			c.ro.only = append(c.ro.only, name)
		}
	}
	o := options{congestion: c.ro.congestion}
	if err := o.checkCongestion(); err != nil {
		return fmt.Errorf("--congestion: %w", err)
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
	fmt.Fprintf(stdout, "%s and %s\n", c.html, c.json)
	if d.Partial != "" && c.from == "" {
		return errors.New(d.Partial)
	}
	return nil
}

// checkFiles looks before the measuring whether the report can be written.
func (c reportCommand) checkFiles() error {
	for _, name := range []string{c.html, c.json} {
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
	if c.json != c.from {
		if err := outfile.WriteText(c.json, append(text, '\n')); err != nil {
			return err
		}
	}
	return outfile.WriteText(c.html, page)
}
