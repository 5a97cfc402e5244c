package exntun

import (
	"context"
	"fmt"
	"time"

	"exnet/cmd/exn-tun/internal/lab"
	"exnet/internal/display"
	"exnet/internal/stats"
	"exnet/internal/tcpbench"
)

// way is how the two programs of a measurement are joined.
type way struct {
	name   string
	path   lab.Path
	direct bool // by direct sockets, with TCP over path as their shadow
}

// measurement is a kind of measurement, taken on every way.
type measurement struct {
	name   string
	label  string // in the table
	unit   string
	faster bool // a larger figure is better
	take   func(ctx context.Context, w way) (float64, error)
}

const (
	streamSize   = 128 << 10 // bytes of a write, as iperf3's
	pingPongSize = 64

	unitBandwidth = "Gbit/s"
	unitTime      = "us"
	unitRate      = "1/s"
)

// measurements returns what the demonstration measures with programs of its own.
func (o demoOptions) measurements(count func(tcpbench.Result)) []measurement {
	spec := tcpbench.Spec{Duration: o.duration, Warmup: o.duration / 4, Congestion: o.congestion}
	return []measurement{
		{"stream", "stream, 128 KiB writes", unitBandwidth, true, func(ctx context.Context, w way) (float64, error) {
			return takeStream(ctx, w, spec, count)
		}},
		{"pingpong", "ping-pong, 64 bytes", unitTime, false, func(ctx context.Context, w way) (float64, error) {
			return takePingPong(ctx, w, spec, count)
		}},
	}
}

// measureWay runs the two programs on the way's path, over IPv4. count gets what went direct.
func (w way) measureWay(ctx context.Context, spec tcpbench.Spec, count func(tcpbench.Result)) (tcpbench.Result, error) {
	if w.direct {
		spec.Transport = tcpbench.Direct
	}
	r, err := w.path.TCP(lab.V4).Measure(ctx, spec)
	if err == nil && w.direct {
		count(r)
	}
	return r, err
}

// takeStream returns what the receiver got, in Gbit/s.
func takeStream(ctx context.Context, w way, spec tcpbench.Spec, count func(tcpbench.Result)) (float64, error) {
	spec.Kind, spec.Size, spec.Streams, spec.CPUs = tcpbench.Stream, streamSize, 1, tcpbench.Anywhere()
	r, err := w.measureWay(ctx, spec, count)
	if err != nil {
		return 0, err
	}
	return r.BytesPerSecond() * 8 / 1e9, nil
}

// takePingPong returns half of the median round trip in microseconds. The two ends run on
// different CPUs, as two nodes would: if the scheduler sometimes put both on one CPU, results
// would differ several times over from run to run.
func takePingPong(ctx context.Context, w way, spec tcpbench.Spec, count func(tcpbench.Result)) (float64, error) {
	spec.Kind, spec.Size, spec.Streams, spec.CPUs = tcpbench.PingPong, pingPongSize, 1, tcpbench.Apart()
	r, err := w.measureWay(ctx, spec, count)
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
	Exn     sample  `json:"exn"`              // TCP over exn0
	Veth    sample  `json:"veth"`             // TCP over the kernel's veth, the control
	Direct  sample  `json:"direct,omitzero"`  // direct sockets between the same two nodes; left out: not measured
	Ratio   float64 `json:"ratio"`            // exn's median over veth's
	SpeedUp float64 `json:"speedup,omitzero"` // how many times as fast as veth direct is

	label string
}

// String is one line for people.
func (f figure) String() string {
	text := fmt.Sprintf("%s %s over veth, %s over exn0", display.Figure(f.Veth.Median), f.Unit, display.Figure(f.Exn.Median))
	if f.Direct.Runs > 0 {
		text += fmt.Sprintf(", %s direct", display.Figure(f.Direct.Median))
	}
	return text
}

// sample summarizes the runs on one way.
type sample struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Runs   int     `json:"runs"`
}

func newSample(values []float64) sample {
	if len(values) == 0 {
		return sample{}
	}
	s := stats.Summarize(values)
	return sample{s.Median, s.Min, s.Max, s.N}
}

// ways are those of a measurement: the control first.
type ways struct {
	veth, exn way
	direct    *way // nil: there are no brokers
}

func (w ways) wayList() []way {
	list := []way{w.veth, w.exn}
	if w.direct != nil {
		list = append(list, *w.direct)
	}
	return list
}

// measureWays takes m on all ways in turn, so that other load on the machine affects them alike.
// Each run begins with another one. taken is called after each.
func (m measurement) measureWays(ctx context.Context, on ways, runs int, taken func()) (figure, error) {
	list := on.wayList()
	values := make([][]float64, 3)
	for run := range runs {
		for turn := range list {
			i := (run + turn) % len(list)
			v, err := m.take(ctx, list[i])
			if ctx.Err() != nil {
				return figure{}, context.Cause(ctx)
			}
			if err != nil {
				return figure{}, fmt.Errorf("over %s: %w", list[i].name, err)
			}
			values[i] = append(values[i], v)
			taken()
		}
	}
	fig := figure{
		Measure: m.name, Family: lab.V4.String(), Unit: m.unit, label: m.label,
		Veth: newSample(values[0]), Exn: newSample(values[1]), Direct: newSample(values[2]),
	}
	if fig.Veth.Median > 0 {
		fig.Ratio = fig.Exn.Median / fig.Veth.Median
	}
	if fig.Veth.Median > 0 && fig.Direct.Median > 0 {
		fig.SpeedUp = fig.Direct.Median / fig.Veth.Median
		if !m.faster {
			fig.SpeedUp = 1 / fig.SpeedUp
		}
	}
	return fig, nil
}
