package paths

import (
	"context"
	"errors"
	"path/filepath"

	"exnet/internal/tcpbench"
	"exnet/internal/tempdir"
)

// exnPath is TCP over exn0: the kernel's TCP in two namespaces, each with an
// exn0 on one fabric. Both nodes are in a worker process of their own.
type exnPath struct {
	nodePath
	tmp string // has the socket that tells the interrupts; "": not made
}

func newExn(cfg NodeConfig) Path { return &exnPath{nodePath: newNodePath(cfg)} }

func (p *exnPath) socket() string { return filepath.Join(p.tmp, "carried") }

func (p *exnPath) Setup(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.tmp, err = tempdir.New("dsbench"); err != nil {
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

// Close implements Path.
func (p *exnPath) Close() error {
	err := p.nodePath.Close()
	if p.tmp != "" {
		err = errors.Join(err, tempdir.Remove(p.tmp))
	}
	return err
}
