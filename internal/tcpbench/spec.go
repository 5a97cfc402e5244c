package tcpbench

import (
	"context"
	"fmt"
	"time"

	"exnet/internal/stats"
)

// Kind is what is measured.
type Kind string

const (
	Stream   Kind = "stream"   // bandwidth of one or more connections
	PingPong Kind = "pingpong" // round trips on one connection
	Rate     Kind = "rate"     // small messages one way, each leaving at once
	CRR      Kind = "crr"      // connect, request, response, close
)

// Spec is what a measurement needs to know.
type Spec struct {
	Kind       Kind          `json:"kind"`
	Size       int           `json:"size"`    // bytes of a message: one write; of request and response
	Streams    int           `json:"streams"` // connections at once; of a CRR: clients
	NoDelay    bool          `json:"no_delay,omitempty"`
	Rest       time.Duration `json:"rest_ns,omitempty"` // of PingPong: before each message
	Duration   time.Duration `json:"duration_ns"`       // measured time
	Warmup     time.Duration `json:"warmup_ns"`         // time before that
	Congestion string        `json:"congestion"`        // TCP congestion control of all sockets
	Buffers    int           `json:"buffers,omitempty"` // bytes of all sockets' buffers; 0: the kernel's choice
	Transport  Transport     `json:"transport,omitempty"`
	Broker     string        `json:"broker,omitempty"` // socket of the broker of direct sockets; "": that of the namespace
	Plain      bool          `json:"plain,omitempty"`  // TCP instead of direct sockets, for a test
	CPUs       Placement     `json:"cpus"`             // Anywhere(), unless it matters
}

// check reports what cannot be measured.
func (s Spec) check() error {
	switch s.Kind {
	case Stream, PingPong, Rate, CRR:
	default:
		return fmt.Errorf("bad job: unknown kind %q", s.Kind)
	}
	if s.Size < 1 || s.Streams < 1 || s.Duration <= 0 || s.Warmup < 0 || s.Rest < 0 || s.Kind == PingPong && s.Streams != 1 {
		return fmt.Errorf("bad job %+v", s)
	}
	return nil
}

// oneWay says that the messages are not answered.
func (s Spec) oneWay() bool { return s.Kind == Stream || s.Kind == Rate }

// Nagle says that Nagle's algorithm is on.
func (s Spec) Nagle() bool { return s.Kind == Stream && !s.NoDelay }

// timeout bounds a measurement: whatever hangs is not worth waiting for, but a busy machine is.
func (s Spec) timeout() time.Duration { return s.Warmup + s.Duration + 2*s.Rest + time.Minute }

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

// Result is what a measurement found.
type Result struct {
	Bytes   int64            // that the receiver got, or that were sent and came back
	Elapsed time.Duration    // while it counted
	CPU     float64          // CPU seconds per second, of all processes of the path
	Latency *stats.Histogram // of round trips or transactions; nil of what goes one way

	// Shadow is how many of the bytes went over TCP although direct sockets were
	// measured.
	Shadow int64

	// Before is how many bytes went over TCP before it counted, until the connections were direct.
	Before int64

	// Kernel is how many bytes TCP carried while direct sockets were measured, in both directions,
	// by the kernel's own count: each once, however often it was sent.
	Kernel int64
}

// BytesPerSecond returns the bandwidth.
func (r Result) BytesPerSecond() float64 { return float64(r.Bytes) / r.Elapsed.Seconds() }

// CPUPerGB returns the CPU seconds for 10^9 bytes; 0 if none came.
func (r Result) CPUPerGB() float64 {
	if r.Bytes <= 0 {
		return 0
	}
	return r.CPU * 1e9 / r.BytesPerSecond()
}

// maxShadow bounds the bytes that may go over TCP while direct sockets are
// measured: one of so many.
const maxShadow = 100

// missed says what happened to the others.
var missed = map[Transport]string{Direct: "went over TCP", ZeroCopy: "went over TCP, or were copied"}

// checkResult checks what the counting end found; cpu is that of all ends.
func (s Spec) checkResult(r jobResult, cpu float64) (Result, error) {
	elapsed := time.Duration(r.Seconds * float64(time.Second))
	if r.Bytes <= 0 || elapsed <= 0 {
		return Result{}, fmt.Errorf("nothing arrived in time: give --duration more")
	}
	if !s.oneWay() && (r.Latency == nil || r.Latency.Count() == 0) {
		return Result{}, fmt.Errorf("no %s ended in time: give --duration more", s.latencyUnit())
	}
	bound := r.Bytes / maxShadow
	if s.Transport == ZeroCopy {
		bound += 2 * int64(s.Size) // announced before the first look, taken after; and at the last
	}
	if r.Shadow > bound {
		return Result{}, fmt.Errorf("the direct path was not used: %d of %d bytes %s (%s)", r.Shadow, r.Bytes, missed[s.Transport], r.Why)
	}
	return Result{Bytes: r.Bytes, Elapsed: elapsed, CPU: cpu, Latency: r.Latency, Shadow: r.Shadow, Before: r.Before, Kernel: r.Kernel}, nil
}

// latencyUnit returns what a latency is of.
func (s Spec) latencyUnit() string {
	if s.Kind == CRR {
		return "transaction"
	}
	return "round trip"
}
