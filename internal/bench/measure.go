package bench

import (
	"exnet/internal/bench/stats"
	"exnet/internal/bench/tcpbench"
)

// measure is something that can be measured on every path, or on most.
type measure struct {
	name  string
	unit  string
	about string // for the help text
	title string // for the table
	kind  tcpbench.Kind

	size    string // default of --size
	cpus    string // default of --cpus
	lower   bool   // less is better
	latency bool   // it times every operation
	half    bool   // and shows half of that
	streams bool   // several at once

	value func(r tcpbench.Result, size int) float64
}

// measures lists what can be measured, in the order of the help text.
func measures() []measure {
	return []measure{
		{
			name: "stream", unit: "Gbit/s", about: "bandwidth of one or more connections",
			title: "TCP stream over",
			kind:  tcpbench.Stream, size: "131072", cpus: "any", streams: true,
			value: func(r tcpbench.Result, _ int) float64 { return r.BytesPerSecond() * 8 / 1e9 },
		},
		{
			name: "pingpong", unit: "us", about: "latency: half a round trip",
			title: "TCP ping-pong over",
			kind:  tcpbench.PingPong, size: "64", cpus: "apart", lower: true, latency: true, half: true,
			value: func(r tcpbench.Result, _ int) float64 { return microseconds(r.Latency, 0.5) / 2 },
		},
		{
			name: "crr", unit: "conn/s", about: "connect, request, response, close",
			title: "Connect, request, response, close over",
			kind:  tcpbench.CRR, size: "64", cpus: "apart", latency: true, streams: true,
			value: func(r tcpbench.Result, _ int) float64 { return float64(r.Latency.Count()) / r.Elapsed.Seconds() },
		},
		{
			name: "rate", unit: "Mmsg/s", about: "small messages one way, each leaving at once",
			title: "Messages one way over",
			kind:  tcpbench.Rate, size: "64", cpus: "any", streams: true,
			value: func(r tcpbench.Result, size int) float64 { return r.BytesPerSecond() / float64(size) / 1e6 },
		},
		{
			name: "cpu", unit: "s/GB", about: "CPU time of all processes of the path for a gigabyte",
			title: "CPU time of a TCP stream over",
			kind:  tcpbench.Stream, size: "131072", cpus: "any", lower: true, streams: true,
			value: func(r tcpbench.Result, _ int) float64 { return r.CPUPerGB() },
		},
	}
}

// measureOf finds a measure by its name.
func measureOf(name string) (measure, bool) {
	for _, m := range measures() {
		if m.name == name {
			return m, true
		}
	}
	return measure{}, false
}

// sample is what one run found.
type sample struct {
	value float64 // in the measure's unit
	tcpbench.Result
}

func (m measure) sample(r tcpbench.Result, size int) sample { return sample{m.value(r, size), r} }

// oneWay says that a bandwidth is measured, and CPU time for a gigabyte.
func (m measure) oneWay() bool { return !m.latency }

// microseconds returns a quantile.
func microseconds(h *stats.Histogram, quantile float64) float64 {
	return float64(h.Quantile(quantile).Nanoseconds()) / 1e3
}
