package suites

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// programRow is what a scenario came to.
type programRow struct {
	Program string  `json:"program"`
	Skipped string  `json:"skipped,omitempty"` // why
	Mode    mode    `json:"mode,omitempty"`
	Data    string  `json:"data,omitempty"` // ok, wrong
	Traffic traffic `json:"traffic"`
	// Ratios are of the time of the load under exn-run to that plain, of each round; nil: not
	// timed.
	Ratios []float64 `json:"ratios,omitempty"`
	Plain  float64   `json:"plain_seconds,omitempty"` // median of the load
}

// programTable is what all came to.
type programTable struct {
	Commit string       `json:"commit"`
	Date   time.Time    `json:"date"`
	Load   string       `json:"load_average"` // of the machine, at the end: above the number of its CPUs ratios say little
	CPUs   int          `json:"cpus"`
	Rows   []programRow `json:"rows"`
}

// String is the table as text.
func (t *programTable) String() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "exnet %s, %s; %d CPUs, load %s\n", t.Commit, t.Date.Format(time.RFC3339), t.CPUs, t.Load)
	fmt.Fprintf(w, "program\tmode\tdata\tends direct\tof\tbytes direct\ton TCP\tplain\ttime to plain (least-most)\n")
	for _, r := range t.Rows {
		if r.Skipped != "" {
			fmt.Fprintf(w, "%s\t-\t%s\n", r.Program, r.Skipped)
			continue
		}
		ratio, took := "-", "-"
		if n := len(r.Ratios); n > 0 {
			ratio = fmt.Sprintf("%.2f (%.2f-%.2f)", median(r.Ratios), slices.Min(r.Ratios), slices.Max(r.Ratios))
			took = fmt.Sprintf("%.0f ms", r.Plain*1000)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", r.Program, r.Mode, r.Data, r.Traffic.Direct, r.Traffic.Connections,
			bytesText(r.Traffic.DirectBytes), bytesText(r.Traffic.TCPBytes), took, ratio)
	}
	for _, r := range t.Rows {
		if len(r.Traffic.Because) > 0 {
			fmt.Fprintf(w, "%s, %s: not direct because: %s\n", r.Program, r.Mode, r.Traffic.because())
		}
	}
	w.Flush()
	return text.String()
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
