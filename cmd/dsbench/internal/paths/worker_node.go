package paths

import (
	"context"
	"errors"
	"fmt"

	"exnet/internal/sched"
	"exnet/napi"
	"exnet/node"
	"exnet/node/tun"
)

// nodesJob is two nodes in a process.
type nodesJob struct {
	Node    NodeConfig `json:"node"`
	Carried string     `json:"carried"` // path of the socket that tells what they carried
}

// runNodes holds two nodes with an exn0 each until ctx is done. It is a process
// of its own, so that its CPU time can be told, and so that what it does is
// scheduled apart from the programs that use it. The result says nothing.
func runNodes(ctx context.Context, job nodesJob, note func(any) error) (any, error) {
	cfg := job.Node
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
		return nil, withoutTUN(err)
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
	stop, err := serveCarried(job.Carried, func() carried { return carriedBy(cluster.Nodes) })
	if err != nil {
		return nil, errors.Join(err, cluster.Close())
	}
	defer stop()
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

// withoutTUN adds to an error what to do where there is no TUN device.
func withoutTUN(err error) error {
	if errors.Is(err, tun.ErrUnavailable) {
		return fmt.Errorf("%w, or use the netstack path, which needs none", err)
	}
	return err
}
