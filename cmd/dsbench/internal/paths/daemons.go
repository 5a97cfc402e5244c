package paths

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/link/ofi"
	"exnet/internal/netns"
	"exnet/internal/rules"
	"exnet/node"
	"exnet/node/control"
	"exnet/node/daemon"
	"exnet/node/hostnet"
)

// daemonPath is what exnPath is, with a process for each node, as exn-tun up makes them: daemons of
// one host, which share memory, or of two hosts.
type daemonPath struct {
	nodePath
	apart  bool   // each daemon is on a host of its own
	link   string // what joins the two hosts (daemon.Hosts)
	direct bool   // direct sockets to the other host go through the fabric
	hosts  hosts
}

const (
	linkTime = 30 * time.Second     // how long the nodes may take to find each other
	linkPoll = 5 * time.Millisecond // how often that is looked at
)

// newDaemons opens paths like p.
func newDaemons(p daemonPath) func(NodeConfig) Path {
	return func(cfg NodeConfig) Path {
		opened := p
		opened.nodePath = newNodePath(cfg)
		return &opened
	}
}

func (p *daemonPath) Setup(ctx context.Context) error {
	if p.link != "" { // here, where there is time to build the helper
		if err := ofi.Check(ctx, "tcp"); err != nil {
			return err
		}
	}
	if err := p.makeTmp(); err != nil {
		return err
	}
	if p.apart {
		if err := p.hosts.createHosts(linkCongestion); err != nil {
			return err
		}
	}
	var up [2]nodeUp
	var jobs [2]daemonJob
	for i := range up { // the first of two hosts listens when it is up
		jobs[i] = daemonJob{Node: p.cfg, Index: i, Tmp: p.tmp, Link: p.link, Direct: p.direct}
		if p.apart {
			jobs[i].Host = p.hosts[i].Path()
		}
		if err := p.startWorker(ctx, p.hosts[i], daemonCommand, jobs[i], &up[i]); err != nil {
			return err
		}
	}
	if err := p.awaitLink(ctx, jobs); err != nil {
		return err
	}
	return p.joinNodes(up)
}

// awaitLink waits until each node has a link to the other.
func (p *daemonPath) awaitLink(ctx context.Context, jobs [2]daemonJob) error {
	ctx, cancel := context.WithTimeoutCause(ctx, linkTime, errors.New("the nodes did not find each other"))
	defer cancel()
	for {
		linked := true
		for _, j := range jobs {
			one, err := j.hasLink()
			if err != nil {
				return err
			}
			linked = linked && one
		}
		if linked {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.up.Done():
			return context.Cause(p.up)
		case <-time.After(linkPoll):
		}
	}
}

// Close ends the nodes and removes what they had.
func (p *daemonPath) Close() error { return errors.Join(p.nodePath.Close(), p.hosts.close()) }

// hosts are two namespaces that share nothing but a veth pair.
type hosts [2]*netns.NS

// linkCongestion is the congestion control of a link's TCP between hosts: what --congestion is
// unless told otherwise. The system's may send at a pace: with bbr a gigabyte took 1.3 CPU seconds
// instead of 0.8.
const linkCongestion = "cubic"

// hostAddr is the address of the i-th host on the veth pair.
func hostAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}) }

// vethName is the interface of each.
const vethName = "veth0"

// createHosts makes the hosts. congestion is the congestion control of their TCP with each other,
// "" the system's. After a failure only close may be called.
func (h *hosts) createHosts(congestion string) (err error) {
	var veth [2]hostnet.VethEnd
	for i := range veth {
		if h[i], err = netns.New(); err != nil {
			return err
		}
		veth[i] = hostnet.VethEnd{
			NS: h[i], Name: vethName,
			Config: hostnet.LinkConfig{Addrs: []netip.Prefix{netip.PrefixFrom(hostAddr(i), 24)}, CongestionControl: congestion},
		}
	}
	return hostnet.CreateVeth(veth[0], veth[1])
}

func (h *hosts) close() error {
	var errs []error
	for _, ns := range h {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	*h = hosts{}
	return errors.Join(errs...)
}

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

// fabricDir returns the fabric's directory in Tmp: one of its own, which its last node removes.
func (j daemonJob) fabricDir() string {
	if j.Host == "" {
		return filepath.Join(j.Tmp, "fabric")
	}
	return filepath.Join(j.Tmp, strconv.Itoa(j.Index))
}

// nodeConfig returns the node's configuration. ns is the namespace of its exn0.
func (j daemonJob) nodeConfig(ns *netns.NS) (daemon.Config, error) {
	c := daemon.Config{
		Dir:            j.fabricDir(),
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

// nodeNamespace returns the namespace of the node's exn0.
func (j daemonJob) nodeNamespace() (*netns.NS, error) {
	if j.Host != "" {
		return netns.Open(j.Host)
	}
	return netns.New()
}

// runDaemon holds a node with an exn0 until ctx is done. The result says nothing.
func runDaemon(ctx context.Context, j daemonJob, note func(any) error) (any, error) {
	// Fails while the other node is there; dsbench itself may have been killed.
	defer os.Remove(j.Tmp)
	ns, err := j.nodeNamespace()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	cfg, err := j.nodeConfig(ns)
	if err != nil {
		return nil, err
	}
	d, err := daemon.Start(cfg)
	if err != nil {
		return nil, err
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

// hasLink reports whether the node has a link to the other one.
func (j daemonJob) hasLink() (bool, error) {
	nodes, err := control.Nodes(j.fabricDir())
	if err != nil {
		return false, err
	}
	for _, n := range nodes {
		s, err := control.StatusOf(j.fabricDir(), n)
		if err != nil {
			return false, err
		}
		if len(s.Peers) != 1 || s.Peers[0].State != emp.Up.String() {
			return false, nil
		}
	}
	return len(nodes) > 0, nil
}
