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
	// Host is the path of the namespace that it runs in, a host of its own. "": both nodes are on
	// this host.
	Host   string `json:"host"`
	Link   string `json:"link"`   // between hosts
	Direct bool   `json:"direct"` // direct sockets to the other host go through the fabric
}

// linkPort is where the first of two hosts listens.
const linkPort = 4791

// dir returns the fabric's directory in Tmp: one of its own, which its last node removes.
func (j daemonJob) dir() string {
	if j.Host == "" {
		return filepath.Join(j.Tmp, "fabric")
	}
	return filepath.Join(j.Tmp, strconv.Itoa(j.Index))
}

// config is the node's. ns is the namespace of its exn0.
func (j daemonJob) config(ns *netns.NS) (daemon.Config, error) {
	c := daemon.Config{
		Dir:            j.dir(),
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
	c.Node = new(fabric.NodeID(1 + j.Index))
	c.Hosts = daemon.Hosts{Plaintext: true, Listen: netip.AddrPortFrom(hostAddr(j.Index), linkPort).String(), Link: j.Link}
	if j.Index == 1 {
		c.Hosts.Join = []string{netip.AddrPortFrom(hostAddr(0), linkPort).String()}
	}
	if !j.Direct {
		return c, nil
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

// linked reports whether the node has a link to the other one.
func (j daemonJob) linked() (bool, error) {
	nodes, err := control.Nodes(j.dir())
	if err != nil {
		return false, err
	}
	for _, n := range nodes {
		c, err := control.Dial(j.dir(), n)
		if err != nil {
			return false, err
		}
		s, err := c.Status()
		if err := errors.Join(err, c.Close()); err != nil {
			return false, err
		}
		if len(s.Peers) != 1 || s.Peers[0].State != emp.Up.String() {
			return false, nil
		}
	}
	return len(nodes) > 0, nil
}
