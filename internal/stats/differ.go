package stats

// Change compares values b with earlier values a.
type Change struct {
	A, B  Summary
	Ratio float64 // B's median over A's; 0 if A's is 0
	// Beyond says whether the change is beyond the noise: see Differ.
	Beyond bool
}

// Differ compares two groups of runs. The change is beyond the noise if
//
//   - each group has at least MinRunsForNoise values,
//   - no value of one lies among those of the other: with five runs each that
//     happens by chance once in 126 times,
//   - the medians differ by more than both groups' spread, so that a drift between
//     two steady groups of counts and two tails of noisy ones do not,
//   - and by at least the share bound of the smaller one: a smaller change may be
//     real, but does not matter.
func Differ(a, b []float64, bound float64) Change {
	c := Change{A: Summarize(a), B: Summarize(b)}
	if c.A.Median != 0 {
		c.Ratio = c.B.Median / c.A.Median
	}
	if min(c.A.N, c.B.N) < MinRunsForNoise {
		return c
	}
	low, high := c.A, c.B
	if low.Median > high.Median {
		low, high = high, low
	}
	gap := high.Median - low.Median
	c.Beyond = low.Max < high.Min &&
		gap > max(low.Max-low.Min, high.Max-high.Min) &&
		gap >= bound*low.Median
	return c
}
