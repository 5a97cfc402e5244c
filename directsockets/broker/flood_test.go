package broker

import (
	"net"
	"sync"
	"testing"
	"time"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"

	"golang.org/x/sys/unix"
)

// TestClientThatDoesNotRead floods the broker and reads no answer: it is
// disconnected, while others are served.
func TestClientThatDoesNotRead(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	c := greetRaw(t, s.Path())
	ln := listen(t, "tcp4", "127.0.0.1:0")
	conn := connect(t, ln, ln.Addr().String())
	fd := fdOf(t, conn.server)
	done := make(chan error, 1)
	go func() {
		b, _ := wire.Message{Type: wire.Claim, ID: 1}.AppendBinary(nil)
		c.conn.SetWriteDeadline(time.Now().Add(3 * time.Minute))
		for {
			if err := c.write(b, fd); err != nil {
				done <- err
				return
			}
		}
	}()
	other := dialClient(t, client.Config{Path: s.Path()})
	ended := false
	for n := 0; !ended; n++ {
		if r := claimFor(t, other, conn); r.err != client.ErrNone {
			t.Fatal(r.err)
		}
		select {
		case err := <-done:
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Fatal("it was not disconnected")
			}
			ended = true
		default:
		}
	}
	c.disconnected()
}

// TestOfferFlood opens as many offers as a client may, and one more; they are gone
// with the client.
func TestOfferFlood(t *testing.T) {
	netnstest.NeedFDs(t, 8000)
	checkFDs(t)
	s, _ := startServer(t, Config{})
	s.mu.Lock()
	s.waiting.after = time.Hour // none expires meanwhile
	s.mu.Unlock()
	c, other := greetRaw(t, s.Path()), dialClient(t, client.Config{Path: s.Path()})
	ln := listen(t, "tcp4", "127.0.0.1:0")
	other.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	brokertest.Eventually(t, "the listener is shown", func() bool { return other.Listener(port(ln.Addr())) })
	offer := func(id uint32) (connection, bundle) {
		conn := connect(t, ln, ln.Addr().String())
		b := newBundle(t, conn.key)
		c.show(wire.Message{Type: wire.Offer, ID: id, Nonce: b.nonce}, fdOf(t, conn.client), b.seg, b.bell)
		b.handedOver()
		return conn, b
	}
	var last bundle
	for id := range uint32(maxOffers) {
		if last.bell0 != 0 {
			unix.Close(last.bell0)
		}
		_, last = offer(1 + id)
	}
	_, more := offer(99999)
	c.refused(99999, wire.TooMany)
	brokertest.Eventually(t, "the doorbell of a refused offer ends", more.ended)
	unix.Close(more.bell0)
	if last.ended() {
		t.Error("the last good offer has ended")
	}
	c.conn.Close()
	brokertest.Eventually(t, "the offers have ended", last.ended)
	unix.Close(last.bell0)
	for bucket := range uint32(4096) {
		brokertest.Eventually(t, "no offer is shown any more", func() bool { return other.Word(bucket)&0xffff == 0 })
	}
}

// TestManyClients has thousands.
func TestManyClients(t *testing.T) {
	longtest.Skip(t) // thousands of connections
	checkFDs(t)
	s, _ := startServer(t, Config{})
	stats := statsFD(t, 4)
	defer unix.Close(stats)
	var clients []*rawClient
	for range 3000 {
		c := dialRaw(t, s.Path())
		c.send(wire.Message{Type: wire.Hello, Program: "many"}, stats)
		clients = append(clients, c)
	}
	ln := listen(t, "tcp4", "127.0.0.1:0")
	conn := connect(t, ln, ln.Addr().String())
	fd := fdOf(t, conn.server)
	for i, c := range clients {
		m, fds := c.next()
		fds.Close()
		if m.Type != wire.Welcome {
			t.Fatalf("client %d: %+v", i, m)
		}
		c.show(wire.Message{Type: wire.Listen, ID: 1}, fdOf(t, ln))
		c.show(wire.Message{Type: wire.Claim, ID: uint32(i)}, fd)
	}
	for i, c := range clients {
		if m, _ := c.next(); m.Type != wire.None || m.ID != uint32(i) {
			t.Fatalf("client %d: %+v", i, m)
		}
	}
	s.mu.Lock()
	n := s.listeners[port(ln.Addr())]
	s.mu.Unlock()
	if n != len(clients) {
		t.Errorf("%d listeners", n)
	}
	for _, c := range clients {
		c.conn.Close()
	}
	brokertest.Eventually(t, "all are gone", func() bool { return s.Idle() > 0 })
	if s.page.Listener(port(ln.Addr())) {
		t.Error("their listeners are still shown")
	}
}

// TestFloodIsPaced asks more than a user may, as two clients of it, and then as root.
func TestFloodIsPaced(t *testing.T) {
	s, _ := startServer(t, Config{NoSocket: true})
	const n = 4000
	flood := func(account caller.Account) time.Duration {
		began := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				c := &session{s: s, account: account, stats: -1}
				if err := s.addSession(c); err != nil {
					t.Error(err)
				}
				defer s.dismissSession(c)
				for range n {
					if err := c.payCost(paceCost); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		return time.Since(began)
	}
	if took, least := flood(12345), 2*n*paceCost-2*paceBurst; took < least {
		t.Errorf("%d messages in %v, at least %v is due", 2*n, took, least)
	}
	// Root does not wait; a busy machine may, but not every time.
	best := flood(0)
	for range 50 {
		if best >= 2*n*paceCost-2*paceBurst {
			best = flood(0)
		}
	}
	if best >= 2*n*paceCost-2*paceBurst {
		t.Errorf("root waits: %d messages in %v", 2*n, best)
	}
}

// TestNoDescriptorsLeft has the broker run out of descriptors: who connects waits
// until there are some again.
func TestNoDescriptorsLeft(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	t.Run("warm", func(t *testing.T) { // it ends when no descriptor of a client is left
		checkFDs(t)
		greetRaw(t, s.Path())
	})
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	// No number that is free is below the limit.
	free, err := rpc.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(free), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: s.Path()})
	time.Sleep(20 * time.Millisecond) // the broker tries
	s.mu.Lock()
	n := len(s.sessions)
	s.mu.Unlock()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err != nil || n != 0 {
		t.Fatalf("connect: %v; %d sessions", err, n)
	}
	brokertest.Eventually(t, "it is served", func() bool { return s.Idle() == 0 })
	greetRaw(t, s.Path())
}
