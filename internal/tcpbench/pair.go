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

// Stream measures bandwidth.
func (p *Pair) Stream(ctx context.Context, spec StreamSpec) (StreamResult, error) {
	client, server := spec.job(), spec.job()
	client.Role, server.Role = roleSend, roleReceive
	server.AlsoCPU = p.carriers
	sent, got, err := p.run(ctx, spec.Spec, client, server)
	if err != nil {
		return StreamResult{}, err
	}
	return streamResult(got, sent.cpu()+got.cpu())
}

// PingPong measures latency.
func (p *Pair) PingPong(ctx context.Context, spec PingPongSpec) (PingPongResult, error) {
	client, server := spec.job(), spec.job()
	client.Role, server.Role = rolePing, roleEcho
	client.AlsoCPU = p.carriers
	pinged, echoed, err := p.run(ctx, spec.Spec, client, server)
	if err != nil {
		return PingPongResult{}, err
	}
	return pingPongResult(pinged, pinged.cpu()+echoed.cpu())
}

// run gives a worker at either end its job and waits for what both found.
func (p *Pair) run(ctx context.Context, spec Spec, client, server job) (clientResult, serverResult jobResult, err error) {
	err = spec.Bound(ctx, func(ctx context.Context) error {
		server.Address, server.CPU = netip.AddrPortFrom(p.server.Addr, 0), spec.CPUs.Server
		srv, err := worker.Start(ctx, p.server.NS, WorkerCommand, server)
		if err != nil {
			return err
		}
		defer srv.Stop()
		if err := srv.Note(&client.Address); err != nil {
			return err
		}
		client.CPU = spec.CPUs.Client
		cli, err := worker.Start(ctx, p.client.NS, WorkerCommand, client)
		if err != nil {
			return err
		}
		defer cli.Stop()
		// The first to fail knows why; the other only that its peer is gone.
		done := make(chan error, 2)
		go func() { done <- srv.Result(&serverResult) }()
		go func() { done <- cli.Result(&clientResult) }()
		if err := <-done; err != nil {
			srv.Kill()
			cli.Kill()
			<-done
			return err
		}
		return <-done
	})
	return clientResult, serverResult, err
}
