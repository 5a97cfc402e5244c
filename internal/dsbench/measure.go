package dsbench

import (
	"context"

	"exnet/internal/stats"
	"exnet/internal/tcpbench"
)

// measure is something that can be measured on every path.
type measure struct {
	name string
	unit string
	take func(ctx context.Context, p Path, o options, size int) (sample, error)
}

// sample is what one run found.
type sample struct {
	value      float64 // in the measure's unit
	cpuLoad    float64 // CPU seconds per second
	cpuPerGB   float64 // CPU seconds per 10^9 bytes; 0 if the measure is of latency
	roundTrips *stats.Histogram
}

// measureOf finds a measure by its name.
func measureOf(name string) (measure, bool) {
	switch name {
	case "stream":
		return measure{name: name, unit: "Gbit/s", take: takeStream}, true
	case "pingpong":
		return measure{name: name, unit: "us", take: takePingPong}, true
	}
	return measure{}, false
}

func takeStream(ctx context.Context, p Path, o options, size int) (sample, error) {
	r, err := p.Stream(ctx, tcpbench.StreamSpec{Spec: o.spec(size), Streams: o.streams})
	if err != nil {
		return sample{}, err
	}
	perSecond := r.BytesPerSecond()
	return sample{value: perSecond * 8 / 1e9, cpuLoad: r.CPU, cpuPerGB: r.CPU * 1e9 / perSecond}, nil
}

func takePingPong(ctx context.Context, p Path, o options, size int) (sample, error) {
	r, err := p.PingPong(ctx, tcpbench.PingPongSpec{Spec: o.spec(size)})
	if err != nil {
		return sample{}, err
	}
	return sample{value: halfRoundTrip(r.RoundTrips, 0.5), cpuLoad: r.CPU, roundTrips: r.RoundTrips}, nil
}

// halfRoundTrip returns half the round trip at the quantile, in microseconds.
func halfRoundTrip(h *stats.Histogram, quantile float64) float64 {
	return float64(h.Quantile(quantile).Nanoseconds()) / 2 / 1e3
}
