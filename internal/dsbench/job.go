package dsbench

import (
	"fmt"
	"net/netip"
	"time"

	"exnet/internal/stats"
)

// role is what a worker does.
type role string

const (
	roleReceive role = "receive" // listens, counts a stream
	roleSend    role = "send"    // connects, sends a stream
	roleEcho    role = "echo"    // listens, returns every message
	rolePing    role = "ping"    // connects, times round trips
)

// job is the one line that a worker is given.
type job struct {
	Role       role           `json:"role"`
	Address    netip.AddrPort `json:"address"` // to listen on, port 0; or to connect to
	Size       int            `json:"size"`
	Streams    int            `json:"streams"`
	Duration   time.Duration  `json:"duration_ns"`
	Warmup     time.Duration  `json:"warmup_ns"`
	Congestion string         `json:"congestion"`
	CPU        int            `json:"cpu"` // anyCPU: not bound
}

func (j job) check() error {
	if j.Size < 1 || j.Streams < 1 || j.Duration <= 0 || j.Warmup < 0 || !j.Address.IsValid() {
		return fmt.Errorf("bad job %+v", j)
	}
	return nil
}

// reply is a line from a worker. Exactly one field is set. A listening worker
// says so before its result.
type reply struct {
	Listening *netip.AddrPort `json:"listening,omitempty"`
	Result    *jobResult      `json:"result,omitempty"`
	Error     string          `json:"error,omitempty"`
}

// jobResult is what one end found.
type jobResult struct {
	Bytes      int64            `json:"bytes"` // received, or by a sender sent
	Seconds    float64          `json:"seconds"`
	CPUSeconds float64          `json:"cpu_seconds"` // user and system, of this process
	RoundTrips *stats.Histogram `json:"round_trips,omitempty"`
}

// cpu returns the CPU seconds per second.
func (r jobResult) cpu() float64 {
	if r.Seconds <= 0 {
		return 0
	}
	return r.CPUSeconds / r.Seconds
}
