package tcpbench

import (
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

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

// job is what a worker is given.
type job struct {
	Role       role           `json:"role"`
	Address    netip.AddrPort `json:"address"` // to listen on, port 0; or to connect to
	Size       int            `json:"size"`
	Streams    int            `json:"streams"`
	Duration   time.Duration  `json:"duration_ns"`
	Warmup     time.Duration  `json:"warmup_ns"`
	Congestion string         `json:"congestion"`
	CPU        int            `json:"cpu"`                // AnyCPU: not bound
	AlsoCPU    []int          `json:"also_cpu,omitempty"` // processes whose CPU time counts too

	inProcess bool // both ends are in this process; no worker's job
}

func (j job) check() error {
	if j.Size < 1 || j.Streams < 1 || j.Duration <= 0 || j.Warmup < 0 {
		return fmt.Errorf("bad job %+v", j)
	}
	return nil
}

// takeThread locks the goroutine to its thread, for good, and that to the job's
// CPU if it names one. Two ends in one process hand data to each other, which
// locked threads would only hinder.
func (j job) takeThread() error {
	if j.inProcess {
		return nil
	}
	runtime.LockOSThread()
	if j.CPU == AnyCPU {
		return nil
	}
	var set unix.CPUSet
	set.Set(j.CPU)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("binding to CPU %d: %w", j.CPU, err)
	}
	return nil
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
