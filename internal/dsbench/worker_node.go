package dsbench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"exnet/internal/node"
	"exnet/internal/sched"
	"exnet/internal/tun"
)

// nodesUp says where the two nodes are. They last as long as the worker.
type nodesUp struct {
	Namespaces [2]string     `json:"namespaces"` // paths
	Addrs      [2]netip.Addr `json:"addrs"`
	MTU        int           `json:"mtu"`
}

// runNodes holds two nodes with an exn0 each until ctx is done. It is a process
// of its own, so that its CPU time can be told, and so that what it does is
// scheduled apart from the programs that use it. The result says nothing.
func runNodes(ctx context.Context, cfg NodeConfig, note func(any) error) (any, error) {
	// As exn-tun does; where it is not allowed, the nodes are measured without.
	_ = sched.Realtime()
	cluster, err := node.StartCluster(node.ClusterConfig{
		Nodes: 2,
		Node:  node.Config{MTU: cfg.MTU, NoFastPath: cfg.NoFastPath},
	})
	if err != nil {
		return nil, withoutTUN(err)
	}
	up := nodesUp{MTU: cluster.Nodes[0].Interface.MTU()}
	for i := range up.Namespaces {
		up.Namespaces[i] = cluster.Namespace(i).Path()
		up.Addrs[i] = node.Addr4(i).Addr()
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

// withoutTUN adds to an error what else can be done where no TUN device is to be
// had.
func withoutTUN(err error) error {
	if errors.Is(err, tun.ErrUnavailable) {
		return fmt.Errorf("%w, or use the netstack path, which needs none", err)
	}
	return err
}
