package tcpbench

import (
	"context"
	"net/netip"

	"exnet/internal/netns"
	"exnet/internal/worker"
)

// End is one end of a path through the kernel's TCP.
type End struct {
	NS   *netns.NS // nil: the current namespace
	Addr netip.Addr
}

// Pair measures between two ends with a worker process in each. It is the same
// for every path that programs reach through the kernel's sockets.
//
// Concurrency: one measurement at a time, for its own sake.
type Pair struct {
	client, server End
	carriers       []int
}

// Between returns the pair of two ends. Carriers are the IDs of the processes
// that carry the packets between them, if the kernel does not do that alone;
// their CPU time counts too.
func Between(client, server End, carriers ...int) *Pair {
	return &Pair{client: client, server: server, carriers: carriers}
}

// Ends are the two ends.
func (p *Pair) Ends() (client, server End) { return p.client, p.server }

// Measure measures what spec says.
func (p *Pair) Measure(ctx context.Context, spec Spec) (Result, error) {
	client := job{Spec: spec, CPU: spec.CPUs.Client}
	server := job{
		Spec: spec, CPU: spec.CPUs.Server,
		Listens: true, Address: netip.AddrPortFrom(p.server.Addr, 0),
	}
	if spec.oneWay() {
		server.AlsoCPU = p.carriers
	} else {
		client.AlsoCPU = p.carriers
	}
	c, s, err := p.runJobs(ctx, client, server)
	if err != nil {
		return Result{}, err
	}
	return spec.checkResult(countingResult(spec, c, s), c.cpuShare()+s.cpuShare())
}

// runJobs gives each end's worker its job, and returns the results of both.
func (p *Pair) runJobs(ctx context.Context, client, server job) (clientResult, serverResult jobResult, err error) {
	err = client.Bound(ctx, func(ctx context.Context) error {
		srv, err := worker.Start(ctx, p.server.NS, WorkerCommand, server)
		if err != nil {
			return err
		}
		defer srv.Stop()
		if err := srv.Note(&client.Address); err != nil {
			return err
		}
		cli, err := worker.Start(ctx, p.client.NS, WorkerCommand, client)
		if err != nil {
			return err
		}
		defer cli.Stop()
		return worker.Both(srv, cli, &serverResult, &clientResult)
	})
	return clientResult, serverResult, err
}

// countingResult returns the result of the end that counts.
func countingResult(spec Spec, client, server jobResult) jobResult {
	if spec.oneWay() {
		return server
	}
	return client
}
