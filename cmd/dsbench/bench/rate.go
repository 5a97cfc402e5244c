package bench

import "exnet/internal/tcpbench"

var rate = pathMeasure{
	name: "rate", unit: "Mmsg/s", about: "small messages one way, each leaving at once",
	long: `Measures message rate: small messages one way, each leaving at once
(TCP_NODELAY), in millions a second.`,
	examples: `dsbench rate
    all paths, 64-byte messages
dsbench rate --paths lo,veth,exn --size 1,64,512,4k --direction in
    message rate over message size; the end that listens sends`,
	title: "Messages one way over",
	explain: "Mmsg/s is how many million messages the receiving program got in a second, the median of the runs, and ratio is " +
		"that over %s's: above 1 is faster; CPU s/GB is the CPU time of all processes of the path for a gigabyte.",
	kind: tcpbench.Rate, size: "64", cpus: "any", streams: true,
	value: func(r tcpbench.Result, size int) float64 { return r.BytesPerSecond() / float64(size) / 1e6 },
}
