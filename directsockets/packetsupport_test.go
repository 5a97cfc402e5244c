package directsockets_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"exnet/directsockets"
)

// listenUDP makes a UDP socket until the test's end.
func listenUDP(t testing.TB, cfg directsockets.Config, network, addr string) *directsockets.UDPConn {
	t.Helper()
	lc := directsockets.ListenConfig{Config: cfg}
	c, err := lc.ListenPacket(context.Background(), network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*directsockets.UDPConn)
}

// dialUDP connects one.
func dialUDP(t testing.TB, cfg directsockets.Config, to net.Addr) *directsockets.UDPConn {
	t.Helper()
	d := directsockets.Dialer{Config: cfg}
	c, err := d.Dial("udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*directsockets.UDPConn)
}

// echoUDP has a socket answer what it gets until it is closed.
func echoUDP(t testing.TB, c *directsockets.UDPConn) {
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { c.Close() })
	wg.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = c.WriteTo(buf[:n], from)
			}
		}
	})
}

// ask sends a datagram and waits for the answer.
func ask(t testing.TB, c *directsockets.UDPConn, text []byte) {
	t.Helper()
	if _, err := c.Write(text); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<16)
	n, err := c.Read(buf)
	if err != nil || !bytes.Equal(buf[:n], text) {
		t.Fatalf("%d bytes of %d, %v", n, len(text), err)
	}
}

// makeFlows asks until datagrams go through memory both ways.
func makeFlows(t testing.TB, c, s *directsockets.UDPConn) {
	t.Helper()
	for end := time.Now().Add(testWait); ; {
		ask(t, c, []byte("hello"))
		if a, b := c.Stats(), s.Stats(); a.SentDirect > 2 && a.ReceivedDirect > 2 && b.SentDirect > 2 && b.ReceivedDirect > 2 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not direct: %+v, %+v", c.Stats(), s.Stats())
		}
	}
}

// flowBetween has datagrams go through memory from a to b.
func flowBetween(t testing.TB, a, b *directsockets.UDPConn) {
	t.Helper()
	buf := make([]byte, 100)
	for end := time.Now().Add(testWait); b.Stats().ReceivedDirect < 3; {
		if _, err := a.WriteTo([]byte("hello"), b.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if n, _, err := b.ReadFrom(buf); err != nil || string(buf[:n]) != "hello" {
			t.Fatalf("%q, %v", buf[:n], err)
		}
		if time.Now().After(end) {
			t.Fatalf("not direct: %+v, %+v", a.Stats(), b.Stats())
		}
	}
}
