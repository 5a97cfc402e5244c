package broker

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"

	"golang.org/x/sys/unix"
)

// TestInFlight closes sockets while what shows them to the broker is on its way, or is
// being looked at: the listener is gone and the peer hears of the end at once, however
// long the broker takes.
func TestInFlight(t *testing.T) {
	p := newPair(t)
	for range 20 {
		ln := listen(t, "tcp4", "127.0.0.1:0")
		conn := connect(t, ln, ln.Addr().String())
		b := newBundle(t, conn.key)
		p.s.mu.Lock() // the broker gets no further with anything
		a := p.server.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
		p.server.Listen(client.Socket{Conn: rawOf(t, ln)}, nil).Close() // one more, behind it
		if err := p.server.Claim(client.Socket{Conn: rawOf(t, conn.server)}, func(client.Granted, error) {}); err != nil {
			t.Fatal(err)
		}
		if err := p.client.Offer(client.Socket{Conn: rawOf(t, conn.client)}, b.nonce, b.seg, b.bell, nil); err != nil {
			t.Fatal(err)
		}
		b.handedOver()
		a.Close()
		ln.Close()
		conn.server.Close()
		conn.client.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := conn.client.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the peer reads %v", err)
		}
		if c, err := net.Dial("tcp4", ln.Addr().String()); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connect to a listener that is closed: %v", err)
			if err == nil {
				c.Close()
			}
		}
		again, err := net.Listen("tcp4", ln.Addr().String())
		if err != nil {
			t.Error(err)
		} else {
			again.Close()
		}
		p.s.mu.Unlock()
		unix.Close(b.bell0)
		conn.client.Close()
	}
}

// TestListenByConnection announces where a connection was accepted, whose listener is
// closed.
func TestListenByConnection(t *testing.T) {
	p := newPair(t)
	ln := listen(t, "tcp", "[::]:0")
	conn := connect(t, ln, "127.0.0.1:"+portText(port(ln.Addr())))
	ln.Close()
	if p.client.Listener(port(ln.Addr())) {
		t.Fatal("it is announced already")
	}
	a := p.server.Listen(client.Socket{Conn: rawOf(t, conn.server)}, func(r wire.Reason) { t.Error(r) })
	brokertest.Eventually(t, "it is announced", func() bool { return p.client.Listener(port(ln.Addr())) })
	b, refused := offerFor(t, p.client, conn)
	brokertest.Eventually(t, "the offer is shown", func() bool { return p.server.Word(conn.key.Bucket())&0xffff != 0 })
	if r := claimFor(t, p.server, conn); r.err != nil || r.Nonce != b.nonce {
		t.Errorf("%+v", r)
	}
	a.Close()
	brokertest.Eventually(t, "it is not any more", func() bool { return !p.client.Listener(port(ln.Addr())) })
	if len(refused) != 0 {
		t.Error("refused")
	}
}
