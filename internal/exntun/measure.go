package exntun

import (
	"context"
	"fmt"
	"time"

	"exnet/internal/exntun/lab"
	"exnet/internal/stats"
	"exnet/internal/tcpbench"
)

// measurement is a kind of measurement, taken on exn0 and on veth.
type measurement struct {
	name  string
	label string // in the table
	unit  string
	take  func(ctx context.Context, p lab.Path, f lab.Family) (float64, error)
}

const (
	streamSize   = 128 << 10 // bytes of a write, as iperf3's
	pingPongSize = 64

	unitBandwidth = "Gbit/s"
	unitTime      = "us"
)

// pingRun is one run of ping: short, and long enough for a median.
var pingRun = lab.PingSpec{Count: 11, Interval: 10 * time.Millisecond}

// measurements returns what the demonstration measures.
func (o demoOptions) measurements(ping lab.Pinger) []measurement {
	spec := tcpbench.Spec{Duration: o.duration, Warmup: o.duration / 4, Congestion: o.congestion}
	return []measurement{
		{"ping", "ping", unitTime, func(ctx context.Context, p lab.Path, f lab.Family) (float64, error) {
			return takePing(ctx, p, f, ping)
		}},
		{"stream", "TCP stream", unitBandwidth, func(ctx context.Context, p lab.Path, f lab.Family) (float64, error) {
			return takeStream(ctx, p, f, spec)
		}},
		{"pingpong", "TCP ping-pong", unitTime, func(ctx context.Context, p lab.Path, f lab.Family) (float64, error) {
			return takePingPong(ctx, p, f, spec)
		}},
	}
}

// takePing returns the median round trip in microseconds.
func takePing(ctx context.Context, p lab.Path, f lab.Family, with lab.Pinger) (float64, error) {
	trips, err := with.Ping(ctx, p.A.NS, p.B.Addrs[f], pingRun)
	if err == nil && len(trips) < pingRun.Count {
		err = fmt.Errorf("%d of %d requests answered", len(trips), pingRun.Count)
	}
	if err != nil {
		return 0, err
	}
	values := make([]float64, len(trips))
	for i, t := range trips {
		values[i] = microseconds(t)
	}
	return stats.Summarize(values).Median, nil
}

// takeStream returns what the receiver got, in Gbit/s.
func takeStream(ctx context.Context, p lab.Path, f lab.Family, spec tcpbench.Spec) (float64, error) {
	spec.Kind, spec.Size, spec.Streams, spec.CPUs = tcpbench.Stream, streamSize, 1, tcpbench.Anywhere()
	r, err := p.TCP(f).Measure(ctx, spec)
	if err != nil {
		return 0, err
	}
	return r.BytesPerSecond() * 8 / 1e9, nil
}

// takePingPong returns half of the median round trip in microseconds. The two ends run on
// different CPUs, as two nodes would: if the scheduler sometimes put both on one CPU, results
// would differ several times over from run to run.
func takePingPong(ctx context.Context, p lab.Path, f lab.Family, spec tcpbench.Spec) (float64, error) {
	spec.Kind, spec.Size, spec.Streams, spec.CPUs = tcpbench.PingPong, pingPongSize, 1, tcpbench.Apart()
	r, err := p.TCP(f).Measure(ctx, spec)
	if err != nil {
		return 0, err
	}
	return microseconds(r.Latency.Quantile(0.5)) / 2, nil
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// figure is the result of a measurement.
type figure struct {
	Measure string  `json:"measure"`
	Family  string  `json:"family"`
	Unit    string  `json:"unit"`
	Exn     sample  `json:"exn"`
	Veth    sample  `json:"veth"`
	Ratio   float64 `json:"ratio"` // exn's median over veth's

	label string
}

// String is one line for people.
func (f figure) String() string {
	return fmt.Sprintf("%s %s over exn0, %s over veth", number3(f.Exn.Median), f.Unit, number3(f.Veth.Median))
}

// sample summarizes the runs on one path.
type sample struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Runs   int     `json:"runs"`
}

func newSample(values []float64) sample {
	s := stats.Summarize(values)
	return sample{s.Median, s.Min, s.Max, s.N}
}

// measure takes m on both paths in turn, so that other load on the machine affects both alike.
// Every other run begins with veth.
func (m measurement) measure(ctx context.Context, exn, veth lab.Path, f lab.Family, runs int) (figure, error) {
	paths := [2]lab.Path{exn, veth}
	var values [2][]float64
	for run := range runs {
		for turn := range paths {
			i := (run + turn) % len(paths)
			v, err := m.take(ctx, paths[i], f)
			if ctx.Err() != nil {
				return figure{}, context.Cause(ctx)
			}
			if err != nil {
				return figure{}, fmt.Errorf("over %s: %w", paths[i].Name, err)
			}
			values[i] = append(values[i], v)
		}
	}
	fig := figure{
		Measure: m.name, Family: f.String(), Unit: m.unit,
		Exn: newSample(values[0]), Veth: newSample(values[1]), label: m.label,
	}
	if fig.Veth.Median > 0 {
		fig.Ratio = fig.Exn.Median / fig.Veth.Median
	}
	return fig, nil
}
