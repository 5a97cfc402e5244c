package bench

import (
	"context"

	"exnet/cmd/dsbench/internal/measure"
	"exnet/internal/stats"
	"exnet/internal/tcpbench"

	"github.com/spf13/pflag"
)

// pathMeasure is something that can be measured on every path, or on most.
type pathMeasure struct {
	name     string
	unit     string
	about    string // for the help text, as are the next two
	long     string
	examples string
	title    string // for the table
	explain  string // what its columns are, but for times
	kind     tcpbench.Kind

	size    string // default of --size
	cpus    string // default of --cpus
	latency bool   // it times every operation
	half    bool   // and shows half of that
	streams bool   // several at once

	value func(r tcpbench.Result, size int) float64
}

// pathMeasures lists them, in the order of the help text.
var pathMeasures = []pathMeasure{
	{
		name: "stream", unit: "Gbit/s", about: "bandwidth of one or more connections",
		long: "Measures bandwidth: how much the receiving program gets, in Gbit/s.",
		examples: `dsbench stream
    all paths, 128 KiB messages, 5 runs of 1 second each
dsbench stream --paths veth,exn --streams 2 --duration 2s
    two connections at once over exn0, compared with veth
dsbench stream --paths veth,exn --size 64,1k,16k,128k --runs 3 --json
    bandwidth over message size, as JSON
dsbench stream --paths exn --no-fast-path --mtu 9000
    every packet through netstack, at a smaller MTU; veth is added
dsbench stream --paths veth,exn:interrupt,exn:napi,exn:busy
    the receive modes side by side
dsbench stream --paths lo,ds --cpus same
    direct sockets with both ends on one CPU`,
		title: "TCP stream over",
		explain: "Gbit/s is what the receiving program got, the median of the runs; " +
			"CPU s/GB is the CPU time of all processes of the path for a gigabyte",
		kind: tcpbench.Stream, size: "131072", cpus: "any", streams: true,
		value: func(r tcpbench.Result, _ int) float64 { return r.BytesPerSecond() * 8 / 1e9 },
	},
	{
		name: "pingpong", unit: "us", about: "latency: half a round trip",
		long: "Measures latency: half the time of a round trip, in microseconds.",
		examples: `dsbench pingpong
    all paths, 64-byte messages, 5 runs of 1 second each
dsbench pingpong --paths veth,exn --size 1,64,512,2048 --runs 10
    latency over message size
dsbench pingpong --paths lo,veth,exn --cpus any --congestion bbr --json
    where the scheduler places the two ends, with BBR, as JSON
dsbench pingpong --paths veth,relay,exn,exn-shm,ds --rest 30ms
    a request now and then, all asleep when it comes: what ping(8) sees
dsbench pingpong --paths lo --cpus same
    both ends on one CPU`,
		title: "TCP ping-pong over",
		explain: "us is half a round trip in microseconds, the median of the runs' medians; " +
			"p90 to max are over all round trips of all runs",
		kind: tcpbench.PingPong, size: "64", cpus: "apart", latency: true, half: true,
		value: func(r tcpbench.Result, _ int) float64 { return microseconds(r.Latency, 0.5) / 2 },
	},
	{
		name: "crr", unit: "conn/s", about: "connect, request, response, close",
		long: `Measures connections: connect, request, response, close; how many a second,
and how long one takes. The server closes first, as one of HTTP/1.0 does.`,
		examples: `dsbench crr
    all paths that have connections, 64-byte requests and responses
dsbench crr --paths veth,exn --streams 4
    four clients at once`,
		title: "Connect, request, response, close over",
		explain: "conn/s is how many connections were made, used for one request and closed in a second, the median of the runs; " +
			"p50 to max are the microseconds of one, over all runs",
		kind: tcpbench.CRR, size: "64", cpus: "apart", latency: true, streams: true,
		value: func(r tcpbench.Result, _ int) float64 { return float64(r.Latency.Count()) / r.Elapsed.Seconds() },
	},
	{
		name: "rate", unit: "Mmsg/s", about: "small messages one way, each leaving at once",
		long: `Measures message rate: small messages one way, each leaving at once
(TCP_NODELAY), in millions a second.`,
		examples: `dsbench rate
    all paths, 64-byte messages
dsbench rate --paths lo,veth,exn --size 1,64,512,4k
    message rate over message size`,
		title: "Messages one way over",
		explain: "Mmsg/s is how many million messages the receiving program got in a second, the median of the runs; " +
			"CPU s/GB is the CPU time of all processes of the path for a gigabyte",
		kind: tcpbench.Rate, size: "64", cpus: "any", streams: true,
		value: func(r tcpbench.Result, size int) float64 { return r.BytesPerSecond() / float64(size) / 1e6 },
	},
	{
		name: "cpu", unit: "s/GB", about: "CPU time of all processes of the path for a gigabyte",
		long: `Measures the price: CPU time, user and system, of all processes of the path,
in seconds for a gigabyte.`,
		examples: `dsbench cpu
    all paths, 128 KiB messages
dsbench cpu --paths veth,exn:interrupt,exn:napi,exn:adaptive --size 64,1k,8k,64k --no-delay
    the receive modes over message size; every message is a frame`,
		title: "CPU time of a TCP stream over",
		explain: "s/GB is the CPU time of all processes of the path for a gigabyte, user and system, the median of the runs; " +
			"CPUs is how many were busy",
		kind: tcpbench.Stream, size: "131072", cpus: "any", streams: true,
		value: func(r tcpbench.Result, _ int) float64 { return r.CPUPerGB() },
	},
}

// measureOf finds a measure by its name.
func measureOf(name string) (pathMeasure, bool) {
	for _, m := range pathMeasures {
		if m.name == name {
			return m, true
		}
	}
	return pathMeasure{}, false
}

// asMeasure gives it the shape of all measures.
func (m pathMeasure) asMeasure() measure.Measure {
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
	r.o, err = r.f.readOptions()
	return err
}

func (r *pathRun) Take(ctx context.Context, env measure.Env) error {
	return measurePaths(ctx, r.o, env.Stdout, env.Stderr)
}

// sample is what one run found.
type sample struct {
	value float64 // in the measure's unit
	tcpbench.Result
}

func (m pathMeasure) makeSample(r tcpbench.Result, size int) sample {
	return sample{m.value(r, size), r}
}

// microseconds returns a quantile.
func microseconds(h *stats.Histogram, quantile float64) float64 {
	return float64(h.Quantile(quantile).Nanoseconds()) / 1e3
}
