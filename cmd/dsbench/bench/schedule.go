package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/stats"
	"exnet/internal/tcpbench"
)

// runAll sets the paths up, takes all measurements and gives the rows of each size to out. After
// an error or a cancelled context, out has had what was measured until then.
func runAll(ctx context.Context, o options, m result.Machine, out func([]result.Row) error, p *progress) (err error) {
	opened := make([]paths.Path, 0, len(o.paths))
	defer func() {
		for i, path := range opened {
			if closeErr := path.Close(); closeErr != nil {
				err = errors.Join(err, fmt.Errorf("path %s: cleaning up: %w", o.paths[i].Name, closeErr))
			}
		}
	}()
	failed := make([]bool, len(o.paths))
	for i, kind := range o.paths {
		path := kind.Open(o.node)
		opened = append(opened, path)
		p.showMessage("setting up %s", kind.Name)
		if err := path.Setup(ctx); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted while setting up %s", kind.Name)
			}
			if err = fmt.Errorf("path %s: %w", kind.Name, err); o.tolerate == nil {
				return err
			}
			o.tolerate(kind.Name, err)
			failed[i] = true
		}
	}
	for _, size := range o.sizes {
		p.showMessage("measuring the distance of the CPUs")
		d := distance()
		samples, at, err := runSize(ctx, o, opened, failed, size, p)
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("interrupted after %d of %d measurements", p.done, p.total)
		}
		p.clearLine()
		if err := errors.Join(err, out(makeRows(o, m, d.At(at), opened, size, samples))); err != nil {
			return err
		}
	}
	return nil
}

// distance measures that of the CPUs that Apart places the ends on, and look does without the
// copies of memory. They are variables for tests.
var (
	distance = func() coredist.Distance {
		cpus := tcpbench.Apart()
		return coredist.Measure(cpus.Client, cpus.Server)
	}
	look = measure.Distance
)

// runSize takes the measurements of one size, interleaved: A B A B, in rounds at one distance of
// the CPUs, as many as the options say. The samples are by the place of the path; after an error
// they are those until then. A path that has failed has none.
func runSize(ctx context.Context, o options, opened []paths.Path, failed []bool, size int, p *progress) (map[int][]sample, coredist.Distance, error) {
	round := func(run int) (map[int]sample, error) {
		taken := make(map[int]sample)
		if run >= o.runs { // in place of one at another distance
			p.total += len(o.paths)
		}
		for i, path := range opened {
			kind := o.paths[i]
			if failed[i] {
				p.done++
				continue
			}
			if ctx.Err() != nil {
				return taken, ctx.Err()
			}
			p.showStep("%s, %d bytes, run %d of %d", kind.Name, size, run+1, max(o.runs, run+1))
			r, err := path.Measure(ctx, o.specOf(size))
			if err != nil {
				err = fmt.Errorf("path %s, %d bytes, run %d: %w", kind.Name, size, run+1, err)
				if o.tolerate == nil || ctx.Err() != nil {
					return taken, err
				}
				o.tolerate(kind.Name, err)
				failed[i] = true
			} else {
				taken[i] = o.measure.makeSample(r, size)
			}
			p.stepDone()
		}
		return taken, nil
	}
	return coredist.Rounds(o.runs, look, round)
}

// makeRows makes the rows of one size, in the order of the paths. A path without
// a sample has none.
func makeRows(o options, m result.Machine, d coredist.Distance, opened []paths.Path, size int, samples map[int][]sample) []result.Row {
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
	var load, perGB []float64
	latency := stats.NewHistogram()
	for _, s := range samples {
		load = append(load, s.CPU)
		perGB = append(perGB, s.CPUPerGB())
		if s.Latency != nil {
			latency.Merge(s.Latency)
		}
	}
	r := result.Row{
		Measure: o.measure.name, Unit: o.measure.unit, Streams: o.streams, Control: o.control,
		CPULoad:    result.Round(stats.Summarize(load).Median),
		Congestion: o.congestion,
		Duration:   o.duration.Seconds(), Warmup: o.warmup.Seconds(),
		Placement: o.cpus.String(), NoDelay: o.noDelay,
	}
	r.Take(valuesOf(samples), control)
	if !o.measure.latency {
		r.CPUPerGB = result.Rounded(stats.Summarize(perGB).Median)
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
