package tcpbench

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
	"exnet/internal/stats"
)

// job is what a worker is given: one end of a measurement.
type job struct {
	Spec
	Listens bool           `json:"listens,omitempty"`  // else it connects
	Address netip.AddrPort `json:"address"`            // to listen on, port 0 being any; or to connect to
	CPU     int            `json:"cpu"`                // AnyCPU: not bound
	AlsoCPU []int          `json:"also_cpu,omitempty"` // processes whose CPU time counts too

	shared *shared
}

// shared is what the connections of a worker have in common, as they are made one
// after the other.
type shared struct {
	mu     sync.Mutex // clients of a CRR come at once
	dialer *directsockets.Dialer
}

// isSending says that this end sends a stream, and the other one receives it.
func (j job) isSending() bool { return !j.Listens }

// bindProcess binds the whole worker to the job's CPU, as taskset(1) does, if its
// connections sleep in the Go runtime's poller: a goroutine that is locked to a
// thread would be handed over to it by another one each time that it wakes.
func (j job) bindProcess() error {
	if j.Transport.isBlocking() || j.CPU == AnyCPU {
		return nil
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err == nil {
			err = bindThread(tid, j.CPU)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	runtime.GOMAXPROCS(1) // as in a process that was started so
	return nil
}

// takeThread locks the goroutine to its thread, for good, and that to the job's
// CPU if it names one.
func (j job) takeThread() error {
	if !j.Transport.isBlocking() {
		return nil
	}
	runtime.LockOSThread()
	if j.CPU == AnyCPU {
		return nil
	}
	return BindThread(j.CPU)
}

// BindThread binds the calling thread, which the goroutine is locked to, to a CPU.
func BindThread(cpu int) error { return bindThread(0, cpu) }

func bindThread(tid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
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
	Shadow     int64            `json:"shadow,omitempty"` // of direct sockets: bytes that went over TCP
	Before     int64            `json:"before,omitempty"` // and those that did before it counted
	Kernel     int64            `json:"kernel,omitempty"` // bytes that TCP carried meanwhile, as the kernel counts them
	Why        string           `json:"why,omitempty"`    // and why
}

// cpuShare returns the CPU seconds per second.
func (r jobResult) cpuShare() float64 {
	if r.Seconds <= 0 {
		return 0
	}
	return r.CPUSeconds / r.Seconds
}
