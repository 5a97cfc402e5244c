package tcpbench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exnet/internal/stats"
)

// Spec is what every measurement needs to know.
type Spec struct {
	Size       int           // bytes of a message: one write
	Duration   time.Duration // measured time
	Warmup     time.Duration // time before that
	Congestion string        // TCP congestion control of all sockets
	CPUs       Placement     // Anywhere(), unless it matters
}

// timeout bounds a measurement: whatever hangs is not worth waiting for.
func (s Spec) timeout() time.Duration { return s.Warmup + s.Duration + 10*time.Second }

// Bound runs f with a limit of time. If that or ctx ends f, the error says so
// and not how f's workers died of it.
func (s Spec) Bound(ctx context.Context, f func(context.Context) error) error {
	late := fmt.Errorf("no result within %v: the path does not pass data", s.timeout())
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout(), late)
	defer cancel()
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// job returns the part of a job that does not depend on the end.
func (s Spec) job() job {
	return job{
		Size: s.Size, Streams: 1, Duration: s.Duration, Warmup: s.Warmup,
		Congestion: s.Congestion, CPU: AnyCPU,
	}
}

// StreamSpec describes a measurement of bandwidth.
type StreamSpec struct {
	Spec
	Streams int // connections at once
}

func (s StreamSpec) job() job {
	j := s.Spec.job()
	j.Streams = s.Streams
	return j
}

// StreamResult is what a measurement of bandwidth found.
type StreamResult struct {
	Bytes   int64         // that the receiver got
	Elapsed time.Duration // while it counted
	CPU     float64       // CPU seconds per second, of all processes of the path
}

// BytesPerSecond returns the bandwidth.
func (r StreamResult) BytesPerSecond() float64 { return float64(r.Bytes) / r.Elapsed.Seconds() }

// streamResult checks what the receiver found.
func streamResult(r jobResult, cpu float64) (StreamResult, error) {
	elapsed := time.Duration(r.Seconds * float64(time.Second))
	if r.Bytes <= 0 || elapsed <= 0 {
		return StreamResult{}, errors.New("nothing arrived in time: give --duration more")
	}
	return StreamResult{Bytes: r.Bytes, Elapsed: elapsed, CPU: cpu}, nil
}

// PingPongSpec describes a measurement of latency on one connection.
type PingPongSpec struct {
	Spec
}

// PingPongResult is what a measurement of latency found.
type PingPongResult struct {
	RoundTrips *stats.Histogram // at least one
	CPU        float64          // CPU seconds per second, of all processes of the path
}

// pingPongResult checks what the end that timed the round trips found.
func pingPongResult(r jobResult, cpu float64) (PingPongResult, error) {
	if r.RoundTrips == nil || r.RoundTrips.Count() == 0 {
		return PingPongResult{}, errors.New("no round trip ended in time: give --duration more")
	}
	return PingPongResult{RoundTrips: r.RoundTrips, CPU: cpu}, nil
}
