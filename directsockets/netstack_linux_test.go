package directsockets_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/loopback"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"exnet/directsockets"
	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
)

// TestConnNetstack: the shadow is netstack's TCP.
func TestConnNetstack(t *testing.T) {
	ns, err := newNetstack(1, loopback.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Destroy)
	s, err := broker.New(broker.Config{NoSocket: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	client, err := s.Client(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	for _, eager := range []bool{false, true} {
		name := "lazy"
		if eager {
			name = "direct"
		}
		t.Run(name, func(t *testing.T) {
			testConn(t, func(t *testing.T) (net.Conn, net.Conn) {
				c, s := netstackPairOf(t, ns, directsockets.Config{Broker: client, Eager: eager})
				if eager {
					makeDirect(t, c, s)
					mustBeDirect(t, c, s)
				}
				return c, s
			})
		})
	}
}

// netstackAddr is the address of a node, from 1.
func netstackAddr(node byte) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFrom4([4]byte{10, 9, 0, node})}
}

// newNetstack makes the netstack of a node.
func newNetstack(node byte, link stack.LinkEndpoint) (*stack.Stack, error) {
	ns := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
		HandleLocal:        true,
	})
	if err := ns.CreateNIC(1, link); err != nil {
		return nil, errors.New(err.String())
	}
	addr := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: netstackAddr(node).Addr.WithPrefix()}
	if err := ns.AddProtocolAddress(1, addr, stack.AddressProperties{}); err != nil {
		return nil, errors.New(err.String())
	}
	ns.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}})
	return ns, nil
}

// netstackDial dials over a netstack.
func netstackDial(ns *stack.Stack) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return nil, err
		}
		full := tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFrom4(to.Addr().As4()), Port: to.Port()}
		c, err := gonet.DialContextTCP(ctx, ns, full, ipv4.ProtocolNumber)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
}

// netstackNode is a node in user space: its link is descriptor 3, its broker's peer
// descriptor 4.
func netstackNode(node byte, link, peer int) (ns *stack.Stack, c *client.Client, stop func(), err error) {
	ep, err := fdbased.New(&fdbased.Options{FDs: []int{link}, MTU: 16 << 10, PacketDispatchMode: fdbased.Readv})
	if err != nil {
		return nil, nil, nil, err
	}
	if ns, err = newNetstack(node, ep); err != nil {
		return nil, nil, nil, err
	}
	s, err := broker.New(broker.Config{NoSocket: true, Node: uint16(node), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 9, 0, node})}})
	if err != nil {
		return nil, nil, nil, err
	}
	if c, err = s.Client(client.Config{}); err != nil {
		return nil, nil, nil, err
	}
	file := os.NewFile(uintptr(peer), "peer")
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return nil, nil, nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Peer(conn.(*net.UnixConn))
	}()
	return ns, c, func() {
		c.Close()
		s.Close()
		<-done
		unix.Shutdown(link, unix.SHUT_RDWR)
		ns.Destroy()
		unix.Close(link)
	}, nil
}

// TestConnNetstackProcesses: two processes, each a node with a TCP stack and a
// broker of its own.
func TestConnNetstackProcesses(t *testing.T) {
	var ours, theirs [2]int // link, peer
	for i := range ours {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		ours[i], theirs[i] = fds[0], fds[1]
	}
	var files []*os.File
	for _, fd := range theirs {
		files = append(files, os.NewFile(uintptr(fd), "theirs"))
	}
	kid := startChildWith(t, childJob{Netstack: true, Eager: true}, files)
	for _, f := range files {
		f.Close()
	}
	ns, client, stop, err := netstackNode(1, ours[0], ours[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	inner, err := gonet.ListenTCP(ns, netstackAddr(1), ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	l, err := directsockets.NewListener(inner, directsockets.Config{Broker: client, Eager: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	testRelayOn(t, kid, l, true)
}

func netstackPairOf(t *testing.T, ns *stack.Stack, cfg directsockets.Config) (c, s *directsockets.Conn) {
	t.Helper()
	inner, err := gonet.ListenTCP(ns, netstackAddr(1), ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	l, err := directsockets.NewListener(inner, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	waitListener(t, cfg.Broker, l.Addr())
	d := directsockets.Dialer{Config: cfg, Shadow: netstackDial(ns)}
	a, b := connectTo(t, l, func() (net.Conn, error) { return d.Dial("tcp", l.Addr().String()) })
	return a.(*directsockets.Conn), b.(*directsockets.Conn)
}
