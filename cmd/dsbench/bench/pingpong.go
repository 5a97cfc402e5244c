package bench

import "exnet/internal/tcpbench"

var pingpong = pathMeasure{
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
	explain: "us is half a round trip in microseconds, the median of the runs' medians, and ratio is that over %s's: " +
		"below 1 is faster; p90 to max are over all round trips of all runs.",
	kind: tcpbench.PingPong, size: "64", cpus: "apart", lower: true, latency: true, half: true,
	value: func(r tcpbench.Result, _ int) float64 { return microseconds(r.Latency, 0.5) / 2 },
}
