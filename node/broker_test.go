package node

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/internal/netns"
)

// TestRootClusterBrokers looks at the brokers of a cluster: one in each namespace,
// that knows the listeners of all the others.
func TestRootClusterBrokers(t *testing.T) {
	c := startCluster(t, ClusterConfig{Nodes: 3})
	if len(c.Brokers) != 3 {
		t.Fatalf("%d brokers", len(c.Brokers))
	}
	var clients []*client.Client
	for i := range c.Nodes {
		b, err := client.Dial(client.Config{In: c.Namespace(i).Do})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		clients = append(clients, b)
	}
	ln := listenIn(t, c.Namespace(2), Addr4(2).Addr())
	raw, err := ln.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	a := clients[2].Listen(client.Socket{Conn: raw}, nil)
	port := portOf(ln)
	shown := func(want bool) {
		t.Helper()
		for i, b := range clients {
			for deadline := time.Now().Add(3 * time.Minute); b.Listener(port) != want || int(b.Node()) != 1+i; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("node %d of %d: listener %v", b.Node(), 1+i, b.Listener(port))
				}
			}
		}
	}
	shown(true)
	a.Close()
	shown(false)
}

func listenIn(t *testing.T, ns *netns.NS, addr netip.Addr) (ln *net.TCPListener) {
	t.Helper()
	if err := ns.Do(func() (err error) {
		ln, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func portOf(ln *net.TCPListener) uint16 { return ln.Addr().(*net.TCPAddr).AddrPort().Port() }
