package main

import (
	"fmt"
	"strings"

	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/display"
	"exnet/internal/stats"
)

// figure is what came of a measure.
type figure struct {
	measure
	unit   string
	values [2][]float64 // base, head; of pairs that count
	pairs  int          // that were taken
	err    error        // why it is left out
}

// farther is by how much two distances of CPUs differ at least that are not the same.
const farther = 1.6

// add adds a pair of runs, if both found the CPUs at the same distance.
func (f *figure) add(pair [2]result.Row) {
	f.pairs++
	f.unit = pair[1].Unit
	near, far := min(pair[0].Line, pair[1].Line), max(pair[0].Line, pair[1].Line)
	if far > farther*near {
		return
	}
	for i, r := range pair {
		f.values[i] = append(f.values[i], r.Median)
	}
}

// bound is the least change that counts.
const bound = 0.05

// verdict says whether the head differs from the base by more than the spread.
func (f *figure) verdict(d stats.Change) string {
	switch {
	case !d.Beyond && min(d.A.N, d.B.N) < stats.MinRunsForNoise:
		return "too few runs"
	case !d.Beyond:
		return "-"
	case (d.Ratio > 1) == f.lower:
		return "SLOWER"
	}
	return "faster"
}

// table is the table for people.
func table(list []figure, rounds int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s %-7s %10s %7s %10s %7s %10s %6s  %s\n", "measure", "", "base", "spread", "head", "spread", "head/base", "pairs", "beyond the noise")
	left := 0
	for _, f := range list {
		if f.err != nil {
			continue
		}
		pairs := fmt.Sprintf("%d/%d", len(f.values[0]), f.pairs)
		left += f.pairs - len(f.values[0])
		if len(f.values[0]) == 0 {
			fmt.Fprintf(&b, "%-16s %-7s %10s %7s %10s %7s %10s %6s\n", f.name, f.unit, "", "", "", "", "", pairs)
			continue
		}
		d := stats.Differ(f.values[0], f.values[1], bound)
		fmt.Fprintf(&b, "%-16s %-7s %10s %7s %10s %7s %10s %6s  %s\n", f.name, f.unit, display.Figure(d.A.Median), display.Percent(d.A.Spread()),
			display.Figure(d.B.Median), display.Percent(d.B.Spread()), display.Figure(d.Ratio), pairs, f.verdict(d))
	}
	b.WriteByte('\n')
	text := fmt.Sprintf("Medians of %s. The spread is how far apart the middle half of the runs lies, over the median.", display.Count(rounds, "interleaved run"))
	if left > 0 {
		text += fmt.Sprintf(" %s not counted: the CPUs were near in one run and far in the other.", display.Count(left, "pair"))
	}
	result.Wrap(&b, text)
	return b.String()
}
