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
	node           int // process ID of what carries the packets; 0: the kernel does
}

// Stream implements Path.
func (k *kernelTCP) Stream(ctx context.Context, spec StreamSpec) (StreamResult, error) {
	client, server := spec.job(), spec.job()
	client.Role, server.Role = roleSend, roleReceive
	client.Streams, server.Streams = spec.Streams, spec.Streams
	server.AlsoCPU = k.alsoCPU()
	sent, got, err := k.run(ctx, spec.Spec, client, server)
	if err != nil {
		return StreamResult{}, err
	}
	return StreamResult{Bytes: got.Bytes, Elapsed: seconds(got.Seconds), CPU: sent.cpu() + got.cpu()}, nil
}

// PingPong implements Path.
func (k *kernelTCP) PingPong(ctx context.Context, spec PingPongSpec) (PingPongResult, error) {
	client, server := spec.job(), spec.job()
	client.Role, server.Role = rolePing, roleEcho
	client.AlsoCPU = k.alsoCPU()
	pinged, echoed, err := k.run(ctx, spec.Spec, client, server)
	if err != nil {
		return PingPongResult{}, err
	}
	return pingPongResult(pinged, pinged.cpu()+echoed.cpu())
}

func (k *kernelTCP) alsoCPU() []int {
	if k.node == 0 {
		return nil
	}
	return []int{k.node}
}

// pingPongResult checks the result of the end that timed the round trips.
func pingPongResult(r jobResult, cpu float64) (PingPongResult, error) {
	if r.RoundTrips == nil || r.RoundTrips.Count() == 0 {
		return PingPongResult{}, errors.New("no round trip ended in time: give --duration more")
	}
	return PingPongResult{RoundTrips: r.RoundTrips, CPU: cpu}, nil
}

// run gives a worker at either end its job and waits for what both found.
func (k *kernelTCP) run(ctx context.Context, spec Spec, client, server job) (clientResult, serverResult jobResult, err error) {
	err = spec.bound(ctx, func(ctx context.Context) error {
		server.Address, server.CPU = netip.AddrPortFrom(k.server.addr, 0), spec.CPUs.Server
		srv, err := startWorker(ctx, k.server.ns, server)
		if err != nil {
			return err
		}
		defer srv.stop()
		if client.Address, err = srv.listening(); err != nil {
			return err
		}
		client.CPU = spec.CPUs.Client
		cli, err := startWorker(ctx, k.client.ns, client)
		if err != nil {
			return err
		}
		defer cli.stop()

		// The first to fail knows why; the other only that its peer is gone.
		done := make(chan error, 2)
		go func() {
			var err error
			serverResult, err = srv.result()
			done <- err
		}()
		go func() {
			var err error
			clientResult, err = cli.result()
			done <- err
		}()
		if err := <-done; err != nil {
			srv.kill()
			cli.kill()
			<-done
			return err
		}
		return <-done
	})
	return clientResult, serverResult, err
}

// job returns the part of a job that does not depend on the end.
func (s Spec) job() job {
	return job{
		Size: s.Size, Streams: 1, Duration: s.Duration, Warmup: s.Warmup,
		Congestion: s.Congestion, CPU: anyCPU,
	}
}

// bound runs f with a limit of time. If that or ctx ends f, the error says so
// and not how f's workers died of it.
func (s Spec) bound(ctx context.Context, f func(context.Context) error) error {
	late := fmt.Errorf("no result within %v: the path does not pass data", s.timeout())
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout(), late)
	defer cancel()
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
