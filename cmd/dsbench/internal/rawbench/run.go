package rawbench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"

	"exnet/internal/tcpbench"
	"exnet/internal/worker"
)

// Command is the hidden command of the program that measures: its main calls Work
// when it is the only argument.
const Command = "raw-worker"

// Job is what a worker is given: one end of a measurement.
type Job struct {
	Unit    Unit          `json:"unit"`
	Spec    tcpbench.Spec `json:"spec"`
	Listens bool          `json:"listens,omitempty"` // the far end, which notes its socket
	Socket  string        `json:"socket,omitempty"`  // where the near end finds it
}

// Measure measures with a worker for each end.
func Measure(ctx context.Context, u Unit, spec tcpbench.Spec) (r tcpbench.Result, err error) {
	err = spec.Bound(ctx, func(ctx context.Context) error {
		job := Job{Unit: u, Spec: spec, Listens: true}
		far, err := worker.Start(ctx, nil, Command, job)
		if err != nil {
			return err
		}
		defer far.Stop()
		if err := far.Note(&job.Socket); err != nil {
			return err
		}
		job.Listens = false
		near, err := worker.Start(ctx, nil, Command, job)
		if err != nil {
			return err
		}
		defer near.Stop()
		var nearFound, farFound found
		if err := worker.Both(far, near, &farFound, &nearFound); err != nil {
			return err
		}
		counted := nearFound
		if farFound.Bytes > 0 {
			counted = farFound
		}
		r, err = spec.Result(counted.Bytes, counted.Seconds, load(nearFound)+load(farFound), counted.Latency)
		return err
	})
	return r, err
}

// load returns the CPU seconds per second.
func load(f found) float64 {
	if f.Seconds <= 0 {
		return 0
	}
	return f.CPU / f.Seconds
}

// Work does a worker's job.
func Work(_ context.Context, j Job, note func(any) error) (any, error) {
	if j.Listens {
		return farEnd(j, note)
	}
	return nearEnd(j)
}

// onThread runs f on a thread of its own, bound to cpu.
func onThread(cpu int, f func() (found, error)) (r found, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good
		if cpu != tcpbench.AnyCPU {
			if err = tcpbench.BindThread(cpu); err != nil {
				return
			}
		}
		r, err = f()
	}()
	<-done
	return r, err
}

// farEnd is the end that waits for the other process.
func farEnd(j Job, note func(any) error) (found, error) {
	// An abstract address goes with the process; the kernel chooses one.
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket"})
	if err != nil {
		return found{}, fmt.Errorf("listening for the other node: %w", err)
	}
	defer l.Close()
	if err := note(l.Addr().String()); err != nil {
		return found{}, err
	}
	c, err := l.AcceptUnix()
	if err != nil {
		return found{}, fmt.Errorf("waiting for the other node: %w", err)
	}
	return oneEnd(j, 1, c)
}

// nearEnd is the end that finds the other process.
func nearEnd(j Job) (found, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: j.Socket})
	if err != nil {
		return found{}, fmt.Errorf("finding the other node: %w", err)
	}
	return oneEnd(j, 0, c)
}

func oneEnd(j Job, n int, c *net.UnixConn) (f found, err error) {
	if j.Unit == Ring {
		return ringEnd(j, c)
	}
	r, err := newRig(n, j.Spec.Size)
	if err != nil {
		return f, errors.Join(err, c.Close())
	}
	if err := r.connect(c); err != nil {
		return f, err
	}
	cpu, part := j.Spec.CPUs.Server, r.far
	if n == 0 {
		cpu, part = j.Spec.CPUs.Client, r.near
	}
	return onThread(cpu, func() (found, error) { return part(j.Unit, j.Spec) })
}
