package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"exnet/internal/cli"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// longRun is what report and tune have in common: they measure for minutes, and write a page and a
// file beside it.
type longRun struct {
	fs         *pflag.FlagSet
	quick      bool
	runs       int
	duration   time.Duration
	congestion string
	output     string // of -o
	force      bool
	html, data string // files
}

// usualDuration is that of a run without --quick.
const usualDuration = 200 * time.Millisecond

// define defines the flags. quick is the duration with --quick, and usual the default of -o, which
// names a file as about says.
func (l *longRun) define(fs *pflag.FlagSet, quick time.Duration, usual, about string) {
	l.fs = fs
	l.output = usual
	fs.BoolVar(&l.quick, "quick", false, "fewer sizes, shorter runs")
	cli.Number(fs, &l.runs, "runs", 1, maxRuns, "`N` runs of each path and size (5; 3 with --quick)")
	cli.Duration(fs, &l.duration, "duration", time.Millisecond, maxDuration, fmt.Sprintf("`TIME` measured time of a run (%v; %v with --quick)", usualDuration, quick))
	fs.StringVar(&l.congestion, "congestion", "cubic", "`NAME` TCP congestion control (cubic)")
	fs.StringVarP(&l.output, "output", "o", usual, "`FILE` "+about+" ("+usual+")")
	fs.BoolVar(&l.force, "force", false, "replace files that exist")
}

// check takes the flags in, and says what is wrong with them. other is the ending of the second
// file.
func (l *longRun) check(quick time.Duration, ending, other string) error {
	base, ok := strings.CutSuffix(l.output, ending)
	if !ok {
		return fmt.Errorf("-o %s: give it a name that ends in %s", l.output, ending)
	}
	l.html, l.data = l.output, base+other
	if ending != ".html" {
		l.html, l.data = l.data, l.html
	}
	if !l.fs.Changed("runs") {
		l.runs = map[bool]int{false: 5, true: 3}[l.quick]
	}
	if !l.fs.Changed("duration") {
		l.duration = map[bool]time.Duration{false: usualDuration, true: quick}[l.quick]
	}
	if err := (&options{congestion: l.congestion}).checkCongestion(); err != nil {
		return fmt.Errorf("--congestion: %w", err)
	}
	return nil
}

// checkFiles looks before the measuring whether the files can be written. One that is from, which
// is read, may be there.
func (l *longRun) checkFiles(from string) error {
	for _, name := range []string{l.html, l.data} {
		if _, err := os.Lstat(name); err == nil && !l.force && name != from {
			return fmt.Errorf("%s exists: choose another name, or --force", name)
		}
	}
	dir := filepath.Dir(l.html)
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s cannot be written there: %s: %w", l.html, dir, err)
	}
	return nil
}
