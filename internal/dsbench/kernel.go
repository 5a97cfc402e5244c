package dsbench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"exnet/internal/netns"
)

// end is one end of a path through the kernel's TCP.
type end struct {
	ns   *netns.NS // nil: the current namespace
	addr netip.Addr
}

// kernelTCP measures between two ends with a worker process in each. It is the
// same for every path that programs reach through the kernel's sockets.
type kernelTCP struct {
	client, server end
}

// Stream implements Path.
func (k *kernelTCP) Stream(ctx context.Context, spec StreamSpec) (StreamResult, error) {
	client, server, err := k.run(ctx, spec.Spec, spec.Streams, roleSend, roleReceive)
	if err != nil {
		return StreamResult{}, err
	}
	return StreamResult{Bytes: server.Bytes, Elapsed: seconds(server.Seconds), CPU: client.cpu() + server.cpu()}, nil
}

// PingPong implements Path.
func (k *kernelTCP) PingPong(ctx context.Context, spec PingPongSpec) (PingPongResult, error) {
	client, server, err := k.run(ctx, spec.Spec, 1, rolePing, roleEcho)
	if err != nil {
		return PingPongResult{}, err
	}
	if client.RoundTrips == nil || client.RoundTrips.Count() == 0 {
		return PingPongResult{}, errors.New("no round trip ended in time: give --duration more")
	}
	return PingPongResult{RoundTrips: client.RoundTrips, CPU: client.cpu() + server.cpu()}, nil
}

// run starts a worker at either end and waits for what both found.
func (k *kernelTCP) run(ctx context.Context, spec Spec, streams int, clientRole, serverRole role) (client, server jobResult, err error) {
	late := fmt.Errorf("no result within %v: the path does not pass data", spec.timeout())
	ctx, cancel := context.WithTimeoutCause(ctx, spec.timeout(), late)
	defer cancel()
	// That a worker was killed is no news; why is.
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	work, kill := context.WithCancel(ctx)
	defer kill()

	j := job{
		Size: spec.Size, Streams: streams,
		Duration: spec.Duration, Warmup: spec.Warmup,
		Congestion: spec.Congestion,
	}
	j.Role, j.Address, j.CPU = serverRole, netip.AddrPortFrom(k.server.addr, 0), spec.CPUs.Server
	srv, err := startWorker(work, k.server.ns, j)
	if err != nil {
		return client, server, err
	}
	defer srv.stop()
	addr, err := srv.listening()
	if err != nil {
		return client, server, err
	}
	j.Role, j.Address, j.CPU = clientRole, addr, spec.CPUs.Client
	cli, err := startWorker(work, k.client.ns, j)
	if err != nil {
		return client, server, err
	}
	defer cli.stop()

	// The first to fail knows why; the other only that its peer is gone.
	failed := make(chan error, 2)
	go func() {
		var err error
		server, err = srv.result()
		failed <- err
	}()
	go func() {
		var err error
		client, err = cli.result()
		failed <- err
	}()
	if err = <-failed; err != nil {
		kill()
		<-failed
		return client, server, err
	}
	return client, server, <-failed
}
