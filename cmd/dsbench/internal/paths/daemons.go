package paths

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"exnet/fabric/link/ofi"
	"exnet/internal/netns"
	"exnet/internal/tcpbench"
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

func newExnShm(cfg NodeConfig) Path { return &daemonPath{nodePath: newNodePath(cfg)} }

// newExnStream joins two hosts by a plain stream link over a veth pair.
func newExnStream(cfg NodeConfig) Path { return &daemonPath{nodePath: newNodePath(cfg), apart: true} }

// newExnOFI is newExnStream over libfabric's tcp.
func newExnOFI(cfg NodeConfig) Path {
	return &daemonPath{nodePath: newNodePath(cfg), apart: true, link: "ofi:tcp"}
}

// newDSFabric is newExnStream with direct sockets, whose bytes go through the fabric.
func newDSFabric(cfg NodeConfig) Path {
	return withTransport(&daemonPath{nodePath: newNodePath(cfg), apart: true, direct: true}, tcpbench.Direct)
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
		if err := p.hosts.open(linkCongestion); err != nil {
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
		if err := p.start(ctx, p.hosts[i], daemonCommand, jobs[i], &up[i]); err != nil {
			return err
		}
	}
	if err := p.awaitLink(ctx, jobs); err != nil {
		return err
	}
	return p.join(up)
}

// awaitLink waits until each node has a link to the other.
func (p *daemonPath) awaitLink(ctx context.Context, jobs [2]daemonJob) error {
	ctx, cancel := context.WithTimeoutCause(ctx, linkTime, errors.New("the nodes did not find each other"))
	defer cancel()
	for {
		linked := true
		for _, j := range jobs {
			one, err := j.linked()
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

// open makes them. congestion is the congestion control of their TCP with each other, "" the
// system's. After a failure only close may be called.
func (h *hosts) open(congestion string) (err error) {
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
