package bench

import (
	"fmt"
	"io"
	"slices"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/stats"
	"exnet/internal/tcpbench"
)

// makeRows makes the rows of one size, in the order of the paths. A path without
// a sample has none.
func makeRows(o options, m result.Machine, d coredist.Distance, opened []paths.Path, size int, samples [][]sample) []result.Row {
	var rows []result.Row
	var control []float64 // its values
	if i := slices.IndexFunc(o.paths, func(k paths.Kind) bool { return k.Name == o.control }); i >= 0 {
		control = valuesOf(samples[i])
	}
	for i, p := range opened {
		if len(samples[i]) == 0 {
			continue
		}
		r := makeRow(o, samples[i], control)
		info := p.Info()
		r.Path, r.Size, r.Machine, r.Distance = o.paths[i].Name, size, m, d
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
		rows = append(rows, r)
	}
	return rows
}

func valuesOf(samples []sample) (values []float64) {
	for _, s := range samples {
		values = append(values, s.value)
	}
	return values
}

func makeRow(o options, samples []sample, control []float64) result.Row {
	var load, perGB, interrupts []float64
	latency := stats.NewHistogram()
	for _, s := range samples {
		load = append(load, s.CPU)
		perGB = append(perGB, s.CPUPerGB())
		interrupts = append(interrupts, s.InterruptsPerGB)
		if s.Latency != nil {
			latency.Merge(s.Latency)
		}
	}
	r := result.Row{
		Measure: o.measure.name, Unit: o.measure.unit, Streams: o.streams, Control: o.control,
		CPULoad:    result.Round(stats.Summarize(load).Median),
		Congestion: o.congestion,
		Duration:   o.duration.Seconds(), Warmup: o.warmup.Seconds(),
		Placement: o.cpus.String(), NoDelay: o.noDelay, Buffers: o.buffers,
	}
	r.Chunk, r.Ring, r.Spin = o.direct.Chunk, o.direct.Ring, float64(o.direct.Spin.Nanoseconds())/1e3
	if o.reverse {
		r.Direction = "in"
	}
	r.Take(valuesOf(samples), control)
	if !o.measure.latency {
		r.CPUPerGB = result.Rounded(stats.Summarize(perGB).Median)
		if n := stats.Summarize(interrupts).Median; n > 0 {
			r.InterruptsPerGB = result.Rounded(n)
		}
		return r
	}
	share := 1.0
	if o.measure.half {
		share = 0.5
	}
	at := func(quantile float64) *float64 { return result.Rounded(share * microseconds(latency, quantile)) }
	r.P50, r.P90, r.P99, r.P999, r.P100 = at(0.50), at(0.90), at(0.99), at(0.999), at(1)
	if o.rest > 0 {
		r.P25, r.P75, r.Rest = at(0.25), at(0.75), o.rest.Seconds()
	}
	r.Mean = result.Rounded(share * float64(latency.Mean().Nanoseconds()) / 1e3)
	return r
}

// jsonSink writes a JSON object a line.
type jsonSink struct {
	w io.Writer
}

func (s jsonSink) rows(rows []result.Row) error {
	if err := result.WriteLines(s.w, rows); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}

func (s jsonSink) end() error { return nil }
