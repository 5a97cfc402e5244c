package tcpbench

import (
	"fmt"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"

	"exnet/internal/stats"
)

// job is what a worker is given: one end of a measurement.
type job struct {
	Spec
	Listens bool           `json:"listens,omitempty"`  // else it connects
	Address netip.AddrPort `json:"address"`            // to listen on, port 0 being any; or to connect to
	CPU     int            `json:"cpu"`                // AnyCPU: not bound
	AlsoCPU []int          `json:"also_cpu,omitempty"` // processes whose CPU time counts too

	inProcess bool // both ends are in this process; no worker's job
}

// sends says that this end sends a stream, and the other one receives it.
func (j job) sends() bool { return j.Listens == j.Reverse }

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
	return BindThread(j.CPU)
}

// BindThread binds the calling thread, which the goroutine is locked to, to a CPU.
func BindThread(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("binding to CPU %d: %w", cpu, err)
	}
	return nil
}

// jobResult is what one end found.
type jobResult struct {
	Bytes      int64            `json:"bytes"` // received, or by a sender sent
	Seconds    float64          `json:"seconds"`
	CPUSeconds float64          `json:"cpu_seconds"` // user and system, of this process
	Latency    *stats.Histogram `json:"latency,omitempty"`
	Detail     string           `json:"detail,omitempty"` // why it must not count
}

// cpu returns the CPU seconds per second.
func (r jobResult) cpu() float64 {
	if r.Seconds <= 0 {
		return 0
	}
	return r.CPUSeconds / r.Seconds
}
