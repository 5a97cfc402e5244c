package directsockets_test

import (
	"context"
	"net"
	"testing"

	"exnet/directsockets"
	"exnet/directsockets/broker/connstats"
)

// TestOneShot: a listener that is closed as soon as it has accepted, as one for FTP's
// data is. The connection becomes direct, and then nothing is announced any more.
func TestOneShot(t *testing.T) {
	b := startBroker(t)
	for range 20 {
		l, err := (&directsockets.ListenConfig{Config: directsockets.Config{Broker: b}}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		d := directsockets.Dialer{Config: directsockets.Config{Broker: b, Eager: true}}
		c, s := connectTo(t, l, func() (net.Conn, error) { return d.Dial("tcp", l.Addr().String()) })
		l.Close()
		makeDirect(t, c, s)
		eventually(t, "the port is not announced any more", func() bool { return !b.Listener(uint16(l.Addr().(*net.TCPAddr).Port)) })
		c.Close()
		s.Close()
	}
}

// TestOneShotClosed: a connection that is closed before it is direct keeps nothing
// announced.
func TestOneShotClosed(t *testing.T) {
	b := startBroker(t)
	l, err := (&directsockets.ListenConfig{Config: directsockets.Config{Broker: b}}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, s := connectTo(t, l, func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) })
	waitListener(t, b, l.Addr())
	l.Close()
	if !b.Listener(uint16(l.Addr().(*net.TCPAddr).Port)) {
		t.Error("not announced, though a connection of it waits")
	}
	if why := s.(*directsockets.Conn).Stats().Reason; why != directsockets.Reason(connstats.WhyNoOffer) {
		t.Errorf("the server says: %v", why)
	}
	c.Close()
	s.Close()
	eventually(t, "the port is not announced any more", func() bool { return !b.Listener(uint16(l.Addr().(*net.TCPAddr).Port)) })
}
