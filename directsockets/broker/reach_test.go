package broker

import (
	"iter"
	"maps"
	"net/netip"
	"testing"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
)

// TestReach has listeners that peers can reach, and others.
func TestReach(t *testing.T) {
	checkFDs(t)
	a, _ := startServer(t, Config{Node: 1, Addrs: []netip.Addr{addrA}, NoSocket: true})
	b, _ := startServer(t, Config{Node: 2, Addrs: []netip.Addr{addrB, netip.MustParseAddr("fd00::2")}, NoSocket: true})
	ca, cb := localClient(t, a), localClient(t, b)
	cb.Listen(client.Socket{Local: ap("[::]:7001")}, nil) // before they know each other
	if err := Join(a, b); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		at    string
		port  uint16
		shown bool
	}{
		{"127.0.1.2:7002", 7002, true},
		{"0.0.0.0:7003", 7003, true},
		{"[fd00::2]:7004", 7004, true},
		{"127.0.0.1:7005", 7005, false}, // B's own
		{"127.0.1.1:7006", 7006, false},
		{"10.9.9.9:7007", 7007, false}, // of another interface
	} {
		cb.Listen(client.Socket{Local: ap(tt.at)}, nil)
		if !cb.Listener(tt.port) {
			t.Errorf("%s is not shown at B", tt.at)
		}
		if !tt.shown {
			defer func() {
				if ca.Listener(tt.port) {
					t.Errorf("%s is shown at A", tt.at)
				}
			}()
			continue
		}
		brokertest.Eventually(t, tt.at+" is shown at A", func() bool { return ca.Listener(tt.port) })
	}
	brokertest.Eventually(t, "what was there before", func() bool { return ca.Listener(7001) })
	last := cb.Listen(client.Socket{Local: ap("0.0.0.0:7999")}, nil)
	brokertest.Eventually(t, "all has arrived", func() bool { return ca.Listener(7999) })
	last.Close()
	brokertest.Eventually(t, "that it is gone has arrived", func() bool { return !ca.Listener(7999) })
}

// TestAddressesChange gives nodes other addresses while they are peers.
func TestAddressesChange(t *testing.T) {
	eachWay(t, func(t *testing.T, socket bool) {
		f := newFabric(t, socket)
		wild := listen(t, "tcp4", "0.0.0.0:0")
		f.cb.Listen(client.Socket{Conn: rawOf(t, wild)}, nil)
		brokertest.Eventually(t, "A knows of that, too", func() bool { return f.ca.Listener(port(wild.Addr())) })

		other := netip.MustParseAddr("127.0.1.3")
		f.b.SetAddrs([]netip.Addr{other})
		brokertest.Eventually(t, "the listener cannot be reached", func() bool { return !f.ca.Listener(f.port) })
		if !f.ca.Listener(port(wild.Addr())) {
			t.Error("one at all addresses is not shown any more")
		}
		ln := listen(t, "tcp4", "127.0.1.3:0")
		a := f.cb.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
		brokertest.Eventually(t, "a listener at the new address is known", func() bool { return f.ca.Listener(port(ln.Addr())) })
		f.b.SetAddrs(nil)
		brokertest.Eventually(t, "none can be reached", func() bool { return !f.ca.Listener(port(wild.Addr())) && !f.ca.Listener(port(ln.Addr())) })
		a.Close()

		f.b.SetAddrs([]netip.Addr{other, addrB})
		f.b.SetAddrs([]netip.Addr{other, addrB}) // nothing new
		brokertest.Eventually(t, "the listener can be reached again", func() bool { return f.ca.Listener(f.port) })
		brokertest.Eventually(t, "one that was closed meanwhile is not shown", func() bool { return !f.ca.Listener(port(ln.Addr())) })
		offerFor(t, f.ca, f.conn)
		f.shown(t, true)
		if r := claimFor(t, f.cb, f.conn); r.err != nil {
			t.Error(r.err)
		}
		// From an address that is not A's any more.
		f.a.SetAddrs([]netip.Addr{netip.MustParseAddr("127.0.1.9")})
		_, refused := offerFor(t, f.ca, f.conn)
		reason(t, refused, wire.NoListener)
		f.nothingLeft(t)
		f.announced.Close()
		brokertest.Eventually(t, "the last one goes", func() bool { return !f.ca.Listener(f.port) })
	})
}

// A service may lead to the port that it has itself: the page counts each listener once.
func TestServiceOfTheSamePort(t *testing.T) {
	g := NewGroup(func(uint64) (End, bool) { return End{}, false })
	g.SetServices(maps.All(map[uint16]uint16{7001: 7001}))
	s, _ := startServer(t, Config{Group: g, NoSocket: true})
	localClient(t, s).Listen(client.Socket{Local: ap("0.0.0.0:7001")}, nil)
	if n := s.page.Listeners(7001); n != 1 {
		t.Errorf("%d listeners are shown at the port, not 1", n)
	}
}

// A service that changes has the members show its port anew, and no other one's.
func TestServicesThatChange(t *testing.T) {
	g := NewGroup(func(uint64) (End, bool) { return End{}, false })
	all := make(map[uint16]uint16)
	for port := range uint16(1000) {
		all[port+1] = 9
	}
	stale := func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		n := len(g.stale)
		clear(g.stale)
		return n
	}
	g.mu.Lock()
	g.showing = true // nobody else does
	g.mu.Unlock()
	g.SetServices(maps.All(all))
	if n := stale(); n != len(all) {
		t.Errorf("%d ports are new, not %d", n, len(all))
	}
	now := maps.Clone(all)
	now[7], now[2000] = 8, 8
	delete(now, 5)
	g.SetServices(maps.All(now))
	if n := stale(); n != 3 {
		t.Errorf("%d ports are shown anew, not 3", n)
	}
}

// pairsOf yields services.
func pairsOf(all ...[2]uint16) iter.Seq2[uint16, uint16] {
	return func(yield func(port, at uint16) bool) {
		for _, s := range all {
			if !yield(s[0], s[1]) {
				return
			}
		}
	}
}

// Who joins when a service has been used already, and its listener has begun before, is shown the
// service.
func TestServiceBeforeAMember(t *testing.T) {
	g := NewGroup(func(uint64) (End, bool) { return End{}, false })
	server, _ := startServer(t, Config{Group: g, NoSocket: true})
	localClient(t, server).Listen(client.Socket{Local: ap("0.0.0.0:8080")}, nil)
	used := pairsOf([2]uint16{80, 8080})
	g.SetServices(used)
	late, _ := startServer(t, Config{Group: g})
	brokertest.Eventually(t, "the listener is shown", func() bool { return late.page.Listeners(8080) == 1 })
	g.SetServices(used) // as each look does
	brokertest.Eventually(t, "the service is shown", func() bool { return late.page.Listeners(80) == 1 })
}

// Services of one port that lead to two: the page counts the listeners of both, whichever was used
// last.
func TestServicesOfOnePort(t *testing.T) {
	g := NewGroup(func(uint64) (End, bool) { return End{}, false })
	server, _ := startServer(t, Config{Group: g, NoSocket: true})
	other, _ := startServer(t, Config{Group: g})
	c := localClient(t, server)
	c.Listen(client.Socket{Local: ap("0.0.0.0:8080")}, nil)
	g.SetServices(pairsOf([2]uint16{80, 8080}, [2]uint16{80, 3000}))
	brokertest.Eventually(t, "the service is shown", func() bool { return other.page.Listeners(80) == 1 })
	second := c.Listen(client.Socket{Local: ap("0.0.0.0:3000")}, nil)
	brokertest.Eventually(t, "the other one's listener, too", func() bool { return other.page.Listeners(80) == 2 })
	second.Close()
	brokertest.Eventually(t, "the first one's remains", func() bool { return other.page.Listeners(80) == 1 })
	g.SetServices(pairsOf([2]uint16{80, 3000}))
	brokertest.Eventually(t, "it is gone", func() bool { return other.page.Listeners(80) == 0 })
}
