package paths

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"exnet/fabric/emp"
	"exnet/internal/control"
	"exnet/internal/daemon"
	"exnet/internal/netns"
	"exnet/internal/node"
)

// daemonJob is a node in a process of its own.
type daemonJob struct {
	Node  NodeConfig `json:"node"`
	Index int        `json:"index"` // 0 or 1
	Tmp   string     `json:"tmp"`   // where the nodes meet; is removed by the last one
}

// fabricDir returns the fabric's directory in tmp: one of its own, which the last
// node removes.
func fabricDir(tmp string) string { return filepath.Join(tmp, "fabric") }

// runDaemon holds a node with an exn0 in a namespace of its own until ctx is
// done. The result says nothing.
func runDaemon(ctx context.Context, j daemonJob, note func(any) error) (any, error) {
	// Fails while the other node is there; dsbench itself may have been killed.
	defer os.Remove(j.Tmp)
	ns, err := netns.New()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	d, err := daemon.Start(daemon.Config{
		Dir:            fabricDir(j.Tmp),
		Addrs:          []netip.Prefix{node.Addr4(j.Index), node.Addr6(j.Index)},
		MTU:            j.Node.MTU,
		NetNS:          ns.Path(),
		NoFastPath:     j.Node.NoFastPath,
		EagerThreshold: j.Node.EagerThreshold,
		Receive:        daemon.Receive{Mode: j.Node.Mode, Coalesce: j.Node.Coalesce},
	})
	if err != nil {
		return nil, withoutTUN(err)
	}
	s, err := d.Status()
	if err == nil {
		err = note(nodeUp{Namespace: ns.Path(), Addr: node.Addr4(j.Index).Addr(), MTU: s.Interface.MTU})
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if err := d.Run(ctx); err != nil {
		_ = d.Close() // has the same to say
		return nil, fmt.Errorf("a node's data path ended: %w", err)
	}
	return struct{}{}, d.Close()
}

// linked reports whether both nodes of the fabric in dir have a link to the other.
func linked(dir string) (bool, error) {
	nodes, err := control.Nodes(dir)
	if err != nil {
		return false, err
	}
	up := 0
	for _, n := range nodes {
		c, err := control.Dial(dir, n)
		if err != nil {
			return false, err
		}
		s, err := c.Status()
		if err := errors.Join(err, c.Close()); err != nil {
			return false, err
		}
		if len(s.Peers) == 1 && s.Peers[0].State == emp.Up.String() {
			up++
		}
	}
	return up == 2, nil
}
