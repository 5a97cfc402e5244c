package directsockets_test

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"exnet/directsockets"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/segment"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node"
)

// maker makes the two ends of a connection.
type maker func(t *testing.T) (c1, c2 net.Conn)

// testConn runs nettest over pairs, and checks with look what they were when they
// were made and are when they are done with.
func testConn(t *testing.T, mk maker) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		c1, c2 = mk(t)
		return c1, c2, func() { c1.Close(); c2.Close() }, nil
	})
}

// mustBeDirect fails the test unless all that the pair carries from now on goes
// through memory.
func mustBeDirect(t *testing.T, conns ...net.Conn) {
	t.Helper()
	for _, c := range conns {
		c := c.(*directsockets.Conn)
		before := c.Stats()
		if !before.Direct() {
			t.Fatalf("%v", before)
		}
		t.Cleanup(func() {
			c.Close()
			after := c.Stats()
			// A write to a peer that has closed goes to the shadow, which answers; it may
			// take what its buffer holds.
			sent := after.Counters[segment.SentShadow] - before.Counters[segment.SentShadow]
			received := after.Counters[segment.ReceivedShadow] - before.Counters[segment.ReceivedShadow]
			if received > 0 || sent > 16<<20 { // the kernel lets a buffer grow
				t.Errorf("%d bytes were sent on the shadow, and %d came", sent, received)
			}
		})
	}
}

// TestConnDirect: the pair is direct, and stays so.
func TestConnDirect(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t), Eager: true}
	testConn(t, func(t *testing.T) (net.Conn, net.Conn) {
		c, s := pair(t, cfg, cfg)
		makeDirect(t, c, s)
		mustBeDirect(t, c, s)
		return c, s
	})
}

// TestConnSmall: the same in the smallest segment, whose queue and ring are mostly
// full.
func TestConnSmall(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t), Eager: true, Slots: 16, Ring: 64 << 10}
	testConn(t, func(t *testing.T) (net.Conn, net.Conn) {
		c, s := pair(t, cfg, cfg)
		makeDirect(t, c, s)
		mustBeDirect(t, c, s)
		return s, c
	})
}

// TestConnLazy: the pair becomes direct while it is tested.
func TestConnLazy(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t)}
	testConn(t, func(t *testing.T) (net.Conn, net.Conn) {
		c, s := pair(t, cfg, cfg)
		return c, s
	})
}

// TestConnNoBroker, TestConnOff and TestConnMixed: TCP, at once.
func TestConnNoBroker(t *testing.T) {
	client, err := client.Dial(client.Config{Path: t.TempDir() + "/none"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	testConn(t, func(t *testing.T) (net.Conn, net.Conn) {
		a, b := mixedPair(t, directsockets.Config{Broker: client}, true, true)
		return a, b
	})
}

func TestConnOff(t *testing.T) {
	testConn(t, func(t *testing.T) (net.Conn, net.Conn) {
		a, b := mixedPair(t, directsockets.Config{Off: true}, true, true)
		return a, b
	})
}

func TestConnMixed(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t)}
	for _, tt := range []struct {
		name           string
		client, server bool
	}{{"client", true, false}, {"server", false, true}} {
		t.Run(tt.name, func(t *testing.T) {
			testConn(t, func(t *testing.T) (net.Conn, net.Conn) { return mixedPair(t, cfg, tt.client, tt.server) })
		})
	}
}

// mixedPair connects ends of which one or both may be plain TCP.
func mixedPair(t *testing.T, cfg directsockets.Config, client, server bool) (net.Conn, net.Conn) {
	t.Helper()
	listen, dial := net.Listen, net.Dial
	if server {
		listen = func(network, address string) (net.Listener, error) {
			lc := directsockets.ListenConfig{Config: cfg}
			return lc.Listen(context.Background(), network, address)
		}
	}
	if client {
		d := directsockets.Dialer{Config: cfg}
		dial = d.Dial
	}
	l, err := listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return connectTo(t, l, func() (net.Conn, error) { return dial("tcp", l.Addr().String()) })
}

func connectTo(t testing.TB, l net.Listener, dial func() (net.Conn, error)) (client, server net.Conn) {
	t.Helper()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	client, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	server = <-accepted
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// TestConnDemoted: the pair was direct, and one end, or both, have gone back.
func TestConnDemoted(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t), Eager: true}
	for _, tt := range []struct {
		name           string
		client, server bool
	}{{"client", true, false}, {"server", false, true}, {"both", true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			testConn(t, func(t *testing.T) (net.Conn, net.Conn) {
				c, s := pair(t, cfg, cfg)
				makeDirect(t, c, s)
				if tt.client {
					if err := c.Demote(); err != nil {
						t.Fatal(err)
					}
				}
				if tt.server {
					if err := s.Demote(); err != nil {
						t.Fatal(err)
					}
				}
				return c, s
			})
		})
	}
}

// TestConnDemoting: the pair goes back while it is tested.
func TestConnDemoting(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t), Eager: true}
	testConn(t, func(t *testing.T) (net.Conn, net.Conn) {
		c, s := pair(t, cfg, cfg)
		makeDirect(t, c, s)
		for _, conn := range []*directsockets.Conn{c, s} {
			wait := time.Duration(rand.IntN(3000)) * time.Microsecond
			timer := time.AfterFunc(wait, func() { conn.Demote() })
			t.Cleanup(func() { timer.Stop() })
		}
		return c, s
	})
}

// TestConnProcesses: the ends are in two processes. The pair that is tested is two
// connections with a relay between them.
func TestConnProcesses(t *testing.T) {
	client := startBroker(t)
	for _, eager := range []bool{false, true} {
		name := "lazy"
		if eager {
			name = "direct"
		}
		t.Run(name, func(t *testing.T) {
			kid := startChild(t, childJob{Broker: brokerPath(t, client), Eager: eager}, nil)
			testRelay(t, kid, client, nil, "tcp", "127.0.0.1:0", eager)
		})
	}
	t.Run("plain", func(t *testing.T) {
		kid := startChild(t, childJob{}, nil)
		testRelay(t, kid, client, nil, "tcp", "127.0.0.1:0", false)
	})
}

// testRelay tests pairs that a child relays between.
func testRelay(t *testing.T, kid *child, client *client.Client, in func(func() error) error, network, address string, direct bool) {
	t.Helper()
	lc := directsockets.ListenConfig{Config: directsockets.Config{Broker: client, Eager: direct}}
	var l net.Listener
	listen := func() (err error) {
		l, err = lc.Listen(context.Background(), network, address)
		return err
	}
	var err error
	if in != nil {
		err = in(listen)
	} else {
		err = listen()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	waitListener(t, client, l.Addr())
	testRelayOn(t, kid, l, direct)
}

// testRelayOn is testRelay with a listener.
func testRelayOn(t *testing.T, kid *child, l net.Listener, direct bool) {
	testConn(t, func(t *testing.T) (net.Conn, net.Conn) {
		conns := make(chan net.Conn, 2)
		go func() {
			for range 2 {
				c, err := l.Accept()
				if err != nil {
					t.Error(err)
				}
				conns <- c
			}
		}()
		kid.tell(t, childOrder{Do: "relay", Dial: l.Addr().String()})
		a, b := <-conns, <-conns
		if direct {
			makeDirect(t, a, b)
			mustBeDirect(t, a, b)
		}
		return a, b
	})
}

// TestRootConnNodes: the ends are in two processes, on two nodes of a fabric.
func TestRootConnNodes(t *testing.T) {
	netnstest.Require(t)
	cluster, err := node.StartCluster(node.ClusterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	if len(cluster.Brokers) != 2 {
		t.Fatalf("%d brokers", len(cluster.Brokers))
	}
	spaces := [2]*netns.NS{cluster.Namespace(0), cluster.Namespace(1)}
	client := dialBrokerAs(t, client.Config{Path: cluster.Brokers[0].Path(), In: spaces[0].Do})
	for _, tt := range []struct{ name, network, address string }{
		{"ipv4", "tcp4", netip.AddrPortFrom(node.Addr4(0).Addr(), 0).String()},
		{"ipv6", "tcp6", netip.AddrPortFrom(node.Addr6(0).Addr(), 0).String()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kid := startChild(t, childJob{Broker: cluster.Brokers[1].Path(), Eager: true}, spaces[1])
			testRelay(t, kid, client, spaces[0].Do, tt.network, tt.address, true)
		})
	}
}
