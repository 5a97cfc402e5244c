package bench

import "exnet/internal/tcpbench"

var crr = pathMeasure{
	name: "crr", unit: "conn/s", about: "connect, request, response, close",
	long: `Measures connections: connect, request, response, close; how many a second,
and how long one takes. The server closes first, as one of HTTP/1.0 does.`,
	examples: `dsbench crr
    all paths that have connections, 64-byte requests and responses
dsbench crr --paths veth,exn --streams 4
    four clients at once`,
	title: "Connect, request, response, close over",
	explain: "conn/s is how many connections were made, used for one request and closed in a second, the median of the runs, " +
		"and ratio is that over %s's: above 1 is faster; p50 to max are the microseconds of one, over all runs.",
	kind: tcpbench.CRR, size: "64", cpus: "apart", latency: true, streams: true,
	value: func(r tcpbench.Result, _ int) float64 { return float64(r.Latency.Count()) / r.Elapsed.Seconds() },
}
