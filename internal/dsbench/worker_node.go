package dsbench

import (
	"errors"
	"fmt"

	"exnet/internal/node"
	"exnet/internal/sched"
	"exnet/internal/tun"
)

// runNode holds two nodes with an exn0 each until end is closed. It is a
// process of its own, so that its CPU time can be told, and so that what it
// does is scheduled apart from the programs that use it.
func runNode(cfg NodeConfig, say func(reply) error, end <-chan struct{}) (jobResult, error) {
	// As exn-tun does; where it is not allowed, the nodes are measured without.
	_ = sched.Realtime()
	cluster, err := node.StartCluster(node.ClusterConfig{
		Nodes: 2,
		Node:  node.Config{MTU: cfg.MTU, NoFastPath: cfg.NoFastPath},
	})
	if err != nil {
		return jobResult{}, withoutTUN(err)
	}
	r := nodeReply{MTU: cluster.Nodes[0].Interface.MTU()}
	for i := range r.Namespaces {
		r.Namespaces[i] = cluster.Namespace(i).Path()
		r.Addrs[i] = node.Addr4(i).Addr()
	}
	if err := say(reply{Node: &r}); err != nil {
		return jobResult{}, errors.Join(err, cluster.Close())
	}
	failed := make(chan error, 1)
	go func() { failed <- cluster.Wait() }()
	select {
	case err := <-failed:
		_ = cluster.Close() // has the same to say
		return jobResult{}, fmt.Errorf("the nodes' data path ended: %w", err)
	case <-end:
		return jobResult{CPUSeconds: cpuTime(nil).Seconds()}, cluster.Close()
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
