package study

import "math"

// Stats are what can be said about the load of all channels, each at its peak.
type Stats struct {
	Channels int     `json:"channels"`
	Used     int     `json:"used"` // that carried anything
	Max      uint64  `json:"max"`  // bytes
	Busiest  int32   `json:"busiest"`
	MaxFlows uint64  `json:"max_flows"` // that crossed one channel in all
	Mean     float64 `json:"mean"`
	StdDev   float64 `json:"std_dev"`
}

// Stats computes statistics of the peaks.
func (r *Result) Stats() Stats {
	s := Stats{Channels: len(r.Load.Peak)}
	for c, n := range r.Load.Peak {
		if n > 0 {
			s.Used++
		}
		if n > s.Max {
			s.Max, s.Busiest = n, int32(c)
		}
		s.MaxFlows = max(s.MaxFlows, r.Load.Count[c])
		s.Mean += float64(n)
	}
	count := float64(max(s.Channels, 1))
	s.Mean /= count
	for _, n := range r.Load.Peak {
		d := float64(n) - s.Mean
		s.StdDev += d * d
	}
	s.StdDev = math.Sqrt(s.StdDev / count)
	return s
}
