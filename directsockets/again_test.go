package directsockets_test

import (
	"net"
	"testing"

	"exnet/directsockets"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
)

// announced is a broker that keeps what it is told of listeners.
type announced chan announcement

type announcement struct {
	m wire.Message
	s client.Socket
}

func (b announced) Ask(m wire.Message, s client.Socket, _ bool, _ ...int) error {
	if m.Type == wire.Listen {
		b <- announcement{m, s}
	}
	return nil
}

func (announced) Abort() {}

// TestListenerOneTooMany has a listener be one too many: it is announced again by itself, not by a
// connection, which may end soon; by one only if it is closed meanwhile.
func TestListenerOneTooMany(t *testing.T) {
	broker := make(announced, 16)
	a, _ := attachTo(t, broker)
	inner, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := directsockets.NewListener(inner, directsockets.Config{Broker: a.Client()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	next := func() announcement {
		t.Helper()
		n := <-broker
		if err := a.Handle(wire.Message{Type: wire.Refused, ID: n.m.ID, Reason: wire.TooMany}, nil); err != nil {
			t.Fatal(err)
		}
		return n
	}
	next()
	conn, peer := connectTo(t, l, func() (net.Conn, error) { return net.Dial("tcp4", l.Addr().String()) })
	move := func() {
		t.Helper()
		if _, err := peer.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	move()
	if n := next(); n.s.Remote.IsValid() {
		t.Error("a connection has announced the listener, which is open")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	move()
	for n := next(); !n.s.Remote.IsValid(); n = next() { // by itself, just before it was closed
	}
}
