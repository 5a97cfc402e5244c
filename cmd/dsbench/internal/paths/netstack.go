package paths

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

func (p *netstackPath) Info() Info {
	return Info{MTU: int(cmp.Or(p.cfg.MTU, mtu.Default)), Unbound: true}
}

func (p *netstackPath) Setup(context.Context) error { return nil }

func (p *netstackPath) Close() error { return nil }

// Measure implements Path.
func (p *netstackPath) Measure(ctx context.Context, spec tcpbench.Spec) (r tcpbench.Result, err error) {
	err = spec.Bound(ctx, func(ctx context.Context) error {
		w, err := worker.Start(ctx, nil, netstackCommand, netstackJob{Node: p.cfg, Spec: spec})
		if err != nil {
			return err
		}
		defer w.Stop()
		return w.Result(&r)
	})
	return r, err
}
