package dsbench

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/dsbench/paths"
	"exnet/internal/dsbench/report"
	"exnet/internal/netns"
)

const reportHelp = `Usage: dsbench report [flags] [FILE.html]

Measures every path and writes one HTML page that needs nothing else (the
figures of thesis section 5.6, drawn from this machine, with the thesis's values
as lines), and the raw data beside it as FILE.json. Takes about ten minutes.
Ctrl-C writes what was measured until then.

Examples:
  dsbench report
      writes dsbench-report.html and dsbench-report.json
  dsbench report --quick quick.html
      fewer sizes and shorter runs: about a minute
  dsbench report --from old.json --force old.html
      draws the page anew from the raw data

Flags:
  --quick            fewer sizes, shorter runs
  --runs N           runs of each path and size (5; 3 with --quick)
  --duration TIME    measured time of a run (200ms; 100ms with --quick)
  --paths LIST       only these paths, and lo
  --congestion NAME  TCP congestion control (cubic)
  --from FILE.json   do not measure: take these data
  --force            replace files that exist
`

// reportCommand is dsbench report.
type reportCommand struct {
	ro    reportOptions
	from  string
	force bool
	html  string // file
	json  string
}

func parseReport(args []string) (c reportCommand, err error) {
	fs := flag.NewFlagSet("report", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var names string
	fs.BoolVar(&c.ro.quick, "quick", false, "")
	fs.IntVar(&c.ro.runs, "runs", 0, "")
	fs.DurationVar(&c.ro.duration, "duration", 0, "")
	fs.StringVar(&names, "paths", "", "")
	fs.StringVar(&c.ro.congestion, "congestion", "cubic", "")
	fs.StringVar(&c.from, "from", "", "")
	fs.BoolVar(&c.force, "force", false, "")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	c.html = "dsbench-report.html"
	if fs.NArg() > 1 {
		return c, fmt.Errorf("unexpected argument %q", fs.Arg(1))
	} else if fs.NArg() == 1 {
		c.html = fs.Arg(0)
	}
	if !strings.HasSuffix(c.html, ".html") {
		return c, fmt.Errorf("%q: give the report a name that ends in .html", c.html)
	}
	c.json = strings.TrimSuffix(c.html, ".html") + ".json"
	if !isSet(fs, "runs") {
		c.ro.runs = 5
		if c.ro.quick {
			c.ro.runs = 3
		}
	}
	if !isSet(fs, "duration") {
		c.ro.duration = 200 * time.Millisecond
		if c.ro.quick {
			c.ro.duration = 100 * time.Millisecond
		}
	}
	c.ro.warmup = c.ro.duration / 3
	if names != "" {
		for name := range strings.SplitSeq(names, ",") {
			if _, err := paths.KindOf(name); err != nil {
				return c, fmt.Errorf("--paths: %w", err)
			}
			c.ro.only = append(c.ro.only, name)
		}
	}
	o := options{congestion: c.ro.congestion}
	for _, check := range []struct {
		flag string
		err  error
	}{
		{"--runs", between(c.ro.runs, 1, maxRuns)},
		{"--duration", between(c.ro.duration, time.Millisecond, maxDuration)},
		{"--congestion", o.checkCongestion()},
	} {
		if check.err != nil {
			return c, fmt.Errorf("%s: %w", check.flag, check.err)
		}
	}
	return c, nil
}

// wants says that the user did not exclude a path.
func (c reportCommand) wants(name string) bool {
	return c.ro.only == nil || name == "lo" || slices.Contains(c.ro.only, name)
}

// runReport does dsbench report.
func runReport(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parseReport(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, reportHelp)
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "dsbench report: %v (see dsbench report -h)\n", err)
		return exitUsage
	}
	if err := c.checkFiles(); err != nil {
		return fail(stderr, "report", err)
	}
	var d *report.Data
	if c.from != "" {
		text, err := os.ReadFile(c.from)
		if err == nil {
			d, err = report.Decode(text)
		}
		if err != nil {
			return fail(stderr, "report", fmt.Errorf("--from %s: %w", c.from, err))
		}
	} else {
		if !netns.Privileged() {
			// What it cannot have without privileges it says in the report.
			if status, err := netns.ReexecInUserNS(); err == nil {
				return status
			}
		}
		if d, err = c.measure(ctx, stderr); err != nil {
			return fail(stderr, "report", err)
		}
	}
	if err := c.write(d); err != nil {
		return fail(stderr, "report", err)
	}
	fmt.Fprintf(stdout, "%s and %s\n", c.html, c.json)
	if d.Partial != "" && c.from == "" {
		return fail(stderr, "report", errors.New(d.Partial))
	}
	return exitOK
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
		if err := writeWhole(c.json, append(text, '\n')); err != nil {
			return err
		}
	}
	return writeWhole(c.html, page)
}

// writeWhole writes a file by way of another one, so that it is never half there.
func writeWhole(name string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".dsbench-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error says more
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
