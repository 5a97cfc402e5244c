package dsbench

import (
	"cmp"
	"context"

	"exnet/internal/tcpbench"
	"exnet/internal/worker"
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
func (p *netstackPath) Stream(ctx context.Context, spec tcpbench.StreamSpec) (r tcpbench.StreamResult, err error) {
	err = p.run(ctx, netstackJob{Node: p.cfg, Spec: spec.Spec, Streams: spec.Streams}, &r)
	return r, err
}

// PingPong implements Path.
func (p *netstackPath) PingPong(ctx context.Context, spec tcpbench.PingPongSpec) (r tcpbench.PingPongResult, err error) {
	err = p.run(ctx, netstackJob{Node: p.cfg, Spec: spec.Spec}, &r)
	return r, err
}

// run gives a worker the job and stores its result in what result points to.
func (p *netstackPath) run(ctx context.Context, j netstackJob, result any) error {
	return j.Spec.Bound(ctx, func(ctx context.Context) error {
		w, err := worker.Start(ctx, nil, netstackCommand, j)
		if err != nil {
			return err
		}
		defer w.Stop()
		return w.Result(result)
	})
}
