package dsbench

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
	"exnet/internal/node"
	"exnet/internal/tcpbench"
	"exnet/ipstack"
)

// netstackJob is one measurement over netstack.
type netstackJob struct {
	Node    NodeConfig    `json:"node"`
	Spec    tcpbench.Spec `json:"spec"`
	Streams int           `json:"streams"` // connections of a stream; 0: ping-pong
}

// runNetstack does the jobs of both ends, over the TCP of two netstacks on a
// fabric in this process. The result is a tcpbench.StreamResult or
// PingPongResult.
func runNetstack(j netstackJob) (result any, err error) {
	pair, err := newNetstackPair(j)
	defer func() { err = errors.Join(err, pair.close()) }()
	if err != nil {
		return nil, err
	}
	clients, servers, err := pair.connect(max(j.Streams, 1))
	if err != nil {
		return nil, err
	}
	if j.Streams > 0 {
		return tcpbench.StreamOver(tcpbench.StreamSpec{Spec: j.Spec, Streams: j.Streams}, clients, servers)
	}
	return tcpbench.PingPongOver(tcpbench.PingPongSpec{Spec: j.Spec}, clients[0], servers[0])
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
	intf, err := exn.New(exn.Config{NIC: card, MTU: j.Node.MTU})
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
	nagle := tcpip.TCPDelayEnabled(j.Streams > 0)
	if terr := s.Netstack().SetTransportProtocolOption(tcp.ProtocolNumber, &nagle); terr != nil {
		return fmt.Errorf("netstack: Nagle's algorithm: %v", terr)
	}
	return s.AddAddress(node.Addr4(i))
}

// connect makes n connections from the first node to the second, which the
// caller closes.
func (p *netstackPair) connect(n int) (clients, servers []io.ReadWriteCloser, err error) {
	defer func() {
		if err != nil {
			for _, c := range append(clients, servers...) {
				c.Close()
			}
		}
	}()
	l, err := p.stacks[1].Listen("tcp", netip.AddrPortFrom(node.Addr4(1).Addr(), 0).String())
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	for range n {
		c, err := p.stacks[0].DialContext(context.Background(), "tcp", l.Addr().String())
		if err != nil {
			return clients, servers, err
		}
		clients = append(clients, c)
		s, err := l.Accept()
		if err != nil {
			return clients, servers, err
		}
		servers = append(servers, s)
	}
	return clients, servers, nil
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
