package broker

import (
	"os"
	"runtime"
	"testing"
	"time"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/node/rpc/caller"
	"exnet/node/rpc/rpctest"

	"golang.org/x/sys/unix"
)

// TestSilentClients connect and say nothing: they count, and so cannot take all
// descriptors.
func TestSilentClients(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	var all []*rawClient
	for range 20 {
		all = append(all, dialRaw(t, s.Path()))
	}
	brokertest.Eventually(t, "they are counted", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		u := s.users[owner{account: caller.Account(os.Geteuid())}]
		return u != nil && u.local.held[clients].Load() == 20 && u.local.held[descriptors].Load() == 40
	})
	if got := s.Connections(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	for _, c := range all {
		c.conn.Close()
	}
	brokertest.Eventually(t, "they are gone", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.users) == 0
	})
}

// TestShare has a user take more than its share.
//
// +checklocksignore: nobody else is there
func TestShare(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	const uid = 12345
	var all []*session
	admit := func() error {
		c := &session{s: s, account: uid, stats: -1, listeners: make(map[uint32]*listener), offers: make(map[wire.Nonce]*offer)}
		err := s.addSession(c)
		if err == nil {
			all = append(all, c)
		}
		return err
	}
	for admit() == nil {
	}
	if n := min(maxClients, descriptorShare()/2); len(all) != n {
		t.Errorf("%d clients, want %d", len(all), n)
	}
	other := &session{s: s, account: uid + 1, stats: -1}
	if err := s.addSession(other); err != nil {
		t.Errorf("another user: %v", err)
	}
	s.dismissSession(other)
	s.dismissSession(all[0])
	if err := admit(); err != nil {
		t.Errorf("after one has gone: %v", err)
	}
	for _, c := range all[1:] {
		s.dismissSession(c)
	}
	if len(s.users) != 0 || len(s.sessions) != 0 {
		t.Errorf("%d users, %d sessions", len(s.users), len(s.sessions))
	}
}

// slowBell puts a socket into the queue of side 1's doorbell that takes seconds to
// close, or until end: one with data that its peer does not take, and SO_LINGER.
func slowBell(t *testing.T, b bundle, seconds int32) (end func()) {
	t.Helper()
	ln := listen(t, "tcp4", "127.0.0.1:0")
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	sa := &unix.SockaddrInet4{Port: int(port(ln.Addr())), Addr: [4]byte{127, 0, 0, 1}}
	if err := unix.Connect(fd, sa); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 1<<20); ; {
		if _, err := unix.SendmsgN(fd, buf, nil, nil, unix.MSG_DONTWAIT); err != nil {
			break
		}
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: seconds}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Sendmsg(b.bell0, []byte{1}, unix.UnixRights(fd), nil, 0); err != nil {
		t.Fatal(err)
	}
	return func() { ln.Close() } // resets what it has not accepted
}

// TestSlowClose offers doorbells that take a minute to close, ends them in every way,
// and sees that nobody else waits for it.
func TestSlowClose(t *testing.T) {
	p := newPair(t)
	var ends []func()
	slow := func() bundle {
		b := newBundle(t, p.conn.key)
		ends = append(ends, slowBell(t, b, 60))
		if err := p.client.Offer(client.Socket{Conn: rawOf(t, p.conn.client)}, b.nonce, b.seg, b.bell, nil); err != nil {
			t.Fatal(err)
		}
		b.handedOver()
		p.shown(t)
		return b
	}
	user := func() *usage {
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		return p.s.users[owner{account: caller.Account(os.Geteuid())}]
	}()
	b := slow()
	p.client.Withdraw(b.nonce)
	unix.Close(b.bell0)
	p.notShown(t)
	b = slow()
	unix.Close(b.bell0)
	began := time.Now()
	p.client.Close()
	p.notShown(t)
	for range 100 {
		if r := claimFor(t, p.server, p.conn); r.err != client.ErrNone {
			t.Fatal(r.err)
		}
	}
	if n := user.trash.Len(); n == 0 || time.Since(began) > 30*time.Second {
		t.Errorf("%d descriptors are being closed after %v", n, time.Since(began))
	}
	for _, end := range ends {
		end()
	}
	brokertest.Eventually(t, "they are closed in the end", func() bool { return user.trash.Len() == 0 })
}

// TestSlowDescriptors has clients send descriptors that take an hour to close: with a message, with
// one that the broker does not read any more, and when they are refused. Nobody waits for them.
func TestSlowDescriptors(t *testing.T) {
	s, _ := startServer(t, Config{})
	served := make(chan struct{})
	var stop []func()
	give := func(fds int) {
		ends := brokertest.SocketPair(t)
		for range 2 {
			var slow []int
			for range fds {
				fd, end := rpctest.Lingers(t)
				slow, stop = append(slow, fd), append(stop, end)
			}
			rpctest.Send(t, ends[1], []byte("no hello"), slow...)
		}
		ends[1].Close()
		go func() { // only now: whoever closes last takes an hour
			s.serveClient(ends[0])
			served <- struct{}{}
		}()
	}
	wait := func(n int) {
		t.Helper()
		for range n {
			select {
			case <-served:
			case <-time.After(time.Minute):
				t.Fatal("the broker waits for a descriptor to be closed")
			}
		}
	}
	for _, fds := range []int{1, 3, 6} {
		give(fds)
	}
	wait(3)
	s.mu.Lock()
	for _, u := range s.users { // who has descriptors that wait: this test's user
		u.local.limits[clients] = 0
	}
	s.mu.Unlock()
	before := runtime.NumGoroutine()
	for range 4 {
		give(1)
	}
	wait(4)
	brokertest.Eventually(t, "no goroutine waits for what was refused", func() bool { return runtime.NumGoroutine() <= before })
	for _, end := range stop {
		end()
	}
}

// TestQuickClose withdraws an offer: nobody else is woken to close its descriptors.
func TestQuickClose(t *testing.T) {
	p := newPair(t)
	b := newBundle(t, p.conn.key)
	defer unix.Close(b.bell0)
	if err := p.client.Offer(client.Socket{Conn: rawOf(t, p.conn.client)}, b.nonce, b.seg, b.bell, nil); err != nil {
		t.Fatal(err)
	}
	b.handedOver()
	p.shown(t)
	p.s.mu.Lock()
	o := p.s.offers[p.conn.key]
	p.s.mu.Unlock()
	bin := o.from.user.trash
	end := make(chan struct{})
	defer close(end)
	bin.Do(func() { <-end }) // so that it keeps what it is given
	p.s.withdrawOffer(o.from, b.nonce)
	if n := bin.Len(); n > 1 || !b.ended() {
		t.Errorf("%d descriptors are to be closed by another goroutine", n-1)
	}
	p.notShown(t)
}

// TestSlowWithdraw has clients of one user withdraw offers whose doorbells seem to have nothing in
// their queues, and take an hour to close: what came out of band is not seen there. One of them
// waits, and none of the others.
func TestSlowWithdraw(t *testing.T) {
	s, _ := startServer(t, Config{})
	ln := listen(t, "tcp4", "127.0.0.1:0")
	announcer := greetRaw(t, s.Path())
	announcer.show(wire.Message{Type: wire.Listen, ID: 1, Server: ap(ln.Addr().String())}, fdOf(t, ln))
	brokertest.Eventually(t, "the listener is known", func() bool { return s.page.Listeners(port(ln.Addr())) == 1 })
	const many = 5
	answered := make(chan struct{}, many)
	var ends []func()
	for range many {
		conn := connect(t, ln, ln.Addr().String())
		c, b := greetRaw(t, s.Path()), newBundle(t, conn.key)
		slow, end := rpctest.Lingers(t)
		ends = append(ends, end)
		err := unix.Sendmsg(b.bell0, []byte("x"), unix.UnixRights(slow), nil, unix.MSG_OOB)
		unix.Close(slow)
		unix.Close(b.bell0)
		if err != nil {
			t.Skip("a kernel without data out of band: ", err)
		}
		c.show(wire.Message{Type: wire.Offer, ID: 2, Nonce: b.nonce}, fdOf(t, conn.client), b.seg, b.bell)
		b.handedOver()
		c.send(wire.Message{Type: wire.Withdraw, Nonce: b.nonce})
		c.show(wire.Message{Type: wire.Claim, ID: 3}, fdOf(t, conn.client))
		go func() {
			c.conn.SetReadDeadline(time.Now().Add(3 * time.Minute))
			b, fds, err := c.in.Next()
			fds.Close()
			var m wire.Message
			if err == nil && m.UnmarshalBinary(b) == nil && m.Type == wire.None {
				answered <- struct{}{}
			}
		}()
	}
	for n := range many - 1 {
		select {
		case <-answered:
		case <-time.After(time.Minute):
			t.Errorf("only %d of %d clients are answered", n, many)
		}
		if t.Failed() {
			break
		}
	}
	for _, end := range ends {
		end()
	}
}
