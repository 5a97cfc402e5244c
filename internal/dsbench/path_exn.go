package dsbench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exnet/internal/netns"
	"exnet/internal/tcpbench"
	"exnet/internal/worker"
)

// exnPath is TCP over exn0: the kernel's TCP in two namespaces, each with an
// exn0 on one fabric. Both nodes are in a worker process of their own.
type exnPath struct {
	*tcpbench.Pair
	cfg        NodeConfig
	mtu        int
	namespaces [2]*netns.NS

	nodes  *worker.Process
	ended  chan struct{} // closed when the nodes have ended
	endErr error         // valid then; nil: in order
}

const (
	nodeEndTime  = 3 * time.Second        // how long the nodes may take to end in order
	nodeGoneTime = 100 * time.Millisecond // and their process after their interfaces
)

func newExn(cfg NodeConfig) Path { return &exnPath{cfg: cfg} }

func (p *exnPath) Name() string { return "exn" }

func (p *exnPath) Info() PathInfo { return PathInfo{MTU: p.mtu, NoFastPath: p.cfg.NoFastPath} }

func (p *exnPath) Setup(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	// It outlives ctx, so that Close can end it in order.
	p.nodes, err = worker.Start(context.WithoutCancel(ctx), nil, nodeCommand, p.cfg)
	if err != nil {
		return err
	}
	var up nodesUp
	if err := p.nodes.Note(&up); err != nil {
		return err
	}
	p.ended = make(chan struct{})
	go func() {
		p.endErr = p.nodes.Result(new(struct{}))
		close(p.ended)
	}()
	for i, path := range up.Namespaces {
		if p.namespaces[i], err = netns.Open(path); err != nil {
			return err
		}
	}
	p.mtu = up.MTU
	p.Pair = tcpbench.Between(
		tcpbench.End{NS: p.namespaces[0], Addr: up.Addrs[0]},
		tcpbench.End{NS: p.namespaces[1], Addr: up.Addrs[1]},
		p.nodes.PID(),
	)
	return nil
}

// Stream implements Path.
func (p *exnPath) Stream(ctx context.Context, spec tcpbench.StreamSpec) (r tcpbench.StreamResult, err error) {
	err = p.whileUp(ctx, func(ctx context.Context) error {
		r, err = p.Pair.Stream(ctx, spec)
		return err
	})
	return r, err
}

// PingPong implements Path.
func (p *exnPath) PingPong(ctx context.Context, spec tcpbench.PingPongSpec) (r tcpbench.PingPongResult, err error) {
	err = p.whileUp(ctx, func(ctx context.Context) error {
		r, err = p.Pair.PingPong(ctx, spec)
		return err
	})
	return r, err
}

// whileUp runs f, and ends it when the nodes end.
func (p *exnPath) whileUp(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := f(ctx)
	if err == nil {
		return nil
	}
	// The programs may notice before their nodes' process is quite gone.
	select {
	case <-p.ended:
		return fmt.Errorf("the process of the nodes ended: %w", p.endErr)
	case <-time.After(nodeGoneTime):
		return err
	}
}

// Close ends the nodes in order, or by force if that takes long.
func (p *exnPath) Close() error {
	var errs []error
	for _, ns := range p.namespaces {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	if p.nodes == nil {
		return errors.Join(errs...)
	}
	if p.ended != nil {
		errs = append(errs, p.endNodes())
	}
	p.nodes.Stop()
	return errors.Join(errs...)
}

// endNodes ends the nodes and returns how that went. If they had ended before,
// the measurement has said so.
func (p *exnPath) endNodes() error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	p.nodes.End()
	select {
	case <-p.ended:
	case <-time.After(nodeEndTime):
		p.nodes.Kill()
		<-p.ended
	}
	return p.endErr
}
