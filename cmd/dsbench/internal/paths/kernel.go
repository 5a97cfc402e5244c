package paths

import (
	"context"
	"net/netip"

	"exnet/internal/netns"
	"exnet/internal/tcpbench"
	"exnet/node/hostnet"
)

// loPath is TCP over the loopback interface: what two programs on one host get
// from the kernel without any device between them.
type loPath struct {
	*tcpbench.Pair
	ns  *netns.NS // nil: the current namespace
	mtu int
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// unixPath is stream sockets of the Unix domain, in a namespace as that of loPath.
type unixPath struct{ loPath }

func newUnix(NodeConfig) Path { return &unixPath{} }

func (*unixPath) Info() Info { return Info{} }

func newLo(NodeConfig) Path { return &loPath{} }

func (p *loPath) Info() Info { return Info{MTU: p.mtu} }

// Setup takes a namespace of its own if it may, so that the host's packet
// filters and traffic are not measured; without privileges it takes the current
// one.
func (p *loPath) Setup(context.Context) (err error) {
	if netns.Privileged() {
		if p.ns, err = netns.New(); err != nil {
			return err
		}
	}
	host, err := hostnet.Open(p.ns)
	if err != nil {
		return err
	}
	defer host.Close()
	if p.ns != nil {
		if err := host.LoopbackUp(); err != nil {
			return err
		}
	}
	link, err := host.Link("lo")
	if err != nil {
		return err
	}
	p.mtu = link.MTU
	end := tcpbench.End{NS: p.ns, Addr: loopback}
	p.Pair = tcpbench.Between(end, end)
	return nil
}

func (p *loPath) Close() error {
	ns := p.ns
	if p.ns = nil; ns == nil {
		return nil
	}
	return ns.Close()
}

// vethPath is TCP over a pair of virtual Ethernet interfaces between two
// namespaces: the kernel's own way to do what exn0 does. The namespaces are
// anonymous: the kernel removes them and the pair with this process, however
// that ends.
type vethPath struct {
	*tcpbench.Pair
	hosts hosts
	mtu   int
}

func newVeth(NodeConfig) Path { return &vethPath{} }

func (p *vethPath) Info() Info { return Info{MTU: p.mtu} }

func (p *vethPath) Setup(context.Context) error {
	if err := p.hosts.createHosts(""); err != nil {
		return err
	}
	host, err := hostnet.Open(p.hosts[0])
	if err != nil {
		return err
	}
	defer host.Close()
	link, err := host.Link(vethName)
	if err != nil {
		return err
	}
	p.mtu = link.MTU
	p.Pair = tcpbench.Between(tcpbench.End{NS: p.hosts[0], Addr: hostAddr(0)}, tcpbench.End{NS: p.hosts[1], Addr: hostAddr(1)})
	return nil
}

func (p *vethPath) Close() error { return p.hosts.close() }
