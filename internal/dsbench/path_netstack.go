package dsbench

import (
	"cmp"
	"context"

	"exnet/mtu"
)

// netstackPath is netstack's TCP over the fabric, without a TUN device, without
// the kernel and without privileges: what a Go program has that brings its own
// IP stack. Both nodes and both ends share a worker process, as they do in such
// a program's tests; every run has a process of its own.
type netstackPath struct {
	cfg NodeConfig
}

func newNetstack(cfg NodeConfig) Path { return &netstackPath{cfg} }

func (p *netstackPath) Name() string { return "netstack" }

func (p *netstackPath) Info() PathInfo {
	return PathInfo{MTU: int(cmp.Or(p.cfg.MTU, mtu.Default)), Unbound: true}
}

func (p *netstackPath) Setup(context.Context) error { return nil }

func (p *netstackPath) Close() error { return nil }

// Stream implements Path.
func (p *netstackPath) Stream(ctx context.Context, spec StreamSpec) (StreamResult, error) {
	j := spec.job()
	j.Role, j.Streams = roleNetstackStream, spec.Streams
	r, err := p.run(ctx, spec.Spec, j)
	if err != nil {
		return StreamResult{}, err
	}
	return StreamResult{Bytes: r.Bytes, Elapsed: seconds(r.Seconds), CPU: r.cpu()}, nil
}

// PingPong implements Path.
func (p *netstackPath) PingPong(ctx context.Context, spec PingPongSpec) (PingPongResult, error) {
	j := spec.job()
	j.Role = roleNetstackPingPong
	r, err := p.run(ctx, spec.Spec, j)
	if err != nil {
		return PingPongResult{}, err
	}
	return pingPongResult(r, r.cpu())
}

func (p *netstackPath) run(ctx context.Context, spec Spec, j job) (r jobResult, err error) {
	j.Node = p.cfg
	err = spec.bound(ctx, func(ctx context.Context) error {
		w, err := startWorker(ctx, nil, j)
		if err != nil {
			return err
		}
		defer w.stop()
		r, err = w.result()
		return err
	})
	return r, err
}
