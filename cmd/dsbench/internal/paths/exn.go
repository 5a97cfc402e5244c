package paths

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"exnet/internal/sched"
	"exnet/internal/tcpbench"
	"exnet/napi"
	"exnet/node"
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

// carried is what the nodes of a path have carried since they began, as they count it themselves.
type carried struct {
	Interrupts uint64 `json:"interrupts"` // that their NICs raised
	Bytes      uint64 `json:"bytes"`      // of the frames that they received
}

func carriedBy(nodes []*node.Node) (c carried) {
	for _, n := range nodes {
		s := n.Interface.Stats()
		c.Interrupts += s.NIC.VELO.Interrupts + s.NIC.RMA.Interrupts
		c.Bytes += s.Port.RxBytes
	}
	return c
}

// perGB returns the interrupts for 10^9 bytes since before; 0 if nothing was carried.
func (c carried) perGB(before carried) float64 {
	if c.Bytes == before.Bytes {
		return 0
	}
	return float64(c.Interrupts-before.Interrupts) * 1e9 / float64(c.Bytes-before.Bytes)
}

// serveCarried answers each connection to a Unix socket with what count returns, until stop is
// called.
func serveCarried(path string, count func() carried) (stop func(), err error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("counting interrupts: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = json.NewEncoder(c).Encode(count()) // who asked has gone, or sees the error
			c.Close()
		}
	}()
	return func() {
		l.Close()
		<-done
	}, nil
}

// askCarried asks what serveCarried serves.
func askCarried(path string) (c carried, err error) {
	conn, err := net.Dial("unix", path)
	if err == nil {
		err = json.NewDecoder(conn).Decode(&c)
		conn.Close()
	}
	if err != nil {
		return c, fmt.Errorf("counting interrupts: %w", err)
	}
	return c, nil
}
