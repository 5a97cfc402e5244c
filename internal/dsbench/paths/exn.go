package paths

import (
	"context"
	"errors"
)

// exnPath is TCP over exn0: the kernel's TCP in two namespaces, each with an
// exn0 on one fabric. Both nodes are in a worker process of their own.
type exnPath struct {
	nodePath
}

func newExn(cfg NodeConfig) Path { return &exnPath{newNodePath(cfg)} }

func (p *exnPath) Setup(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	var up [2]nodeUp
	if err := p.start(ctx, nil, nodeCommand, p.cfg, &up); err != nil {
		return err
	}
	return p.join(up)
}
