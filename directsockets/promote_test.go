package directsockets_test

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/segment"
)

// hookConn is a shadow whose next Read is preceded by something.
type hookConn struct {
	net.Conn
	hook atomic.Pointer[func()]
}

func (h *hookConn) Read(p []byte) (int, error) {
	if f := h.hook.Swap(nil); f != nil {
		(*f)()
		h.Conn.SetReadDeadline(time.Time{}) // what has come has come before the wake-up
	}
	return h.Conn.Read(p)
}

// TestReadPastPromote: while the shadow is read the peer promotes, sends, demotes, and
// writes to the shadow again, so that one read brings what was sent before and after
// what is in the segment.
func TestReadPastPromote(t *testing.T) {
	b, err := broker.New(broker.Config{NoSocket: true}) // the shadow is not the kernel's to it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	client, err := b.Client(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	for range 10 {
		cfg := directsockets.Config{Broker: client, Eager: true}
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l, err := directsockets.NewListener(inner, directsockets.Config{Broker: client}) // which claims when it sends
		if err != nil {
			t.Fatal(err)
		}
		waitListener(t, client, l.Addr())
		var hook *hookConn
		d := directsockets.Dialer{Config: cfg, Shadow: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			hook = &hookConn{Conn: c}
			return hook, err
		}}
		a, s := connectTo(t, l, func() (net.Conn, error) { return d.Dial("tcp", l.Addr().String()) })
		server := s.(*directsockets.Conn)
		eventually(t, "offered", func() bool { return a.(*directsockets.Conn).Stats().Reason == directsockets.ReasonOffered })
		sent := int64(0)
		send := func(n int) {
			p := make([]byte, n)
			fillPattern(p, sent)
			sent += int64(n)
			if _, err := s.Write(p); err != nil {
				t.Error(err)
			}
		}
		f := func() {
			eventually(t, "the server is direct", func() bool {
				send(1)
				return server.Stats().TX == directsockets.ModeDirect
			})
			send(3000)
			if err := server.Demote(); err != nil {
				t.Error(err)
			}
			send(5000)
			s.(*directsockets.Conn).CloseWrite()
		}
		hook.hook.Store(&f)
		buf := make([]byte, 1<<16)
		n, err := a.Read(buf)
		for err == nil {
			var k int
			k, err = a.Read(buf[n:])
			n += k
		}
		if err != io.EOF || int64(n) != sent {
			t.Fatalf("%d bytes of %d, %v", n, sent, err)
		}
		for i, c := range buf[:n] {
			if c != patternAt(int64(i)) {
				t.Fatalf("byte %d is out of place", i)
			}
		}
		if counter(a, segment.ReceivedDirect) < 3000 {
			t.Error("the segment was not used")
		}
		a.Close()
		s.Close()
		l.Close()
	}
}

// TestFallBackSleepers: the peer, which sleeps in a Read, sends what was not taken on
// the shadow.
func TestFallBackSleepers(t *testing.T) {
	for range 20 {
		c, s := directPair(t)
		if _, err := s.Write(pattern(100_000)); err != nil {
			t.Fatal(err)
		}
		if _, err := readPattern(c, 1234); err != nil {
			t.Fatal(err)
		}
		sleeps := counter(s, segment.Sleeps)
		go s.Read(make([]byte, 1))
		eventually(t, "the peer sleeps", func() bool { return counter(s, segment.Sleeps) > sleeps })
		if err := c.Demote(); err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(testWait))
		if n, err := readPatternAt(c, 1234, 100_000-1234); err != nil {
			t.Fatal(n, err)
		}
		c.Close()
		s.Close()
	}
}
