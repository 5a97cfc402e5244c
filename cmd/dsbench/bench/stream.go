package bench

import "exnet/internal/tcpbench"

var stream = pathMeasure{
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
dsbench stream --paths lo,ds --cpus same --chunk 32k
    direct sockets with both ends on one CPU
dsbench stream --connect 10.2.0.9
    to another host, where dsbench serve runs`,
	title: "TCP stream over",
	explain: "Gbit/s is what the receiving program got, the median of the runs, and ratio is that over %s's: " +
		"above 1 is faster; CPU s/GB is the CPU time of all processes of the path for a gigabyte.",
	kind: tcpbench.Stream, size: "131072", cpus: "any", streams: true,
	value: func(r tcpbench.Result, _ int) float64 { return r.BytesPerSecond() * 8 / 1e9 },
}
