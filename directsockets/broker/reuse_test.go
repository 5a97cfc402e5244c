package broker

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
)

var reuseHosts atomic.Uint32

// dialFrom connects from an address that nobody else uses; port 0: any.
func dialFrom(t *testing.T, ln *net.TCPListener, host string, port uint16) connection {
	t.Helper()
	d := net.Dialer{
		LocalAddr: &net.TCPAddr{IP: net.ParseIP(host), Port: int(port)},
		Control: func(_, _ string, raw syscall.RawConn) (err error) {
			_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
			return err
		},
	}
	c, err := d.Dial("tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := ln.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	key := wire.Key{Client: c.LocalAddr().(*net.TCPAddr).AddrPort(), Server: c.RemoteAddr().(*net.TCPAddr).AddrPort()}
	return connection{c.(*net.TCPConn), s, plain(key)}
}

// reuse resets a connection, and makes another one from its address and port.
func reuse(t *testing.T, ln *net.TCPListener, first connection) (second connection) {
	t.Helper()
	if err := first.client.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	first.client.Close()
	if n, err := first.server.Read(make([]byte, 1)); n != 0 || err == nil { // the reset has come
		t.Fatalf("%d, %v", n, err)
	}
	first.server.Close()
	second = dialFrom(t, ln, first.key.Client.Addr().String(), first.key.Client.Port())
	if second.key != first.key {
		t.Fatalf("%v, want %v", second.key, first.key)
	}
	return second
}

// ownHost is an address that no other test connects from.
func ownHost() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 64+pid>>8&63, pid&255, 1+reuseHosts.Add(1)&127)
}

// A program offers a segment for its connection and resets that, and another program's connection
// to the same server gets its addresses: the server must not be handed the segment of the first.
func TestReusedAddresses(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	thief, server := dialClient(t, client.Config{Path: s.Path()}), dialClient(t, client.Config{Path: s.Path()})
	ln := listen(t, "tcp4", "127.0.0.1:0")
	server.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	brokertest.Eventually(t, "the listener is shown", func() bool { return thief.Listener(port(ln.Addr())) })
	first := dialFrom(t, ln, ownHost(), 0)
	b, refused := offerFor(t, thief, first)
	bucket := first.key.Bucket()
	brokertest.Eventually(t, "the offer is shown", func() bool { _, may := server.MayHaveOffer(bucket, 0); return may })
	second := reuse(t, ln, first)
	if r := claimFor(t, server, second); r.err != client.ErrNone {
		t.Fatalf("the segment of another program: %v", r.err)
	}
	if why := <-refused; why != wire.Expired {
		t.Errorf("the offer: %v", why)
	}
	brokertest.Eventually(t, "the doorbell ends", b.ended)
	// The new connection's own offer is as good as any.
	own, _ := offerFor(t, server, second)
	brokertest.Eventually(t, "the offer is shown", func() bool { _, may := server.MayHaveOffer(bucket, 0); return may })
	if r := claimFor(t, server, second); r.err != nil || r.Nonce != own.nonce {
		t.Errorf("its own segment: %v", r.err)
	}
}

// The same between two nodes: the server's broker knows which of its sockets the offer was for.
func TestReusedAddressesOfPeer(t *testing.T) {
	eachWay(t, func(t *testing.T, socket bool) {
		checkFDs(t)
		host := ownHost()
		a, _ := startServer(t, Config{Node: 1, Addrs: []netip.Addr{netip.MustParseAddr(host)}})
		b, _ := startServer(t, Config{Node: 2, Addrs: []netip.Addr{addrB}})
		f := fabricOf{a: a, b: b, ca: dialClient(t, client.Config{Path: a.Path()}), cb: dialClient(t, client.Config{Path: b.Path()})}
		join(t, a, b, socket)
		ln := listen(t, "tcp4", "127.0.1.2:0")
		f.cb.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
		brokertest.Eventually(t, "A knows of the listener", func() bool { return f.ca.Listener(port(ln.Addr())) })
		f.conn = dialFrom(t, ln, host, 0)
		bell, refused := offerFor(t, f.ca, f.conn)
		f.shown(t, true)
		f.conn = reuse(t, ln, f.conn)
		if r := claimFor(t, f.cb, f.conn); r.err != client.ErrNone {
			t.Fatalf("the segment of another program: %v", r.err)
		}
		reason(t, refused, wire.Expired)
		brokertest.Eventually(t, "the doorbell ends", bell.ended)
		f.nothingLeft(t)
		own, _ := offerFor(t, f.ca, f.conn)
		f.shown(t, true)
		if r := claimFor(t, f.cb, f.conn); r.err != nil || r.Nonce != own.nonce {
			t.Errorf("its own segment: %v", r.err)
		}
	})
}

// An offer that has left the client's broker when the connection is reset, and is found at the
// server's when another one has its addresses, is not confirmed.
func TestReusedWhileHandedOver(t *testing.T) {
	checkFDs(t)
	host := ownHost()
	s, _ := startServer(t, Config{Node: 1, Addrs: []netip.Addr{netip.MustParseAddr(host)}})
	c := dialClient(t, client.Config{Path: s.Path()})
	ln := listen(t, "tcp4", "127.0.1.2:0")
	p := dialPeer(t, s)
	p.send(peerMessage{Type: peerNode, Node: 2, Addrs: []netip.Addr{addrB}})
	p.send(peerMessage{Type: peerPort, Bound: bound{addr: addrB, port: port(ln.Addr())}, Count: 1})
	brokertest.Eventually(t, "the listener is known", func() bool { return c.Listener(port(ln.Addr())) })
	conn := dialFrom(t, ln, host, 0)
	for round := range 2 {
		bell, refused := offerFor(t, c, conn)
		hand := p.next(peerHand)
		if round == 1 {
			conn = reuse(t, ln, conn)
		}
		p.send(peerMessage{Type: peerFound, ID: hand.ID + 7}) // of no offer
		p.send(peerMessage{Type: peerFound, ID: hand.ID})
		p.send(peerMessage{Type: peerFound, ID: hand.ID})
		if round == 0 {
			if m := p.next(peerStands, peerRetract); m.Type != peerStands || m.ID != hand.ID {
				t.Errorf("%+v", m)
			}
			p.send(peerMessage{Type: peerResult, ID: hand.ID, Reason: wire.NoListener})
			reason(t, refused, wire.NoListener)
		} else {
			if m := p.next(peerStands, peerRetract); m.Type != peerRetract || m.ID != hand.ID {
				t.Errorf("%+v", m)
			}
			reason(t, refused, wire.Expired)
		}
		brokertest.Eventually(t, "the doorbell ends", bell.ended)
	}
}

// What a peer hands over can be claimed when it has confirmed that, for a connection that is there.
func TestHandOverIsConfirmed(t *testing.T) {
	checkFDs(t)
	host := ownHost()
	s, _ := startServer(t, Config{Node: 2, Addrs: []netip.Addr{addrB}})
	c := dialClient(t, client.Config{Path: s.Path()})
	ln := listen(t, "tcp4", "127.0.1.2:0")
	c.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	brokertest.Eventually(t, "the listener is shown", func() bool { return c.Listener(port(ln.Addr())) })
	p := dialPeer(t, s)
	p.send(peerMessage{Type: peerNode, Node: 1, Addrs: []netip.Addr{netip.MustParseAddr(host)}})
	hand := func(id uint32, key wire.Key) bundle {
		b := newBundle(t, key)
		p.send(peerMessage{Type: peerHand, ID: id, Nonce: b.nonce, Client: key.Client, Server: key.Server}, b.seg, b.bell)
		b.handedOver()
		t.Cleanup(func() { unix.Close(b.bell0) })
		return b
	}
	conn := dialFrom(t, ln, host, 0)
	none := hand(1, wire.Key{Client: netip.AddrPortFrom(conn.key.Client.Addr(), conn.key.Client.Port()^1), Server: conn.key.Server})
	if m := p.next(peerFound, peerResult); m.Type != peerResult || m.ID != 1 || m.Reason != wire.NoListener {
		t.Errorf("an offer for no connection: %+v", m)
	}
	brokertest.Eventually(t, "the doorbell ends", none.ended)
	b := hand(2, conn.key)
	if m := p.next(peerFound, peerResult); m.Type != peerFound || m.ID != 2 {
		t.Fatalf("%+v", m)
	}
	if r := claimFor(t, c, conn); r.err != client.ErrNone {
		t.Fatalf("it is not confirmed: %v", r.err)
	}
	p.send(peerMessage{Type: peerStands, ID: 3}) // of no offer
	p.send(peerMessage{Type: peerStands, ID: 2})
	p.send(peerMessage{Type: peerStands, ID: 2})
	brokertest.Eventually(t, "the offer is shown", func() bool { _, may := c.MayHaveOffer(conn.key.Bucket(), 0); return may })
	if r := claimFor(t, c, conn); r.err != nil || r.Nonce != b.nonce {
		t.Fatalf("%v", r.err)
	}
	if m := p.next(peerResult); m.ID != 2 || m.Reason != 0 {
		t.Errorf("%+v", m)
	}
	p.send(peerMessage{Type: peerStands, ID: 2})
}

// A connection that waits for its first data (TCP_DEFER_ACCEPT) has the number that its socket has
// when it is accepted.
func TestCookieOfHandshake(t *testing.T) {
	ln := listen(t, "tcp4", "127.0.0.1:0")
	var err error
	_ = rawOf(t, ln).Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 100) })
	if err != nil {
		t.Fatal(err)
	}
	d, err := openDiag()
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	c, err := net.Dial("tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	key := plain(wire.Key{Client: c.LocalAddr().(*net.TCPAddr).AddrPort(), Server: c.RemoteAddr().(*net.TCPAddr).AddrPort()})
	before, found, err := d.socketAt(key.Server, key.Client, 0)
	if err != nil || !found || before.cookie == 0 {
		t.Fatalf("%+v, %v, %v", before, found, err)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	s, err := ln.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var cookie uint64
	_ = rawOf(t, s).Control(func(fd uintptr) { cookie, err = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE) })
	if err != nil || cookie != before.cookie {
		t.Errorf("%#x, %v; before %#x", cookie, err, before.cookie)
	}
	for _, ifindex := range []uint32{1, 4711} { // as the socket is bound to none
		if of, found, err := d.socketAt(key.Server, key.Client, ifindex); err != nil || !found || of.cookie != cookie {
			t.Errorf("by interface %d: %+v, %v, %v", ifindex, of, found, err)
		}
	}
	if _, found, err := d.socketAt(key.Client, netip.AddrPortFrom(key.Server.Addr(), key.Server.Port()^1), 0); found || err != nil {
		t.Errorf("no such connection: %v, %v", found, err)
	}
}
