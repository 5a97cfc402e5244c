package dsbench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"

	"exnet/internal/dsbench/coredist"
	"exnet/internal/dsbench/paths"
	"exnet/internal/stats"
	"exnet/internal/tcpbench"
)

// noiseBound is the spread (largest less smallest, over the median) from which
// on a figure is called noisy: a repeated measurement may then differ by as
// much as the paths do.
const noiseBound = 0.25

// row is a path's figure at one size, and the form of a line of --json.
type row struct {
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
	// measures of latency.
	P50  *float64 `json:"p50,omitempty"`
	P90  *float64 `json:"p90,omitempty"`
	P99  *float64 `json:"p99,omitempty"`
	P999 *float64 `json:"p999,omitempty"`
	P100 *float64 `json:"p100,omitempty"` // the longest
	Mean *float64 `json:"mean,omitempty"`

	Values   []float64 `json:"values"` // of the single runs, in order
	Spread   float64   `json:"spread"`
	Noisy    bool      `json:"noisy"`
	CPULoad  float64   `json:"cpu_load"`               // CPU seconds per second, all processes of the path
	CPUPerGB *float64  `json:"cpu_s_per_gb,omitempty"` // CPU seconds per 10^9 bytes; only of what goes one way

	coredist.Distance // of the CPUs, before the measurement

	Congestion string  `json:"congestion"`
	MTU        int     `json:"mtu"`
	Duration   float64 `json:"duration_s"`
	Warmup     float64 `json:"warmup_s"`
	NoFastPath bool    `json:"no_fast_path,omitempty"`
	Buffers    int     `json:"buffers,omitempty"`   // bytes of the sockets'; left out: the kernel's choice
	Direction  string  `json:"direction,omitempty"` // "in": the end that listens sends
	NoDelay    bool    `json:"no_delay,omitempty"`
	Chunk      int     `json:"ds_chunk,omitempty"` // of direct sockets, if not the default; so are the next two
	Ring       int     `json:"ds_ring,omitempty"`
	Spin       float64 `json:"ds_spin_us,omitempty"`
	RxMode     string  `json:"rx_mode,omitempty"`
	Coalesce   string  `json:"coalesce,omitempty"`
	Eager      int     `json:"eager_threshold,omitempty"` // if not the default
	Placement  string  `json:"placement"`                 // CPUs of client and server, or "any"
	machine
}

// makeRows makes the rows of one size, in the order of the paths. A path without
// a sample has none.
func makeRows(o options, m machine, d coredist.Distance, opened []paths.Path, size int, samples [][]sample) []row {
	var rows []row
	var control float64
	for i, p := range opened {
		if len(samples[i]) == 0 {
			continue
		}
		r := makeRow(o, samples[i])
		info := p.Info()
		r.Path, r.Size, r.machine, r.Distance = o.paths[i].Name, size, m, d
		r.MTU, r.NoFastPath, r.RxMode, r.Coalesce = info.MTU, info.NoFastPath, info.RxMode, info.Coalesce
		if info.RxMode != "" {
			r.Eager = o.node.EagerThreshold
		}
		if info.Unbound {
			r.Placement = tcpbench.Anywhere().String()
		}
		if info.Polls && o.cpus == tcpbench.Anywhere() {
			r.Placement = tcpbench.Apart().String()
		}
		if r.Path == o.control {
			control = r.Median
		}
		rows = append(rows, r)
	}
	for i := range rows {
		r := &rows[i]
		if control > 0 {
			r.Ratio = rounded(r.Median / control)
		}
		r.Median, r.Min, r.Max = round(r.Median), round(r.Min), round(r.Max)
	}
	return rows
}

func makeRow(o options, samples []sample) row {
	var values, load, perGB []float64
	latency := stats.NewHistogram()
	for _, s := range samples {
		values = append(values, s.value)
		load = append(load, s.CPU)
		perGB = append(perGB, s.CPUPerGB())
		if s.Latency != nil {
			latency.Merge(s.Latency)
		}
	}
	sum := stats.Summarize(values)
	r := row{
		Measure: o.measure.name, Unit: o.measure.unit, Streams: o.streams,
		Median: sum.Median, Min: sum.Min, Max: sum.Max, Runs: sum.N,
		Control: o.control,
		Spread:  round(sum.Spread()), Noisy: sum.Noisy(noiseBound),
		CPULoad:    round(stats.Summarize(load).Median),
		Congestion: o.congestion,
		Duration:   o.duration.Seconds(), Warmup: o.warmup.Seconds(),
		Placement: o.cpus.String(), NoDelay: o.noDelay, Buffers: o.buffers,
	}
	r.Chunk, r.Ring, r.Spin = o.direct.Chunk, o.direct.Ring, float64(o.direct.Spin.Nanoseconds())/1e3
	if o.reverse {
		r.Direction = "in"
	}
	for _, v := range values {
		r.Values = append(r.Values, round(v))
	}
	if !o.measure.latency {
		r.CPUPerGB = rounded(stats.Summarize(perGB).Median)
		return r
	}
	share := 1.0
	if o.measure.half {
		share = 0.5
	}
	at := func(quantile float64) *float64 { return rounded(share * microseconds(latency, quantile)) }
	r.P50, r.P90, r.P99, r.P999, r.P100 = at(0.50), at(0.90), at(0.99), at(0.999), at(1)
	r.Mean = rounded(share * float64(latency.Mean().Nanoseconds()) / 1e3)
	return r
}

// round keeps four decimals: more are noise, and hard to read.
func round(v float64) float64 { return math.Round(v*1e4) / 1e4 }

func rounded(v float64) *float64 {
	v = round(v)
	return &v
}

// jsonSink writes a JSON object a line.
type jsonSink struct {
	w io.Writer
}

func (s jsonSink) rows(rows []row) error {
	if err := writeLines(s.w, rows); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}

// writeLines writes a JSON object a line.
func writeLines[T any](w io.Writer, list []T) error {
	lines := json.NewEncoder(w)
	for _, v := range list {
		if err := lines.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

func (s jsonSink) end() error { return nil }
