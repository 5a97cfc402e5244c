package stats

import "slices"

// Summary describes a figure that was measured several times. The zero Summary
// describes one that was never measured.
type Summary struct {
	N                int
	Median, Min, Max float64
	Low, High        float64 // the extremes of the middle: without the lowest and highest quarter, rounded down
}

// Summarize borrows values until it returns. The median of an even number of
// values is the mean of the middle two.
func Summarize(values []float64) Summary {
	n := len(values)
	if n == 0 {
		return Summary{}
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return Summary{
		N:      n,
		Median: (sorted[(n-1)/2] + sorted[n/2]) / 2,
		Min:    sorted[0],
		Max:    sorted[n-1],
		Low:    sorted[n/4],
		High:   sorted[n-1-n/4],
	}
}

// Spread returns how far apart the middle half of the values lies, Low to High, as a
// share of the median: 0 when all of them are equal, or when the median is 0. Of three
// values or fewer it takes all. The extremes would tell of a single disturbed run, and
// move apart with each run more.
func (s Summary) Spread() float64 {
	if s.Median == 0 {
		return 0
	}
	return (s.High - s.Low) / s.Median
}

// MinRunsForNoise is the least number of runs that Noisy can judge: the extremes of two differ
// by chance.
const MinRunsForNoise = 3

// Noisy reports whether the middle half lies further apart than bound, a share of the
// median as Spread returns it.
func (s Summary) Noisy(bound float64) bool {
	return s.N >= MinRunsForNoise && s.Spread() > bound
}
