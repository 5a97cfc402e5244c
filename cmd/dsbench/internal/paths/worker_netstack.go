package paths

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"golang.org/x/sync/errgroup"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"exnet/exn"
	"exnet/fabric"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/internal/tcpbench"
	"exnet/ipstack"
	"exnet/node"
)

// netstackJob is one measurement over netstack.
type netstackJob struct {
	Node NodeConfig    `json:"node"`
	Spec tcpbench.Spec `json:"spec"`
}

// runNetstack does the jobs of both ends, over the TCP of two netstacks on a
// fabric in this process.
func runNetstack(j netstackJob) (result tcpbench.Result, err error) {
	pair, err := newNetstackPair(j)
	defer func() { err = errors.Join(err, pair.close()) }()
	if err != nil {
		return result, err
	}
	l, err := pair.stacks[1].Listen("tcp", netip.AddrPortFrom(node.Addr4(1).Addr(), 0).String())
	if err != nil {
		return result, err
	}
	defer l.Close()
	address := l.Addr().String()
	return tcpbench.InProcess(j.Spec,
		func() (io.ReadWriteCloser, error) {
			return pair.stacks[0].DialContext(context.Background(), "tcp", address)
		},
		func() (io.ReadWriteCloser, error) { return l.Accept() }, l.Close)
}

// netstackPair is two nodes without a host, on a fabric of their own.
type netstackPair struct {
	nics       []*nic.NIC
	interfaces []*exn.Interface
	stacks     []*ipstack.Stack
	cancel     context.CancelFunc
	group      *errgroup.Group
}

// newNetstackPair returns a pair that the caller closes, also after an error.
func newNetstackPair(j netstackJob) (*netstackPair, error) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &netstackPair{cancel: cancel}
	p.group, ctx = errgroup.WithContext(ctx)
	net := mem.NewFabric()
	for i := range 2 {
		if err := p.add(i, j, net); err != nil {
			return p, err
		}
		intf := p.interfaces[i]
		p.group.Go(func() error { return intf.Run(ctx) })
	}
	return p, nil
}

func (p *netstackPair) add(i int, j netstackJob, net *mem.Fabric) error {
	card, err := nic.New(nic.Config{Node: fabric.NodeID(1 + i)})
	if err != nil {
		return err
	}
	p.nics = append(p.nics, card)
	if err := net.Attach(card); err != nil {
		return err
	}
	intf, err := exn.New(exn.Config{NIC: card, MTU: j.Node.MTU, EagerThreshold: j.Node.EagerThreshold})
	if err != nil {
		return err
	}
	p.interfaces = append(p.interfaces, intf)
	s, err := ipstack.New(ipstack.Config{Link: intf, CongestionControl: j.Spec.Congestion})
	if err != nil {
		return err
	}
	p.stacks = append(p.stacks, s)
	intf.SetReceiver(s)
	// As on the kernel's sockets: Nagle's algorithm for a stream only.
	nagle := tcpip.TCPDelayEnabled(j.Spec.Nagle())
	if terr := s.Netstack().SetTransportProtocolOption(tcp.ProtocolNumber, &nagle); terr != nil {
		return fmt.Errorf("netstack: Nagle's algorithm: %v", terr)
	}
	return s.AddAddress(node.Addr4(i))
}

func (p *netstackPair) close() error {
	p.cancel()
	errs := []error{p.group.Wait()} // no frame is received any more
	for _, s := range p.stacks {
		errs = append(errs, s.Close())
	}
	for _, i := range p.interfaces {
		errs = append(errs, i.Close())
	}
	for _, n := range p.nics {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}
