// Package stats summarises repeated measurements: median and spread over runs,
// and latency histograms within them.
//
// # Architecture
//
//	run 1, run 2, ...  -> []float64 -> Summarize -> median, min, max, spread
//	every operation    -> Histogram -> Quantile, Mean (merged over runs)
//	two groups of runs -> Differ -> ratio, and whether it is beyond the noise
//
// A figure is the median over runs, because one disturbed run moves a mean but
// not a median. The spread, how far apart the middle half of the runs lies over the
// median, says whether to trust the figure.
//
// # Concurrency
//
// A Histogram belongs to one goroutine at a time. The rest has no state.
//
// # Limits
//
// Histogram values are kept to three significant digits, from 1 ns to 100 s;
// larger ones are recorded as 100 s.
package stats
