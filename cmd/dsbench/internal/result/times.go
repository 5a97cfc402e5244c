package result

import (
	"fmt"
	"slices"

	"exnet/internal/display"
	"exnet/internal/stats"
)

// LowerIsBetter reports whether less of a unit is better, as of times.
func LowerIsBetter(unit string) bool { return slices.Contains([]string{"us", "us/s", "s/GB"}, unit) }

// Times is how many times as good as its control a figure is: above 1 is better, whatever the
// unit. Every ratio that people read is one. The zero Times is of a figure without a control.
type Times stats.Summary

// TimesOf compares figures with their control's, round by round: of what should be low it
// divides the control's by the figure, of what should be high the figure by the control's. If
// the two do not have the same rounds, there is one: that of their medians.
func TimesOf(unit string, figures, controls []float64) Times {
	if len(figures) != len(controls) {
		figures, controls = []float64{stats.Summarize(figures).Median}, []float64{stats.Summarize(controls).Median}
	}
	var rounds []float64
	for i, v := range figures {
		c := controls[i]
		if LowerIsBetter(unit) {
			v, c = c, v
		}
		if v > 0 && c > 0 {
			rounds = append(rounds, v/c)
		}
	}
	return Times(stats.Summarize(rounds))
}

// Short is the median: "2.1"; "" without a control.
func (t Times) Short() string {
	if t.N == 0 {
		return ""
	}
	return TimesText(t.Median)
}

// String is the median. Where the rounds do not agree, the range of their middle half follows:
// "2.1 (1.8 to 2.9)".
func (t Times) String() string {
	if stats.Summary(t).Noisy(NoiseBound) {
		return fmt.Sprintf("%s (%s to %s)", t.Short(), TimesText(t.Low), TimesText(t.High))
	}
	return t.Short()
}

// TimesText writes a number of times with two digits, or all before the point: "0.042", "0.42",
// "6.1", "31", "124".
func TimesText(v float64) string {
	digits := 3
	switch {
	case v >= 9.95:
		digits = 0
	case v >= 0.995:
		digits = 1
	case v >= 0.0995:
		digits = 2
	}
	return fmt.Sprintf("%.*f", digits, v)
}

// RangeText says where String has a range.
func RangeText() string {
	return fmt.Sprintf("A range is the middle half of the rounds: it is given where that half spreads over more than %s of the median.", display.Percent(NoiseBound))
}
