package paths

import (
	"context"
	"errors"
	"net/netip"

	"exnet/fabric/link/ofi"
	"exnet/internal/netns"
	"exnet/node/hostnet"
)

// exnStreamPath is what exnPath is between two hosts: a process for each node, in
// namespaces that share nothing but a veth pair, and over that a plain stream link.
type exnStreamPath struct {
	nodePath
	hosts hosts
	ofi   bool // libfabric carries the link
}

func newExnStream(cfg NodeConfig) Path { return &exnStreamPath{nodePath: newNodePath(cfg)} }

// newExnOFI is newExnStream over libfabric's tcp.
func newExnOFI(cfg NodeConfig) Path { return &exnStreamPath{nodePath: newNodePath(cfg), ofi: true} }

// hostAddr is the address of the i-th host on the veth pair.
func hostAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}) }

func (p *exnStreamPath) Setup(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.ofi { // here, where there is time to build the helper
		if err := ofi.Check(ctx, "tcp"); err != nil {
			return err
		}
	}
	if err := p.hosts.open(); err != nil {
		return err
	}
	var up [2]nodeUp
	for i := range up { // the first listens when it is up, the second is linked
		job := streamJob{Node: p.cfg, Index: i, Host: p.hosts[i].Path(), OFI: p.ofi}
		if err := p.start(ctx, nil, streamCommand, job, &up[i]); err != nil {
			return err
		}
	}
	return p.join(up)
}

// Close ends the nodes and removes the namespaces.
func (p *exnStreamPath) Close() error {
	return errors.Join(p.nodePath.Close(), p.hosts.close())
}

// hosts are two namespaces that share nothing but a veth pair.
type hosts [2]*netns.NS

// open makes them. After a failure only close may be called.
func (h *hosts) open() (err error) {
	var veth [2]hostnet.VethEnd
	for i := range veth {
		if h[i], err = netns.New(); err != nil {
			return err
		}
		veth[i] = hostnet.VethEnd{
			NS: h[i], Name: "veth0",
			Config: hostnet.LinkConfig{Addrs: []netip.Prefix{netip.PrefixFrom(hostAddr(i), 24)}, CongestionControl: linkCongestion},
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
