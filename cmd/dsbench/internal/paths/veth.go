package paths

import (
	"context"

	"exnet/internal/tcpbench"
	"exnet/node/hostnet"
)

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
	if err := p.hosts.open(""); err != nil {
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
