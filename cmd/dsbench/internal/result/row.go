package result

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/internal/display"
	"exnet/internal/stats"
)

// NoiseBound is the spread (stats.Summary.Spread) from which on a figure is called
// noisy: a repeated measurement may then differ by as much as the paths do.
const NoiseBound = 0.25

// NoiseText says what a noisy figure is, behind "a figure is noisy when" or the like.
func NoiseText() string {
	return fmt.Sprintf("the middle half of the runs spreads over more than %s of the median", display.Percent(NoiseBound))
}

// Row is a path's figure at one size, and the form of a line of --json.
type Row struct {
	Measure string   `json:"measure"`
	Path    string   `json:"path"`
	Size    int      `json:"size"`
	Streams int      `json:"streams"`
	Unit    string   `json:"unit"`
	Median  float64  `json:"median"`
	Min     float64  `json:"min"`
	Max     float64  `json:"max"`
	Runs    int      `json:"runs"`
	Control string   `json:"control"`
	Ratio   *float64 `json:"ratio"` // median over the control's; null if that was not measured

	// Half round trips or transactions of all runs, in microseconds; only for
	// measures of latency, the quartiles with a rest before each.
	P25  *float64 `json:"p25,omitempty"`
	P75  *float64 `json:"p75,omitempty"`
	P50  *float64 `json:"p50,omitempty"`
	P90  *float64 `json:"p90,omitempty"`
	P99  *float64 `json:"p99,omitempty"`
	P999 *float64 `json:"p999,omitempty"`
	P100 *float64 `json:"p100,omitempty"` // the longest
	Mean *float64 `json:"mean,omitempty"`

	Values   []float64 `json:"values"` // of the single runs, in order
	times    Times     // set by Take
	Spread   float64   `json:"spread"`
	Noisy    bool      `json:"noisy"`
	CPULoad  float64   `json:"cpu_load"`               // CPU seconds per second, all processes of the path
	CPUPerGB *float64  `json:"cpu_s_per_gb,omitempty"` // CPU seconds per 10^9 bytes; only of what goes one way
	// CPU time of all processes of the path for a request, microseconds; only of programs on a
	// bridge.
	CPUPerRequest *float64 `json:"cpu_us_per_request,omitempty"`

	coredist.Distance // of the CPUs, before the measurement

	Congestion string  `json:"congestion"`
	MTU        int     `json:"mtu"`
	Duration   float64 `json:"duration_s"`
	Warmup     float64 `json:"warmup_s"`
	NoFastPath bool    `json:"no_fast_path,omitempty"`
	NoDelay    bool    `json:"no_delay,omitempty"`
	Rest       float64 `json:"rest_s,omitempty"` // before each message
	RxMode     string  `json:"rx_mode,omitempty"`
	Coalesce   string  `json:"coalesce,omitempty"`
	Placement  string  `json:"placement"` // CPUs of client and server, or "any"
	Machine
	*Datagrams
}

// Datagrams counts those of all runs of a measure of UDP.
type Datagrams struct {
	Sent     uint64 `json:"sent,omitempty"` // these two only of what goes one way
	Received uint64 `json:"received,omitempty"`
	Lost     uint64 `json:"lost"`
	Late     uint64 `json:"late"` // received after a later one
}

// Take takes the values of single runs in, and compares them with the control's values, if it
// has any. The row has its unit.
func (r *Row) Take(values, control []float64) {
	for _, v := range values {
		r.Values = append(r.Values, Round(v))
	}
	sum := stats.Summarize(values)
	r.Runs, r.Median, r.Min, r.Max = len(values), Round(sum.Median), Round(sum.Min), Round(sum.Max)
	r.Spread, r.Noisy = Round(sum.Spread()), sum.Noisy(NoiseBound)
	if c := stats.Summarize(control).Median; c > 0 {
		r.Ratio = Rounded(sum.Median / c)
	}
	r.times = TimesOf(r.Unit, values, control)
}

// Find returns the first row that is meant, nil if there is none.
func Find(rows []Row, meant func(Row) bool) *Row {
	if i := slices.IndexFunc(rows, meant); i >= 0 {
		return &rows[i]
	}
	return nil
}

// Round keeps four decimals: more are noise, and hard to read.
func Round(v float64) float64 { return math.Round(v*1e4) / 1e4 }

func Rounded(v float64) *float64 {
	v = Round(v)
	return &v
}

// WriteLines writes a JSON object a line.
func WriteLines[T any](w io.Writer, list []T) error {
	lines := json.NewEncoder(w)
	for _, v := range list {
		if err := lines.Encode(v); err != nil {
			return err
		}
	}
	return nil
}
