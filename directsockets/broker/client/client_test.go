package client

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/wire"
	"exnet/internal/leaktest"
	"exnet/internal/netns/netnstest"
	"exnet/node/rpc"

	"golang.org/x/sys/unix"
)

// fakeBroker is a socket whose connections are answered by a function.
func fakeBroker(t *testing.T, answer func(t *testing.T, c *net.UnixConn)) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "fake.sock")
	ln, err := net.ListenUnix(Network, &net.UnixAddr{Name: path, Net: Network})
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
	page, err := wire.NewPage()
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	write := func(c *net.UnixConn, m wire.Message, fds ...int) {
		b, err := m.AppendBinary(nil)
		if err == nil {
			c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
		}
	}
	welcome := wire.Message{Type: wire.Welcome, ID: 1}
	granted := wire.Message{Type: wire.Grant, ID: 2, Client: netip.MustParseAddrPort("1.1.1.1:1"), Server: netip.MustParseAddrPort("1.1.1.1:2")}
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
			write(c, welcome, page.Fd())
			write(c, wire.Message{Type: wire.Claim}, fd)
		}},
		{"WELCOME again", true, func(c *net.UnixConn, fd int) {
			write(c, welcome, page.Fd())
			write(c, welcome, page.Fd())
		}},
		{"GRANT with one", true, func(c *net.UnixConn, fd int) {
			write(c, welcome, page.Fd())
			write(c, granted, fd)
		}},
		{"GRANT that nobody asked for", true, func(c *net.UnixConn, fd int) {
			write(c, welcome, page.Fd())
			write(c, granted, fd, fd)
			write(c, wire.Message{Type: wire.None, ID: 9})
			write(c, wire.Message{Type: wire.Refused, ID: 9, Reason: wire.Expired})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			netnstest.CheckFDs(t)
			tr := brokertest.NewTracer(t)
			said := make(chan struct{}, 100)
			path := fakeBroker(t, func(t *testing.T, conn *net.UnixConn) {
				in, err := rpc.NewInbound(conn, wire.MaxLen, wire.MaxDescriptors)
				if err != nil {
					return
				}
				_, fds, _ := in.Next() // HELLO
				fds.Close()
				tt.say(conn, tr.W)
				select {
				case said <- struct{}{}:
				default:
				}
			})
			c, err := Dial(Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.Wait(context.Background()); (err == nil) != tt.connected && !errors.Is(err, ErrNoBroker) {
				t.Errorf("%v", err)
			}
			<-said
			<-said // it has tried again
			brokertest.Eventually(t, "it is not connected", func() bool { return !c.Connected() })
			c.Close()
			tr.ClosedEverywhere()
		})
	}
}

// TestClaimsOfADeadBroker has the broker die with a claim unanswered.
func TestClaimsOfADeadBroker(t *testing.T) {
	netnstest.CheckFDs(t)
	page, err := wire.NewPage()
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	path := fakeBroker(t, func(t *testing.T, conn *net.UnixConn) {
		in, err := rpc.NewInbound(conn, wire.MaxLen, wire.MaxDescriptors)
		if err != nil {
			return
		}
		_, fds, _ := in.Next()
		fds.Close()
		b, _ := wire.Message{Type: wire.Welcome}.AppendBinary(nil)
		conn.WriteMsgUnix(b, unix.UnixRights(page.Fd()), nil)
		_, fds, _ = in.Next() // CLAIM
		fds.Close()
	})
	c := dial(t, path)
	ln := listen(t)
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got := make(chan error, 1)
	if err := c.Claim(Socket{Conn: rawOf(t, conn.(*net.TCPConn))}, func(_ Granted, err error) { got <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, ErrNoBroker) {
		t.Errorf("%v", err)
	}
}

// TestListenCannotBeSent has the broker's socket fail for a listener: it is announced
// when the client has connected again. One that is closed is not worth that.
func TestListenCannotBeSent(t *testing.T) {
	netnstest.CheckFDs(t)
	page, err := wire.NewPage()
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	greeted, announced := make(chan struct{}, 10), make(chan struct{}, 10)
	path := fakeBroker(t, func(t *testing.T, conn *net.UnixConn) {
		in, err := rpc.NewInbound(conn, wire.MaxLen, wire.MaxDescriptors)
		for err == nil {
			var b []byte
			var fds rpc.Descriptors
			b, fds, err = in.Next()
			fds.Close()
			var m wire.Message
			if m.UnmarshalBinary(b) != nil {
				return
			}
			switch m.Type {
			case wire.Hello:
				b, _ := wire.Message{Type: wire.Welcome}.AppendBinary(nil)
				conn.WriteMsgUnix(b, unix.UnixRights(page.Fd()), nil)
				greeted <- struct{}{}
			case wire.Listen:
				announced <- struct{}{}
			}
		}
	})
	c := dial(t, path)
	<-greeted
	c.mu.Lock()
	c.way = failingWay{c.way}
	c.mu.Unlock()
	c.Listen(Socket{Conn: rawOf(t, listen(t))}, nil)
	<-greeted
	<-announced
	gone := listen(t)
	raw := rawOf(t, gone)
	gone.Close()
	c.Listen(Socket{Conn: raw}, nil)
	c.Listen(Socket{Conn: rawOf(t, listen(t))}, nil)
	<-announced // over the connection that is still there
	if len(greeted) != 0 || !c.Connected() {
		t.Error("the client has given up its connection for a closed listener")
	}
}

type failingWay struct{ Way }

func (failingWay) Ask(wire.Message, Socket, bool, ...int) error { return unix.ETOOMANYREFS }

// dial makes a Client that has found its broker.
func dial(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	return c
}

// listen makes a TCP listener.
func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func rawOf(t *testing.T, c any) syscall.RawConn {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestMain(m *testing.M) { leaktest.Main(m) }
