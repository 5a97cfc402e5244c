package broker

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"

	"golang.org/x/sys/unix"
)

// Addresses of the two nodes of these tests, both in this namespace.
var (
	addrA = netip.MustParseAddr("127.0.1.1")
	addrB = netip.MustParseAddr("127.0.1.2")
)

// fabricOf are two nodes with a client each, and a connection from A to B.
type fabricOf struct {
	a, b       *Server
	ca, cb     *client.Client
	conn       connection
	announced  *client.Announcement
	disconnect func()
	port       uint16
}

// join makes two brokers peers, over a socket or directly.
func join(t *testing.T, a, b *Server, socket bool) (disconnect func()) {
	t.Helper()
	if !socket {
		if err := Join(a, b); err != nil {
			t.Fatal(err)
		}
		return func() {
			a.mu.Lock()
			p := keysOf(a.peers)[0]
			a.mu.Unlock()
			a.dropPeer(p)
		}
	}
	ends := brokertest.SocketPair(t)
	done := make(chan error, 2)
	go func() { done <- a.Peer(ends[0]) }()
	go func() { done <- b.Peer(ends[1]) }()
	t.Cleanup(func() {
		ends[0].Close()
		for range 2 {
			<-done
		}
	})
	return func() { ends[0].Close() }
}

func newFabric(t *testing.T, socket bool) fabricOf {
	t.Helper()
	checkFDs(t)
	var f fabricOf
	f.a, _ = startServer(t, Config{Node: 1, Addrs: []netip.Addr{addrA}})
	f.b, _ = startServer(t, Config{Node: 2, Addrs: []netip.Addr{addrB}})
	f.ca, f.cb = dialClient(t, client.Config{Path: f.a.Path()}), dialClient(t, client.Config{Path: f.b.Path()})
	f.disconnect = join(t, f.a, f.b, socket)
	f.connect(t)
	return f
}

// connect has B's program listen, and A's connect to it.
func (f *fabricOf) connect(t *testing.T) {
	t.Helper()
	ln := listen(t, "tcp4", "127.0.1.2:0")
	f.port = port(ln.Addr())
	f.announced = f.cb.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	brokertest.Eventually(t, "A knows of the listener", func() bool { return f.ca.Listener(f.port) })
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: addrA.AsSlice()}}
	c, err := d.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := ln.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	f.conn = connection{c.(*net.TCPConn), s, plain(wire.Key{
		Client: c.LocalAddr().(*net.TCPAddr).AddrPort(), Server: c.RemoteAddr().(*net.TCPAddr).AddrPort()})}
}

// retracts has B keep offers until A takes them back.
func (f fabricOf) retracts() {
	f.b.mu.Lock()
	defer f.b.mu.Unlock()
	f.b.waiting.after = time.Hour
}

func (f fabricOf) shown(t *testing.T, want bool) {
	t.Helper()
	brokertest.Eventually(t, "the offer is shown at B, or not", func() bool {
		_, may := f.cb.MayHaveOffer(f.conn.key.Bucket(), 0)
		return may == want
	})
	if f.ca.Word(f.conn.key.Bucket()) != 0 {
		t.Error("the offer is shown at A")
	}
}

// nothingLeft fails the test if a broker still has an offer.
func (f fabricOf) nothingLeft(t *testing.T) {
	t.Helper()
	for _, s := range []*Server{f.a, f.b} {
		brokertest.Eventually(t, "no offer is left", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			n := len(s.offers) + s.waiting.offers.Len() + s.handed.offers.Len()
			for p := range s.peers {
				n += len(p.offers)
			}
			for c := range s.sessions {
				n += len(c.offers)
				if c.user.local.held[descriptors].Load() != 2*c.user.local.held[clients].Load() {
					n++ // what is being closed counts, too
				}
			}
			return n == 0
		})
	}
}

// eachWay runs a test over a socket and within the process.
func eachWay(t *testing.T, f func(t *testing.T, socket bool)) {
	t.Run("socket", func(t *testing.T) { f(t, true) })
	t.Run("joined", func(t *testing.T) { f(t, false) })
}

// What a peer in the same process holds counts for the client that has offered it; what another
// process holds does not.
func TestHandOverCounts(t *testing.T) {
	eachWay(t, func(t *testing.T, socket bool) {
		f := newFabric(t, socket)
		want := int64(2)
		if !socket {
			want = 4
		}
		b, _ := offerFor(t, f.ca, f.conn)
		f.shown(t, true)
		held := func() (n int64) {
			f.a.mu.Lock()
			defer f.a.mu.Unlock()
			for _, u := range f.a.users {
				n += u.local.held[descriptors].Load()
			}
			return n
		}
		brokertest.Eventually(t, "what it holds is counted", func() bool { return held() == want })
		f.ca.Close()
		brokertest.Eventually(t, "the doorbell has ended", b.ended)
		brokertest.Eventually(t, "it holds nothing", func() bool { return held() == 0 })
		brokertest.Eventually(t, "and is forgotten", func() bool {
			f.a.mu.Lock()
			defer f.a.mu.Unlock()
			return len(f.a.users) == 0
		})
	})
}

func TestHandOver(t *testing.T) {
	eachWay(t, func(t *testing.T, socket bool) {
		f := newFabric(t, socket)
		for range 3 {
			b, refused := offerFor(t, f.ca, f.conn)
			f.shown(t, true)
			r := claimFor(t, f.cb, f.conn)
			if r.err != nil || r.Nonce != b.nonce || r.Key != f.conn.key {
				t.Fatalf("%+v", r)
			}
			if b.ended() {
				t.Error("the doorbell has ended")
			}
			f.shown(t, false)
			f.nothingLeft(t)
			select {
			case r := <-refused:
				t.Errorf("refused: %v", r)
			default:
			}
		}
	})
}

func TestHandOverWithdrawn(t *testing.T) {
	eachWay(t, func(t *testing.T, socket bool) {
		f := newFabric(t, socket)
		f.retracts()
		b, _ := offerFor(t, f.ca, f.conn)
		f.shown(t, true)
		f.ca.Withdraw(b.nonce)
		brokertest.Eventually(t, "the doorbell has ended", b.ended)
		f.shown(t, false)
		f.nothingLeft(t)
	})
}

// A connection from an address of the namespace that is not the node's is not the peer's business.
func TestHandOverFromElsewhere(t *testing.T) {
	f := newFabric(t, true)
	ln := listen(t, "tcp4", "127.0.1.2:0")
	announced := f.cb.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	defer announced.Close()
	brokertest.Eventually(t, "A knows of the listener", func() bool { return f.ca.Listener(port(ln.Addr())) })
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := ln.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key := wire.Key{Client: c.LocalAddr().(*net.TCPAddr).AddrPort(), Server: c.RemoteAddr().(*net.TCPAddr).AddrPort()}
	_, refused := offerFor(t, f.ca, connection{c.(*net.TCPConn), s, plain(key)})
	reason(t, refused, wire.NoListener)
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	if n := keysOf(f.a.peers)[0].nextID; n != 0 {
		t.Errorf("%d offers were handed over", n)
	}
}

func TestHandOverExpires(t *testing.T) {
	eachWay(t, func(t *testing.T, socket bool) {
		f := newFabric(t, socket)
		f.b.mu.Lock()
		f.b.waiting.after = 30 * time.Millisecond
		f.b.mu.Unlock()
		b, refused := offerFor(t, f.ca, f.conn)
		reason(t, refused, wire.Expired)
		brokertest.Eventually(t, "the doorbell has ended", b.ended)
		f.nothingLeft(t)
	})
}

// TestHandOverNoAnswer has B forget the offer: A does not wait for ever.
func TestHandOverNoAnswer(t *testing.T) {
	f := newFabric(t, true)
	f.a.mu.Lock()
	f.a.handed.after = 30 * time.Millisecond
	f.a.mu.Unlock()
	_, refused := offerFor(t, f.ca, f.conn)
	reason(t, refused, wire.Unreachable)
	f.a.mu.Lock()
	n := f.a.handed.offers.Len()
	f.a.mu.Unlock()
	if n != 0 {
		t.Errorf("%d offers wait", n)
	}
}

func TestHandOverClientDies(t *testing.T) {
	eachWay(t, func(t *testing.T, socket bool) {
		f := newFabric(t, socket)
		f.retracts()
		b, _ := offerFor(t, f.ca, f.conn)
		f.shown(t, true)
		f.ca.Close()
		brokertest.Eventually(t, "the doorbell has ended", b.ended)
		f.shown(t, false)
		f.nothingLeft(t)
	})
}

// TestListenerGoes has an offer arrive where nobody listens any more.
func TestListenerGoes(t *testing.T) {
	eachWay(t, func(t *testing.T, socket bool) {
		f := newFabric(t, socket)
		// B's news has not reached A yet.
		f.b.mu.Lock()
		bounds := f.b.bounds
		f.b.bounds = make(map[bound]int)
		f.b.mu.Unlock()
		b, refused := offerFor(t, f.ca, f.conn)
		reason(t, refused, wire.NoListener)
		brokertest.Eventually(t, "the doorbell has ended", b.ended)
		f.nothingLeft(t)
		f.b.mu.Lock()
		f.b.bounds = bounds
		f.b.mu.Unlock()
		f.announced.Close()
		brokertest.Eventually(t, "A has heard", func() bool { return !f.ca.Listener(f.port) })
		_, refused = offerFor(t, f.ca, f.conn)
		reason(t, refused, wire.NoListener)
	})
}

func TestPeerGoes(t *testing.T) {
	eachWay(t, func(t *testing.T, socket bool) {
		f := newFabric(t, socket)
		b, refused := offerFor(t, f.ca, f.conn)
		f.shown(t, true)
		f.disconnect()
		reason(t, refused, wire.Unreachable)
		brokertest.Eventually(t, "the doorbell has ended", b.ended)
		brokertest.Eventually(t, "its listener is not shown", func() bool { return !f.ca.Listener(f.port) })
		f.nothingLeft(t)
		// Joined again, all is as before.
		join(t, f.a, f.b, !socket)
		brokertest.Eventually(t, "A knows of the listener again", func() bool { return f.ca.Listener(f.port) })
		offerFor(t, f.ca, f.conn)
		f.shown(t, true)
		if r := claimFor(t, f.cb, f.conn); r.err != nil {
			t.Error(r.err)
		}
	})
}

// TestServerGoes closes B: A is on its own.
func TestServerGoes(t *testing.T) {
	eachWay(t, func(t *testing.T, socket bool) {
		f := newFabric(t, socket)
		_, refused := offerFor(t, f.ca, f.conn)
		f.shown(t, true)
		f.b.Close()
		reason(t, refused, wire.Unreachable)
		brokertest.Eventually(t, "its listener is not shown", func() bool { return !f.ca.Listener(f.port) })
		if err := Join(f.a, f.b); !errors.Is(err, wire.ErrClosed) {
			t.Errorf("joined with a closed broker: %v", err)
		}
		f.nothingLeft(t)
	})
}

// localClient makes a client in the broker's process.
func localClient(t testing.TB, s *Server) *client.Client {
	t.Helper()
	c, err := s.Client(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestLocalClients is a set-up without descriptors of the connection, in one node and
// between two.
func TestLocalClients(t *testing.T) {
	checkFDs(t)
	a, _ := startServer(t, Config{Node: 1, Addrs: []netip.Addr{addrA}, NoSocket: true})
	b, stop := startServer(t, Config{Node: 2, Addrs: []netip.Addr{addrB}, NoSocket: true})
	if err := Join(a, b); err != nil {
		t.Fatal(err)
	}
	ca, cb, own := localClient(t, a), localClient(t, b), localClient(t, b)
	cb.Listen(client.Socket{Local: ap("127.0.1.2:80")}, nil)
	brokertest.Eventually(t, "the listener is shown", func() bool { return ca.Listener(80) })
	for _, from := range []*client.Client{ca, own} {
		near, far := ap("127.0.1.1:4000"), ap("127.0.1.2:80")
		if from == own {
			near = ap("127.0.1.2:4000")
		}
		key := wire.Key{Client: near, Server: far}
		bun := newBundle(t, key)
		if err := from.Offer(client.Socket{Local: near, Remote: far}, bun.nonce, bun.seg, bun.bell, func(r wire.Reason) { t.Errorf("refused: %v", r) }); err != nil {
			t.Fatal(err)
		}
		bun.handedOver()
		brokertest.Eventually(t, "the offer is shown", func() bool { _, may := cb.MayHaveOffer(key.Bucket(), 0); return may })
		got := make(chan result, 1)
		ask := func() result {
			if err := cb.Claim(client.Socket{Local: far, Remote: near}, func(g client.Granted, err error) { got <- result{g, err} }); err != nil {
				t.Fatal(err)
			}
			return <-got
		}
		r := ask()
		if r.err != nil || r.Nonce != bun.nonce || r.Key != key {
			t.Fatalf("%+v", r)
		}
		unix.Close(r.Segment)
		unix.Close(r.Bell)
		brokertest.Eventually(t, "the doorbell has ended", bun.ended)
		unix.Close(bun.bell0)
		if r := ask(); r.err != client.ErrNone {
			t.Errorf("claimed twice: %v", r.err)
		}
	}
	if err := cb.Offer(client.Socket{}, wire.Nonce{}, 0, 0, nil); !errors.Is(err, wire.ErrRule) {
		t.Errorf("an offer without addresses: %v", err)
	}
	stop()
	brokertest.Eventually(t, "the client is on its own", func() bool { return !cb.Connected() && !own.Connected() })
	if _, err := b.Client(client.Config{}); err == nil {
		t.Error("a client of a closed broker")
	}
}
