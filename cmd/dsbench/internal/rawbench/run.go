package rawbench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"exnet/fabric/link/mem"
	"exnet/internal/tcpbench"
	"exnet/internal/worker"
)

// Command is the hidden command of the program that measures: its main calls Work
// when it is the only argument.
const Command = "raw-worker"

// Job is what a worker is given: both ends of a measurement over the mem link, or
// one over the shm link.
type Job struct {
	Unit    Unit          `json:"unit"`
	Spec    tcpbench.Spec `json:"spec"`
	Shm     bool          `json:"shm,omitempty"`
	Listens bool          `json:"listens,omitempty"` // over shm: the far end, which notes its socket
	Socket  string        `json:"socket,omitempty"`  // over shm: where the near end finds it
}

// Measure measures with workers of its own: one that holds both nodes, or with
// shm one for each.
func Measure(ctx context.Context, u Unit, shm bool, spec tcpbench.Spec) (r tcpbench.Result, err error) {
	err = spec.Bound(ctx, func(ctx context.Context) error {
		job := Job{Unit: u, Spec: spec, Shm: shm, Listens: shm}
		far, err := worker.Start(ctx, nil, Command, job)
		if err != nil {
			return err
		}
		defer far.Stop()
		if !shm {
			return far.Result(&r)
		}
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
		r, err = result(spec, nearFound, farFound, load(nearFound)+load(farFound))
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

// result takes the figures of the end that counted.
func result(spec tcpbench.Spec, near, far found, cpu float64) (tcpbench.Result, error) {
	f := near
	if far.Bytes > 0 {
		f = far
	}
	return spec.Result(f.Bytes, f.Seconds, cpu, f.Latency)
}

// Work does a worker's job.
func Work(ctx context.Context, j Job, note func(any) error) (any, error) {
	switch {
	case !j.Shm && j.Unit == Ring:
		return nil, errors.New("a ring is between two processes")
	case !j.Shm:
		return bothEnds(j)
	case j.Listens:
		return farEnd(j, note)
	}
	return nearEnd(j)
}

// bothEnds measures over the mem link.
func bothEnds(j Job) (r tcpbench.Result, err error) {
	net := mem.NewFabric()
	failed := make(chan struct{})
	var once sync.Once
	var rigs [2]*rig
	for i := range rigs {
		if rigs[i], err = newRig(i, j.Spec.Size); err != nil {
			return r, err
		}
		if err := net.Attach(rigs[i].nic); err != nil {
			return r, err
		}
		rigs[i].down = failed
	}
	var near, far found
	var g errgroup.Group
	end := func(f *found, cpu int, part func(Unit, tcpbench.Spec) (found, error)) {
		g.Go(func() (err error) {
			if *f, err = onThread(cpu, func() (found, error) { return part(j.Unit, j.Spec) }); err != nil {
				once.Do(func() { close(failed) })
			}
			return err
		})
	}
	end(&near, j.Spec.CPUs.Client, rigs[0].near)
	end(&far, j.Spec.CPUs.Server, rigs[1].far)
	if err := g.Wait(); err != nil {
		return r, err
	}
	// The CPU time of one end's result is that of both.
	cpu := load(near)
	if far.Bytes > 0 {
		cpu = load(far)
	}
	return result(j.Spec, near, far, cpu)
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
