package paths

import (
	"context"
	"path/filepath"

	"exnet/internal/tcpbench"
)

// exnPath is TCP over exn0: the kernel's TCP in two namespaces, each with an
// exn0 on one fabric. Both nodes are in a worker process of their own.
type exnPath struct {
	nodePath
}

func newExn(cfg NodeConfig) Path { return &exnPath{nodePath: newNodePath(cfg)} }

// socket tells the interrupts.
func (p *exnPath) socket() string { return filepath.Join(p.tmp, "carried") }

func (p *exnPath) Setup(ctx context.Context) error {
	if err := p.makeTmp(); err != nil {
		return err
	}
	var up [2]nodeUp
	if err := p.start(ctx, nil, nodeCommand, nodesJob{p.cfg, p.socket()}, &up); err != nil {
		return err
	}
	return p.join(up)
}

// Measure implements Path. Interrupts are counted during the warm-up, too, beside the bytes.
func (p *exnPath) Measure(ctx context.Context, spec tcpbench.Spec) (r tcpbench.Result, err error) {
	var before, after carried
	err = p.whileUp(ctx, func(ctx context.Context) error {
		if before, err = askCarried(p.socket()); err != nil {
			return err
		}
		if r, err = p.Pair.Measure(ctx, spec); err != nil {
			return err
		}
		after, err = askCarried(p.socket())
		return err
	})
	if err == nil {
		r.InterruptsPerGB = after.perGB(before)
	}
	return r, err
}
