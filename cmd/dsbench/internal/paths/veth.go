package paths

import (
	"context"
	"errors"
	"net/netip"

	"exnet/internal/netns"
	"exnet/internal/tcpbench"
	"exnet/node/hostnet"
)

// vethPath is TCP over a pair of virtual Ethernet interfaces between two
// namespaces: the kernel's own way to do what exn0 does. The namespaces are
// anonymous: the kernel removes them and the pair with this process, however
// that ends.
type vethPath struct {
	*tcpbench.Pair
	namespaces [2]*netns.NS
	mtu        int
}

func newVeth(NodeConfig) Path { return &vethPath{} }

func (p *vethPath) Info() Info { return Info{MTU: p.mtu} }

func (p *vethPath) Setup(context.Context) (err error) {
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	var veth [2]hostnet.VethEnd
	var ends [2]tcpbench.End
	for i := range veth {
		if p.namespaces[i], err = netns.New(); err != nil {
			return err
		}
		addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})
		ends[i] = tcpbench.End{NS: p.namespaces[i], Addr: addr}
		veth[i] = hostnet.VethEnd{
			NS:     p.namespaces[i],
			Name:   "veth0",
			Config: hostnet.LinkConfig{Addrs: []netip.Prefix{netip.PrefixFrom(addr, 24)}},
		}
	}
	if err := hostnet.CreateVeth(veth[0], veth[1]); err != nil {
		return err
	}
	host, err := hostnet.Open(p.namespaces[0])
	if err != nil {
		return err
	}
	defer host.Close()
	link, err := host.Link(veth[0].Name)
	if err != nil {
		return err
	}
	p.mtu = link.MTU
	p.Pair = tcpbench.Between(ends[0], ends[1])
	return nil
}

func (p *vethPath) Close() error {
	var errs []error
	for _, ns := range p.namespaces {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	return errors.Join(errs...)
}
