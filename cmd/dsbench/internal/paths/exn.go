package paths

import (
	"context"
	"errors"
	"fmt"

	"exnet/internal/sched"
	"exnet/napi"
	"exnet/node"
)

// exnPath is TCP over exn0: the kernel's TCP in two namespaces, each with an
// exn0 on one fabric. Both nodes are in a worker process of their own.
type exnPath struct {
	nodePath
}

func newExn(cfg NodeConfig) Path { return &exnPath{nodePath: newNodePath(cfg)} }

func (p *exnPath) Setup(ctx context.Context) error {
	var up [2]nodeUp
	if err := p.startWorker(ctx, nil, nodeCommand, p.cfg, &up); err != nil {
		return err
	}
	return p.joinNodes(up)
}

// runNodes holds two nodes with an exn0 each until ctx is done. It is a process
// of its own, so that its CPU time can be told, and so that what it does is
// scheduled apart from the programs that use it. The result says nothing.
func runNodes(ctx context.Context, cfg NodeConfig, note func(any) error) (any, error) {
	// As exn-tun does; where it is not allowed, the nodes are measured without. A
	// node that polls all the time would starve the programs on its CPU.
	if cfg.Mode != napi.ModeBusyPoll {
		_ = sched.Realtime()
	}
	cluster, err := node.StartCluster(node.ClusterConfig{
		Nodes: 2,
		Node:  node.Config{MTU: cfg.MTU, NoFastPath: cfg.NoFastPath, EagerThreshold: cfg.EagerThreshold},
	})
	if err != nil {
		return nil, err
	}
	var up [2]nodeUp
	for i := range up {
		intf := cluster.Nodes[i].Interface
		if err := errors.Join(intf.SetCoalesce(cfg.Coalesce), intf.SetMode(cfg.Mode)); err != nil {
			return nil, errors.Join(err, cluster.Close())
		}
		up[i] = nodeUp{
			Namespace: cluster.Namespace(i).Path(),
			Addr:      node.Addr4(i).Addr(),
			MTU:       intf.MTU(),
		}
	}
	if err := note(up); err != nil {
		return nil, errors.Join(err, cluster.Close())
	}
	failed := make(chan error, 1)
	go func() { failed <- cluster.Wait() }()
	select {
	case err := <-failed:
		_ = cluster.Close() // has the same to say
		return nil, fmt.Errorf("the nodes' data path ended: %w", err)
	case <-ctx.Done():
		return struct{}{}, cluster.Close()
	}
}
