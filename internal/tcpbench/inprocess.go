package tcpbench

import (
	"io"
	"time"

	"golang.org/x/sync/errgroup"
)

// InProcess measures over connections whose two ends are both in this process:
// what Pair does where programs have no socket of the kernel. The congestion
// control and Nagle's algorithm are the connections' own, and the CPUs are the
// scheduler's choice. Dial and accept block; both are called from several
// goroutines for a CRR. Stop is
// called when the dialling end has failed, and ends accept.
func InProcess(spec Spec, dial, accept func() (io.ReadWriteCloser, error), stop func() error) (Result, error) {
	client := job{Spec: spec, CPU: AnyCPU, inProcess: true}
	server := client
	server.Listens = true
	if err := client.check(); err != nil {
		return Result{}, err
	}
	start := time.Now()
	var c, s jobResult
	var g errgroup.Group
	g.Go(func() (err error) {
		s, err = server.work(start, accept)
		return err
	})
	g.Go(func() (err error) {
		if c, err = client.work(start, dial); err != nil {
			_ = stop() // the error is why
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return Result{}, err
	}
	got := counter(spec, c, s)
	// The CPU time of one end's result is that of both.
	return spec.result(got, got.cpu())
}

// counter returns the result of the end that counts.
func counter(spec Spec, client, server jobResult) jobResult {
	if spec.oneWay() && !spec.Reverse {
		return server
	}
	return client
}
