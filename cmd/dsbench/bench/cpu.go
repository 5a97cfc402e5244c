package bench

import "exnet/internal/tcpbench"

var cpu = pathMeasure{
	name: "cpu", unit: "s/GB", about: "CPU time of all processes of the path for a gigabyte",
	long: `Measures the price: CPU time, user and system, of all processes of the path,
in seconds for a gigabyte.`,
	examples: `dsbench cpu
    all paths, 128 KiB messages
dsbench cpu --paths veth,exn:interrupt,exn:napi,exn:adaptive --size 64,1k,8k,64k --no-delay
    the receive modes over message size; every message is a frame
dsbench cpu --paths exn-shm --mode napi --coalesce-frames 16 --coalesce-usecs 50
    interrupts held back until 16 frames came, or 50 microseconds went by`,
	title: "CPU time of a TCP stream over",
	explain: "s/GB is the CPU time of all processes of the path for a gigabyte, user and system, the median of the runs, and ratio " +
		"is that over %s's: below 1 is cheaper; CPUs is how many were busy.",
	kind: tcpbench.Stream, size: "131072", cpus: "any", lower: true, streams: true,
	value: func(r tcpbench.Result, _ int) float64 { return r.CPUPerGB() },
}
