package paths

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/internal/netns"
	"exnet/internal/rules"
	"exnet/node"
	"exnet/node/control"
	"exnet/node/daemon"
)

// daemonJob is a node in a process of its own.
type daemonJob struct {
	Node  NodeConfig `json:"node"`
	Index int        `json:"index"` // 0 or 1
	Tmp   string     `json:"tmp"`   // where the nodes meet; is removed by the last one
	// Host is the path of the namespace that it runs in, a host of its own: direct sockets go
	// to the other one through the fabric. "": both nodes are on this host.
	Host string `json:"host"`
}

// fabricDir returns the fabric's directory in tmp: one of its own, which the last
// node removes.
func fabricDir(tmp string) string { return filepath.Join(tmp, "fabric") }

// config is the node's. ns is the namespace of its exn0.
func (j daemonJob) config(ns *netns.NS) (daemon.Config, error) {
	c := daemon.Config{
		Dir:            fabricDir(j.Tmp),
		Addrs:          []netip.Prefix{node.Addr4(j.Index), node.Addr6(j.Index)},
		MTU:            j.Node.MTU,
		NetNS:          ns.Path(),
		NoFastPath:     j.Node.NoFastPath,
		EagerThreshold: j.Node.EagerThreshold,
		Receive:        daemon.Receive{Mode: j.Node.Mode, Coalesce: j.Node.Coalesce},
	}
	if j.Host == "" {
		return c, nil
	}
	c.Dir = filepath.Join(j.Tmp, strconv.Itoa(j.Index))
	c.Node = new(fabric.NodeID(1 + j.Index))
	c.Hosts = daemon.Hosts{Plaintext: true, Listen: netip.AddrPortFrom(hostAddr(j.Index), streamPort).String()}
	if j.Index == 1 {
		c.Hosts.Join = []string{netip.AddrPortFrom(hostAddr(0), streamPort).String()}
	}
	return c, c.Direct.Set(rules.Fabric)
}

// namespace is that of the node's exn0.
func (j daemonJob) namespace() (*netns.NS, error) {
	if j.Host != "" {
		return netns.Open(j.Host)
	}
	return netns.New()
}

// runDaemon holds a node with an exn0 until ctx is done. The result says nothing.
func runDaemon(ctx context.Context, j daemonJob, note func(any) error) (any, error) {
	// Fails while the other node is there; dsbench itself may have been killed.
	defer os.Remove(j.Tmp)
	ns, err := j.namespace()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	cfg, err := j.config(ns)
	if err != nil {
		return nil, err
	}
	d, err := daemon.Start(cfg)
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

// linked reports whether both nodes of the fabric, which are to be asked in dirs, have a link
// to the other.
func linked(dirs ...string) (bool, error) {
	up := 0
	for _, dir := range dirs {
		n, err := linkedIn(dir)
		if err != nil {
			return false, err
		}
		up += n
	}
	return up == 2, nil
}

// linkedIn is how many of the nodes in dir have a link to the other one.
func linkedIn(dir string) (up int, err error) {
	nodes, err := control.Nodes(dir)
	if err != nil {
		return 0, err
	}
	for _, n := range nodes {
		c, err := control.Dial(dir, n)
		if err != nil {
			return 0, err
		}
		s, err := c.Status()
		if err := errors.Join(err, c.Close()); err != nil {
			return 0, err
		}
		if len(s.Peers) == 1 && s.Peers[0].State == emp.Up.String() {
			up++
		}
	}
	return up, nil
}
