package broker

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeBroker is a socket whose connections are answered by a function.
func fakeBroker(t *testing.T, answer func(t *testing.T, c *net.UnixConn)) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "fake.sock")
	ln, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				answer(t, c)
			})
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return path
}

// TestHostileBroker has brokers that break the rules: the client takes nothing from
// them, leaks nothing, and goes on looking.
func TestHostileBroker(t *testing.T) {
	page, err := newPage()
	if err != nil {
		t.Fatal(err)
	}
	defer page.seg.Retire()
	write := func(c *net.UnixConn, m Message, fds ...int) {
		b, err := m.AppendBinary(nil)
		if err == nil {
			c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
		}
	}
	welcome := Message{Type: Welcome, ID: 1}
	granted := Message{Type: Grant, ID: 2, Client: ap("1.1.1.1:1"), Server: ap("1.1.1.1:2")}
	for _, tt := range []struct {
		name      string
		connected bool // for a moment
		say       func(c *net.UnixConn, fd int)
	}{
		{"it hangs up", false, func(c *net.UnixConn, fd int) {}},
		{"noise", false, func(c *net.UnixConn, fd int) { c.WriteMsgUnix([]byte{1, 2, 3}, unix.UnixRights(fd), nil) }},
		{"no WELCOME", false, func(c *net.UnixConn, fd int) { write(c, granted, fd, fd) }},
		{"WELCOME without a page", false, func(c *net.UnixConn, fd int) { write(c, welcome) }},
		{"WELCOME with two", false, func(c *net.UnixConn, fd int) { write(c, welcome, fd, fd) }},
		{"WELCOME with a pipe", false, func(c *net.UnixConn, fd int) { write(c, welcome, fd) }},
		{"a client's message", true, func(c *net.UnixConn, fd int) {
			write(c, welcome, page.seg.Fd())
			write(c, Message{Type: Claim}, fd)
		}},
		{"WELCOME again", true, func(c *net.UnixConn, fd int) {
			write(c, welcome, page.seg.Fd())
			write(c, welcome, page.seg.Fd())
		}},
		{"GRANT with one", true, func(c *net.UnixConn, fd int) {
			write(c, welcome, page.seg.Fd())
			write(c, granted, fd)
		}},
		{"GRANT that nobody asked for", true, func(c *net.UnixConn, fd int) {
			write(c, welcome, page.seg.Fd())
			write(c, granted, fd, fd)
			write(c, Message{Type: None, ID: 9})
			write(c, Message{Type: Refused, ID: 9, Reason: Expired})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkFDs(t)
			tr := newTracer(t)
			said := make(chan struct{}, 100)
			path := fakeBroker(t, func(t *testing.T, conn *net.UnixConn) {
				in, err := newInbound(conn, maxLen)
				if err != nil {
					return
				}
				_, fds, _ := in.next() // HELLO
				fds.close()
				tt.say(conn, tr.w)
				select {
				case said <- struct{}{}:
				default:
				}
			})
			c, err := Dial(ClientConfig{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.Wait(context.Background()); (err == nil) != tt.connected && !errors.Is(err, ErrNoBroker) {
				t.Errorf("%v", err)
			}
			<-said
			<-said // it has tried again
			eventually(t, "it is not connected", func() bool { return !c.Connected() })
			c.Close()
			tr.closedEverywhere()
		})
	}
}

// TestClaimsOfADeadBroker has the broker die with a claim unanswered.
func TestClaimsOfADeadBroker(t *testing.T) {
	checkFDs(t)
	page, err := newPage()
	if err != nil {
		t.Fatal(err)
	}
	defer page.seg.Retire()
	path := fakeBroker(t, func(t *testing.T, conn *net.UnixConn) {
		in, err := newInbound(conn, maxLen)
		if err != nil {
			return
		}
		_, fds, _ := in.next()
		fds.close()
		b, _ := Message{Type: Welcome}.AppendBinary(nil)
		conn.WriteMsgUnix(b, unix.UnixRights(page.seg.Fd()), nil)
		_, fds, _ = in.next() // CLAIM
		fds.close()
	})
	c := dialClient(t, ClientConfig{Path: path})
	ln := listen(t, "tcp4", "127.0.0.1:0")
	conn := connect(t, ln, ln.Addr().String())
	if r := claimFor(t, c, conn); !errors.Is(r.err, ErrNoBroker) {
		t.Errorf("%v", r.err)
	}
}

// TestNoBroker has none, and later one.
func TestNoBroker(t *testing.T) {
	checkFDs(t)
	path := filepath.Join(t.TempDir(), "later.sock")
	c, err := Dial(ClientConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Wait(context.Background()); !errors.Is(err, ErrNoBroker) {
		t.Errorf("%v", err)
	}
	if _, may := c.MayHaveOffer(5, 0); may || c.Listener(80) || c.Connected() {
		t.Error("something is seen")
	}
	ln := listen(t, "tcp4", "127.0.0.1:0")
	a := c.Listen(Socket{Conn: rawOf(t, ln)}, nil)
	closed := c.Listen(Socket{Conn: rawOf(t, ln)}, nil)
	closed.Close()
	startServer(t, Config{Path: path})
	eventually(t, "the listener is announced", func() bool { return c.Listener(port(ln.Addr())) })
	a.Close()
	eventually(t, "it is gone", func() bool { return !c.Listener(port(ln.Addr())) })
	c.Close()
	c.Listen(Socket{Conn: rawOf(t, ln)}, nil).Close()
}

// TestChaos has many goroutines offer, claim, withdraw and listen while brokers come
// and go: every claim is answered once, every doorbell ends, nothing is left.
func TestChaos(t *testing.T) {
	checkFDs(t)
	path := filepath.Join(t.TempDir(), "ds.sock")
	s, stop := startServer(t, Config{Path: path})
	client, server := dialClient(t, ClientConfig{Path: path}), dialClient(t, ClientConfig{Path: path})
	ln := listen(t, "tcp4", "127.0.0.1:0")
	server.Listen(Socket{Conn: rawOf(t, ln)}, nil)
	eventually(t, "the listener is shown", func() bool { return client.Listener(port(ln.Addr())) })
	var conns []connection
	for range 8 {
		conns = append(conns, connect(t, ln, ln.Addr().String()))
	}
	var granted, none, refused, without counter
	var bells struct {
		sync.Mutex
		all []bundle
	}
	var wg sync.WaitGroup
	// For a second, or on a busy machine until all has happened.
	began := time.Now()
	goesOn := func() bool {
		d := time.Since(began)
		return d < time.Second || d < 20*time.Second && (granted.get() == 0 || none.get() == 0 || without.get() == 0)
	}
	for i, conn := range conns {
		raw0, raw1 := rawOf(t, conn.client), rawOf(t, conn.server)
		wg.Go(func() { // side 0
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for goesOn() {
				b := newBundle(t, conn.key)
				err := client.Offer(Socket{Conn: raw0}, b.nonce, b.seg, b.bell, func(Reason) { refused.add() })
				b.handedOver()
				if err != nil {
					without.add()
					unix.Close(b.bell0)
					time.Sleep(time.Millisecond)
					continue
				}
				switch r.IntN(4) {
				case 0:
					client.Withdraw(b.nonce)
				case 1:
					client.Forget(b.nonce)
				}
				time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
				bells.Lock()
				bells.all = append(bells.all, b)
				bells.Unlock()
			}
		})
		wg.Go(func() { // side 1
			for goesOn() {
				done := make(chan struct{})
				err := server.Claim(Socket{Conn: raw1}, func(g Granted, err error) {
					defer close(done)
					switch {
					case err == nil:
						granted.add()
						unix.Close(g.Segment)
						unix.Close(g.Bell)
					case errors.Is(err, ErrNone):
						none.add()
					default:
						without.add()
					}
				})
				if err != nil {
					without.add()
					time.Sleep(time.Millisecond)
					continue
				}
				<-done
			}
		})
		wg.Go(func() {
			for goesOn() {
				a := client.Listen(Socket{Conn: rawOf(t, ln)}, nil)
				time.Sleep(time.Millisecond)
				a.Close()
			}
		})
	}
	for range 3 {
		time.Sleep(200 * time.Millisecond)
		stop()
		s, stop = startServer(t, Config{Path: path})
	}
	wg.Wait()
	client.Close()
	server.Close()
	for _, b := range bells.all {
		eventually(t, "every doorbell ends", b.ended)
		unix.Close(b.bell0)
	}
	eventually(t, "the broker is empty", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		held := 0
		for _, u := range s.users {
			held += u.clients + u.held()
		}
		return len(s.offers)+len(s.listeners)+len(s.sessions)+held+s.waiting.offers.Len() == 0
	})
	t.Logf("%d granted, %d claims in vain, %d refused, %d without a broker", granted.n, none.n, refused.n, without.n)
	if granted.n == 0 || none.n == 0 || without.n == 0 {
		t.Error("something has never happened")
	}
}

// counter counts for several goroutines.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *counter) get() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// TestListenCannotBeSent has the broker's socket fail for a listener: it is announced
// when the client has connected again.
func TestListenCannotBeSent(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	c := dialClient(t, ClientConfig{Path: s.Path()})
	ln := listen(t, "tcp4", "127.0.0.1:0")
	c.mu.Lock()
	c.way = failingWay{c.way}
	c.mu.Unlock()
	c.Listen(Socket{Conn: rawOf(t, ln)}, nil)
	eventually(t, "it is announced", func() bool { return c.Listener(port(ln.Addr())) })
	// One that is closed is not worth it.
	gone := listen(t, "tcp4", "127.0.0.1:0")
	raw := rawOf(t, gone)
	gone.Close()
	c.Listen(Socket{Conn: raw}, nil)
	time.Sleep(50 * time.Millisecond)
	if !c.Connected() {
		t.Error("the client has given up its connection for a closed listener")
	}
}

type failingWay struct{ way }

func (failingWay) ask(Message, Socket, bool, ...int) error { return unix.ETOOMANYREFS }
