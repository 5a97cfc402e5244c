package dsbench

import (
	"time"

	"exnet/internal/stats"
)

// anyCPU leaves the choice of a CPU to the scheduler.
const anyCPU = -1

// Placement says on which CPUs the two ends run.
type Placement struct {
	Client int // sender; anyCPU: the scheduler's choice
	Server int // receiver
}

// Spec is what every measurement needs to know.
type Spec struct {
	Size       int           // bytes of a message: one write
	Duration   time.Duration // measured time
	Warmup     time.Duration // time before that
	Congestion string        // TCP congestion control of all sockets
	CPUs       Placement
}

// timeout bounds a measurement: whatever hangs is not worth waiting for.
func (s Spec) timeout() time.Duration { return s.Warmup + s.Duration + 10*time.Second }

// StreamSpec describes a measurement of bandwidth.
type StreamSpec struct {
	Spec
	Streams int // connections at once
}

// StreamResult is what a measurement of bandwidth found.
type StreamResult struct {
	Bytes   int64         // that the receiver got
	Elapsed time.Duration // while it counted
	CPU     float64       // CPU seconds per second, of all processes of the path
}

// PingPongSpec describes a measurement of latency on one connection.
type PingPongSpec struct {
	Spec
}

// PingPongResult is what a measurement of latency found.
type PingPongResult struct {
	RoundTrips *stats.Histogram
	CPU        float64 // CPU seconds per second, of all processes of the path
}
