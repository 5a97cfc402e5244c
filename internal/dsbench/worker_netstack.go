package dsbench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"exnet/exn"
	"exnet/fabric"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/internal/node"
	"exnet/ipstack"
)

// runNetstack does the jobs of both ends, over the TCP of two netstacks on a
// fabric in this process.
func runNetstack(j job) (result jobResult, err error) {
	pair, err := newNetstackPair(j)
	defer func() { err = errors.Join(err, pair.close()) }()
	if err != nil {
		return jobResult{}, err
	}
	start := time.Now()
	clients, servers, err := pair.connect(j.Streams)
	defer closeAll(clients)
	defer closeAll(servers)
	if err != nil {
		return jobResult{}, err
	}
	// Both ends are of one process: the CPU time of one's result is that of both.
	var g errgroup.Group
	if j.Role == roleNetstackStream {
		g.Go(func() (err error) {
			result, err = receive(j, servers)
			closeAll(servers)
			return err
		})
		g.Go(func() error {
			_, err := send(j, clients, start)
			return err
		})
		return result, g.Wait()
	}
	g.Go(func() (err error) {
		result, err = ping(j, clients[0])
		clients[0].close()
		return err
	})
	g.Go(func() error {
		_, err := echo(j, servers[0])
		return err
	})
	return result, g.Wait()
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
func newNetstackPair(j job) (*netstackPair, error) {
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

func (p *netstackPair) add(i int, j job, net *mem.Fabric) error {
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
	s, err := ipstack.New(ipstack.Config{Link: intf, CongestionControl: j.Congestion})
	if err != nil {
		return err
	}
	p.stacks = append(p.stacks, s)
	intf.SetReceiver(s)
	// As on the kernel's sockets: Nagle's algorithm for a stream only.
	nagle := tcpip.TCPDelayEnabled(j.Role == roleNetstackStream)
	if terr := s.Netstack().SetTransportProtocolOption(tcp.ProtocolNumber, &nagle); terr != nil {
		return fmt.Errorf("netstack: Nagle's algorithm: %v", terr)
	}
	return s.AddAddress(node.Addr4(i))
}

// connect makes n connections from the first node to the second. The caller
// closes those that it returns, also after an error.
func (p *netstackPair) connect(n int) (clients, servers []conn, err error) {
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
		clients = append(clients, netConn{c})
		s, err := l.Accept()
		if err != nil {
			return clients, servers, err
		}
		servers = append(servers, netConn{s})
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

// netConn is a connection of netstack.
type netConn struct{ net.Conn }

func (c netConn) read(b []byte) (int, error)  { return c.Read(b) }
func (c netConn) write(b []byte) (int, error) { return c.Write(b) }
func (c netConn) close()                      { c.Close() }
