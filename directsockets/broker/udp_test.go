package broker

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
)

// bindUDP makes a UDP socket until the test's end.
func bindUDP(t testing.TB, network, addr string, reuse bool) *net.UDPConn {
	t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if reuse {
			_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		}
		return err
	}}
	c, err := lc.ListenPacket(context.Background(), network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.UDPConn)
}

func udpEnd(c net.PacketConn) netip.AddrPort {
	return plainAddr(c.LocalAddr().(*net.UDPAddr).AddrPort())
}

// offerFlow offers a flow.
func offerFlow(t testing.TB, c *client.Client, s *net.UDPConn, key wire.Key) (bundle, chan wire.Reason) {
	t.Helper()
	b := newBundle(t, key)
	if _, err := unix.Pwrite(b.seg, []byte(flowMagic), 0); err != nil {
		t.Fatal(err)
	}
	defer b.handedOver()
	t.Cleanup(func() { unix.Close(b.bell0) })
	refused := make(chan wire.Reason, 1)
	of := client.Socket{Conn: rawOf(t, s), UDP: true, Local: key.Client, Remote: key.Server}
	if err := c.Offer(of, b.nonce, b.seg, b.bell, func(r wire.Reason) { refused <- r }); err != nil {
		t.Fatal(err)
	}
	return b, refused
}

// cookieOfSocket is its number (SO_COOKIE).
func cookieOfSocket(t testing.TB, c *net.UDPConn) (cookie uint64) {
	t.Helper()
	if err := rawOf(t, c).Control(func(fd uintptr) { cookie, _ = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE) }); err != nil {
		t.Fatal(err)
	}
	return cookie
}

// claimFlow claims a flow to s.
func claimFlow(t testing.TB, c *client.Client, s *net.UDPConn) result {
	t.Helper()
	got := make(chan result, 1)
	if err := c.Claim(client.Socket{Conn: rawOf(t, s), UDP: true}, func(g client.Granted, err error) { got <- result{g, err} }); err != nil {
		t.Fatal(err)
	}
	r := <-got
	if r.err == nil {
		t.Cleanup(func() { unix.Close(r.Segment); unix.Close(r.Bell) })
	}
	return r
}

func takesFlows(t testing.TB, c *client.Client, s *net.UDPConn) *client.Announcement {
	t.Helper()
	a := c.Listen(client.Socket{Conn: rawOf(t, s), UDP: true}, func(r wire.Reason) { t.Errorf("refused: %v", r) })
	brokertest.Eventually(t, "the receiver is shown", func() bool { return c.Receiver(udpEnd(s).Port()) })
	return a
}

// TestFlow goes through the set-up of a flow for each kind of receiver and sender.
func TestFlow(t *testing.T) {
	for _, tt := range []struct{ name, network, at, to, from string }{
		{"IPv4", "udp4", "127.0.0.1:0", "127.0.0.1", "127.0.0.1:0"},
		{"all addresses", "udp4", "0.0.0.0:0", "127.0.0.7", "0.0.0.0:0"},
		{"IPv6", "udp6", "[::1]:0", "::1", "[::1]:0"},
		{"dual stack, IPv4", "udp", "[::]:0", "127.0.0.1", "127.0.0.1:0"},
		{"dual stack, IPv6", "udp", "[::]:0", "::1", "[::]:0"},
		{"sender of two stacks", "udp", "127.0.0.1:0", "127.0.0.1", "[::]:0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkFDs(t)
			s, _ := startServer(t, Config{})
			rx, tx := dialClient(t, client.Config{Path: s.Path()}), dialClient(t, client.Config{Path: s.Path()})
			d, from := bindUDP(t, tt.network, tt.at, false), bindUDP(t, "udp", tt.from, false)
			a := takesFlows(t, rx, d)
			if tx.Listener(udpEnd(d).Port()) {
				t.Error("it is shown as a listener of TCP")
			}
			to := netip.MustParseAddr(tt.to)
			source := netip.MustParseAddr("127.0.0.1")
			if to.Is6() {
				source = to
			}
			key := wire.Key{Client: netip.AddrPortFrom(source, udpEnd(from).Port()), Server: netip.AddrPortFrom(to, udpEnd(d).Port())}
			if r := claimFlow(t, rx, d); r.err != client.ErrNone || rx.FlowsOpen() {
				t.Errorf("claimed what was not offered: %v", r.err)
			}
			b, refused := offerFlow(t, tx, from, key)
			bucket := wire.UDPBucket(udpEnd(d).Port())
			brokertest.Eventually(t, "the offer is shown", func() bool { _, may := rx.MayHaveOffer(bucket, 0); return may && rx.FlowsOpen() })
			if r := claimFlow(t, tx, d); r.err != client.ErrNone {
				t.Errorf("claimed by a client that has not announced it: %v", r.err)
			}
			if r := claimFlow(t, rx, from); r.err != client.ErrNone {
				t.Errorf("claimed by another socket: %v", r.err)
			}
			r := claimFlow(t, rx, d)
			if r.err != nil || r.Nonce != b.nonce || r.Key != key || r.Cookie != cookieOfSocket(t, from) {
				t.Fatalf("%+v, want %v", r, key)
			}
			if rx.FlowsOpen() || b.ended() {
				t.Error("the offer is open after the claim, or its doorbell has ended")
			}
			select {
			case r := <-refused:
				t.Errorf("refused, but claimed: %v", r)
			default:
			}
			a.Close()
			brokertest.Eventually(t, "the receiver is not shown any more", func() bool { return !tx.Receiver(udpEnd(d).Port()) })
			_, refused = offerFlow(t, tx, from, key)
			if why := <-refused; why != wire.NoListener {
				t.Errorf("refused because of %v", why)
			}
		})
	}
}

// TestFlowForged has offers from ends that are not the sender's, and for receivers that are not
// there: all are refused.
func TestFlowForged(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	c := dialClient(t, client.Config{Path: s.Path()})
	d, from, victim := bindUDP(t, "udp4", "127.0.0.1:0", false), bindUDP(t, "udp4", "127.0.0.1:0", false), bindUDP(t, "udp4", "127.0.0.1:0", false)
	wide := bindUDP(t, "udp4", "0.0.0.0:0", false)
	takesFlows(t, c, d)
	takesFlows(t, c, wide)
	connected, err := net.DialUDP("udp4", nil, victim.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	free := bindUDP(t, "udp4", "127.0.0.1:0", false)
	nobody := udpEnd(free)
	free.Close()
	at := netip.MustParseAddrPort
	for name, tt := range map[string]struct {
		by   *net.UDPConn
		key  wire.Key
		want wire.Reason
	}{
		"another socket's address":  {from, wire.Key{Client: udpEnd(victim), Server: udpEnd(d)}, wire.NotOwner},
		"an address of nobody":      {from, wire.Key{Client: nobody, Server: udpEnd(d)}, wire.NotOwner},
		"an address that is remote": {wide, wire.Key{Client: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), udpEnd(wide).Port()), Server: udpEnd(d)}, wire.NotOwner},
		"a receiver that is remote": {from, wire.Key{Client: udpEnd(from), Server: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), udpEnd(wide).Port())}, wire.NotOwner},
		"connected elsewhere":       {connected, wire.Key{Client: udpEnd(connected), Server: udpEnd(d)}, wire.NotOwner},
		"nobody receives":           {from, wire.Key{Client: udpEnd(from), Server: nobody}, wire.NotOwner},
		"a plain receiver":          {from, wire.Key{Client: udpEnd(from), Server: udpEnd(victim)}, wire.NoListener},
		"two families":              {from, wire.Key{Client: udpEnd(from), Server: at("[::1]:1")}, wire.NotOwner},
	} {
		_, refused := offerFlow(t, c, tt.by, tt.key)
		if why := <-refused; why != tt.want {
			t.Errorf("%s: %v, want %v", name, why, tt.want)
		}
	}
	if c.FlowsOpen() {
		t.Error("an offer is open")
	}
	// A TCP segment is none for datagrams.
	b := newBundle(t, wire.Key{Client: udpEnd(from), Server: udpEnd(d)})
	defer b.handedOver()
	defer unix.Close(b.bell0)
	refused := make(chan wire.Reason, 1)
	of := client.Socket{Conn: rawOf(t, from), UDP: true, Local: udpEnd(from), Remote: udpEnd(d)}
	if err := c.Offer(of, b.nonce, b.seg, b.bell, func(r wire.Reason) { refused <- r }); err != nil {
		t.Fatal(err)
	}
	if why := <-refused; why != wire.BadSegment {
		t.Errorf("a segment of TCP: %v", why)
	}
}

// TestFlowOfAGroup has four receivers at one port: the one that gets a flow is the one that gets
// the sender's datagrams from the kernel.
func TestFlowOfAGroup(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	c := dialClient(t, client.Config{Path: s.Path()})
	group := []*net.UDPConn{bindUDP(t, "udp4", "127.0.0.1:0", true)}
	for range 3 {
		group = append(group, bindUDP(t, "udp4", udpEnd(group[0]).String(), true))
	}
	for _, d := range group {
		takesFlows(t, c, d)
	}
	brokertest.Eventually(t, "all are announced", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.udpPorts[udpEnd(group[0]).Port()] == len(group)
	})
	for range 8 {
		from := bindUDP(t, "udp4", "127.0.0.1:0", false)
		if _, err := from.WriteTo([]byte("x"), group[0].LocalAddr()); err != nil {
			t.Fatal(err)
		}
		key := wire.Key{Client: udpEnd(from), Server: udpEnd(group[0])}
		brokertest.Eventually(t, "a member has the datagram", func() bool {
			for _, d := range group {
				n := -1
				_ = rawOf(t, d).Control(func(fd uintptr) { n, _, _ = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_DONTWAIT|unix.MSG_PEEK) })
				if n == 1 {
					return true
				}
			}
			return false
		})
		offerFlow(t, c, from, key)
		brokertest.Eventually(t, "the offer is shown", c.FlowsOpen)
		for i, d := range group {
			r := claimFlow(t, c, d)
			n, err := 0, error(nil)
			raw := rawOf(t, d)
			_ = raw.Control(func(fd uintptr) { n, _, err = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_DONTWAIT) })
			if got := err == nil && n == 1; got != (r.err == nil) {
				t.Errorf("member %d: datagram %v, flow %v", i, got, r.err)
			}
		}
	}
}

// TestFlowOfAClosedSocket has an offer whose sender, or receiver, is another socket when it is
// claimed: it has ended.
func TestFlowOfAClosedSocket(t *testing.T) {
	for _, sender := range []bool{true, false} {
		checkFDs(t)
		s, _ := startServer(t, Config{})
		c := dialClient(t, client.Config{Path: s.Path()})
		d, from := bindUDP(t, "udp4", "127.0.0.1:0", false), bindUDP(t, "udp4", "127.0.0.1:0", false)
		takesFlows(t, c, d)
		key := wire.Key{Client: udpEnd(from), Server: udpEnd(d)}
		_, refused := offerFlow(t, c, from, key)
		brokertest.Eventually(t, "the offer is shown", c.FlowsOpen)
		if sender {
			from.Close()
			bindUDP(t, "udp4", key.Client.String(), false)
		} else {
			d.Close()
			d = bindUDP(t, "udp4", key.Server.String(), false)
			c.Listen(client.Socket{Conn: rawOf(t, d), UDP: true}, nil)
		}
		if r := claimFlow(t, c, d); r.err != client.ErrNone {
			t.Errorf("claimed: %v", r.err)
		}
		if sender {
			if why := <-refused; why != wire.Expired {
				t.Errorf("refused because of %v", why)
			}
		}
	}
}

// TestGrantOfOldClient has clients that know FLOW, and one that does not, claim a flow.
func TestGrantOfOldClient(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	rx, tx := greetRaw(t, s.Path()), dialClient(t, client.Config{Path: s.Path()})
	d, from := bindUDP(t, "udp4", "127.0.0.1:0", false), bindUDP(t, "udp4", "127.0.0.1:0", false)
	key := wire.Key{Client: udpEnd(from), Server: udpEnd(d)}
	show := func(m wire.Message) {
		t.Helper()
		m.UDP = true
		if err := rawOf(t, d).Control(func(fd uintptr) { rx.show(m, int(fd)) }); err != nil {
			t.Fatal(err)
		}
	}
	show(wire.Message{Type: wire.Listen, ID: 1})
	brokertest.Eventually(t, "the receiver is shown", func() bool { return tx.Receiver(key.Server.Port()) })
	for _, knows := range []bool{false, true} {
		b, _ := offerFlow(t, tx, from, key)
		brokertest.Eventually(t, "the offer is shown", tx.FlowsOpen)
		show(wire.Message{Type: wire.Claim, ID: 2, KnowsFlow: knows})
		m, fds := rx.next()
		fds.Close()
		want := wire.Message{Type: wire.Grant, Version: wire.Versions.Oldest, ID: 2, Nonce: b.nonce, Client: key.Client, Server: key.Server}
		if knows {
			want.Type, want.Cookie = wire.Flow, cookieOfSocket(t, from)
		}
		if m != want {
			t.Errorf("%+v, want %+v", m, want)
		}
	}
}
