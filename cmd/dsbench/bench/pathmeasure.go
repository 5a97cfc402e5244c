package bench

import (
	"context"

	"exnet/cmd/dsbench/internal/measure"
	"exnet/internal/stats"
	"exnet/internal/tcpbench"

	"github.com/spf13/pflag"
)

// pathMeasure is something that can be measured on every path, or on most. Each has a file.
type pathMeasure struct {
	name     string
	unit     string
	about    string // for the help text, as are the next two
	long     string
	examples string
	title    string // for the table
	explain  string // what its columns are; %s is the control
	kind     tcpbench.Kind

	size    string // default of --size
	cpus    string // default of --cpus
	lower   bool   // less is better
	latency bool   // it times every operation
	half    bool   // and shows half of that
	streams bool   // several at once

	value func(r tcpbench.Result, size int) float64
}

// pathMeasures lists them, in the order of the help text.
var pathMeasures = []pathMeasure{stream, pingpong, crr, rate, cpu}

// measureOf finds a measure by its name.
func measureOf(name string) (pathMeasure, bool) {
	for _, m := range pathMeasures {
		if m.name == name {
			return m, true
		}
	}
	return pathMeasure{}, false
}

// measure gives it the shape of all measures.
func (m pathMeasure) measure() measure.Measure {
	return measure.Measure{
		Name: m.name, About: m.about, Long: m.long, Examples: m.examples,
		Define: func(fs *pflag.FlagSet) measure.Run { return &pathRun{f: newMeasureFlags(m, fs)} },
	}
}

// pathRun is what a command line asks of a pathMeasure.
type pathRun struct {
	f *measureFlags
	o options // set by Check
}

func (r *pathRun) Check() (err error) {
	r.o, err = r.f.options()
	return err
}

func (r *pathRun) Take(ctx context.Context, env measure.Env) error {
	return run(ctx, r.o, env.Stdout, env.Stderr)
}

// sample is what one run found.
type sample struct {
	value float64 // in the measure's unit
	tcpbench.Result
}

func (m pathMeasure) sample(r tcpbench.Result, size int) sample { return sample{m.value(r, size), r} }

// oneWay says that a bandwidth is measured, and CPU time for a gigabyte.
func (m pathMeasure) oneWay() bool { return !m.latency }

// microseconds returns a quantile.
func microseconds(h *stats.Histogram, quantile float64) float64 {
	return float64(h.Quantile(quantile).Nanoseconds()) / 1e3
}
