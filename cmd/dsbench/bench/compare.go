package bench

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/report"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/cli"
	"exnet/internal/display"
	"exnet/internal/stats"

	"github.com/spf13/cobra"
)

// changeBound is the least change that counts.
const changeBound = 0.1

// verdicts.
const (
	verdictSame    = "-"
	verdictBetter  = "better"
	verdictWorse   = "worse"
	verdictMachine = "the machine"  // the control has changed as much
	verdictCores   = "cores moved"  // from near to far or back
	verdictNoisy   = "noisy"        // too noisy to tell
	verdictFew     = "too few runs" // to tell
)

// comparison is what became of a figure.
type comparison struct {
	result.Row         // of A
	B, Ratio   float64 // B over A
	Verdict    string
}

func (c comparison) significant() bool {
	return c.Verdict == verdictBetter || c.Verdict == verdictWorse
}

// rowKey is what makes two figures comparable. What may be changed on purpose (the
// MTU, the receive mode, the commit) is not part of it.
type rowKey struct {
	measure, path string
	size, streams int
	noDelay       bool
	rest          float64
	control       string
}

func keyOf(r result.Row) rowKey {
	return rowKey{r.Measure, r.Path, r.Size, r.Streams, r.NoDelay, r.Rest, r.Control}
}

// compareRows compares the figures that both have, in the order of a.
func compareRows(a, b []result.Row) (list []comparison, onlyA, onlyB int) {
	find := func(rows []result.Row, k rowKey) *result.Row {
		return result.Find(rows, func(r result.Row) bool { return keyOf(r) == k })
	}
	seen := make(map[rowKey]bool)
	for _, x := range a {
		k := keyOf(x)
		if seen[k] {
			continue // measured in two parts of a report: the first counts
		}
		seen[k] = true
		y := find(b, k)
		if y == nil {
			onlyA++
			continue
		}
		c := comparison{Row: x, B: y.Median}
		d := stats.Differ(x.Values, y.Values, changeBound)
		c.Ratio = d.Ratio
		k.path = k.control
		c.Verdict = verdict(x, *y, d, find(a, k), find(b, k))
		list = append(list, c)
	}
	for _, y := range b {
		if k := keyOf(y); !seen[k] {
			seen[k] = true
			onlyB++
		}
	}
	return list, onlyA, onlyB
}

// verdict says what a change is worth, given the controls of both runs.
func verdict(x, y result.Row, d stats.Change, controlX, controlY *result.Row) string {
	switch {
	case !d.Beyond && min(d.A.N, d.B.N) < stats.MinRunsForNoise:
		return verdictFew
	case !d.Beyond && (x.Noisy || y.Noisy):
		return verdictNoisy
	case !d.Beyond:
		return verdictSame
	case x.Cores != y.Cores && near(x) != near(y):
		return verdictCores
	case controlX != nil && controlY != nil && x.Path != x.Control && !beyondControl(x, y, *controlX, *controlY):
		return verdictMachine
	case x.Path == x.Control:
		return verdictMachine // of which it is the measure
	}
	if (d.Ratio > 1) == result.LowerIsBetter(x.Unit) {
		return verdictWorse
	}
	return verdictBetter
}

func near(r result.Row) bool { return r.Cores == coredist.Near }

// beyondControl reports whether the ratio to the control has changed, too.
func beyondControl(x, y, controlX, controlY result.Row) bool {
	if controlX.Median == 0 || controlY.Median == 0 {
		return true
	}
	relative := func(values []float64, by float64) []float64 {
		out := make([]float64, len(values))
		for i, v := range values {
			out[i] = v / by
		}
		return out
	}
	d := stats.Differ(relative(x.Values, controlX.Median), relative(y.Values, controlY.Median), changeBound)
	plain := stats.Differ(x.Values, y.Values, changeBound)
	return d.Beyond && (d.Ratio > 1) == (plain.Ratio > 1)
}

func newCompare() *cobra.Command {
	var o compareOptions
	c := &cobra.Command{
		Use: "compare [flags] A B", Short: "say what changed between two runs, beyond the noise",
		Long: `Says what changed from A to B beyond the noise. A and B are the JSON files of two
reports, or the output of two runs with --json. A figure has changed if the runs
of A and B do not overlap, the medians are further apart than the runs of either
and by at least 10 %, and the ratio to the control of the same run shows the same:
otherwise it is the machine that has changed.

Exit status: 0 compared, 1 failed, or with --fail something is worse, 2 wrong usage.`,
		Example: `dsbench compare monday.json tuesday.json
dsbench compare --fail monday.json tuesday.json
dsbench stream --paths veth,exn --json > a; dsbench stream --paths veth,exn --mtu 1500 --json > b
dsbench compare a b`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return cli.Usagef("name two files, not %d", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return runCompare(args, o, c.OutOrStdout()) },
	}
	c.Flags().BoolVar(&o.all, "all", false, "show every figure, not only those that changed")
	c.Flags().BoolVar(&o.fail, "fail", false, "exit status 1 if a figure is worse beyond the noise")
	return c
}

// compareOptions are the flags of dsbench compare.
type compareOptions struct {
	all, fail bool
}

// errWorse says that a figure is worse, and that --fail was given.
var errWorse = errors.New("worse beyond the noise")

// runCompare does dsbench compare.
func runCompare(files []string, o compareOptions, stdout io.Writer) error {
	var rows [2][]result.Row
	for i := range rows {
		list, err := report.ReadRows(files[i])
		if err != nil {
			return err
		}
		rows[i] = list
	}
	list, onlyA, onlyB := compareRows(rows[0], rows[1])
	if len(list) == 0 {
		return errors.New("the two files have no figure in common: measure, path, size, connections and control must be equal")
	}
	if _, err := io.WriteString(stdout, compareText(list, o.all, onlyA, onlyB)); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	worse := 0
	for _, c := range list {
		if c.Verdict == verdictWorse {
			worse++
		}
	}
	if o.fail && worse > 0 {
		return fmt.Errorf("%s %w", display.Count(worse, "figure"), errWorse)
	}
	return nil
}

// compareText is the table for people.
func compareText(list []comparison, all bool, onlyA, onlyB int) string {
	var b strings.Builder
	shown := 0
	width := 9
	for _, c := range list {
		width = max(width, len(c.Path))
	}
	for _, c := range list {
		if !all && !c.significant() {
			continue
		}
		if shown++; shown == 1 {
			fmt.Fprintf(&b, "%-8s  %-*s  %8s  %7s  %9s  %9s  %7s  %s\n", "measure", width, "path", "bytes", "streams", "A", "B", "B/A", "")
		}
		fmt.Fprintf(&b, "%-8s  %-*s  %8d  %7d  %9s  %9s  %7s  %s\n",
			c.Measure, width, c.Path, c.Size, c.Streams, display.Figure(c.Median), display.Figure(c.B), display.Figure(c.Ratio), c.Verdict)
	}
	if shown > 0 {
		b.WriteByte('\n')
	}
	result.Wrap(&b, summaryText(list, onlyA, onlyB))
	return b.String()
}

// summaryText counts what became of the figures.
func summaryText(list []comparison, onlyA, onlyB int) string {
	count2 := map[string]int{}
	for _, c := range list {
		count2[c.Verdict]++
	}
	changed := count2[verdictBetter] + count2[verdictWorse]
	text := fmt.Sprintf("%s compared: %d better, %d worse, beyond the noise.", display.Count(len(list), "figure"), count2[verdictBetter], count2[verdictWorse])
	if changed == 0 {
		text = fmt.Sprintf("%s compared: nothing changed beyond the noise.", display.Count(len(list), "figure"))
	}
	for _, v := range []struct{ verdict, text string }{
		{verdictMachine, "changed as the control did: the machine is faster or slower than it was"},
		{verdictCores, "changed, but the cores were near in one and far in the other"},
		{verdictNoisy, "are too noisy to tell"},
		{verdictFew, "have too few runs to tell (3 are needed)"},
	} {
		if n := count2[v.verdict]; n > 0 {
			text += fmt.Sprintf(" %d %s.", n, v.text)
		}
	}
	if onlyA+onlyB > 0 {
		text += fmt.Sprintf(" Only A has %d more, only B %d.", onlyA, onlyB)
	}
	return text
}
