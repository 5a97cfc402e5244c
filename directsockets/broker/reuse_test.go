package broker

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
)

var reuseHosts atomic.Uint32

// dialFrom connects from an address that nobody else uses; port 0: any.
func dialFrom(t *testing.T, ln *net.TCPListener, host string, port uint16) connection {
	t.Helper()
	d := net.Dialer{
		LocalAddr: &net.TCPAddr{IP: net.ParseIP(host), Port: int(port)},
		Control: func(_, _ string, raw syscall.RawConn) (err error) {
			_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
			return err
		},
	}
	c, err := d.Dial("tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := ln.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	key := wire.Key{Client: c.LocalAddr().(*net.TCPAddr).AddrPort(), Server: c.RemoteAddr().(*net.TCPAddr).AddrPort()}
	return connection{c.(*net.TCPConn), s, plain(key)}
}

// A program offers a segment for its connection and resets that, and another program's connection
// to the same server gets its addresses: the server must not be handed the segment of the first.
func TestReusedAddresses(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	thief, server := dialClient(t, client.Config{Path: s.Path()}), dialClient(t, client.Config{Path: s.Path()})
	ln := listen(t, "tcp4", "127.0.0.1:0")
	server.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	brokertest.Eventually(t, "the listener is shown", func() bool { return thief.Listener(port(ln.Addr())) })
	pid := os.Getpid()
	host := fmt.Sprintf("127.%d.%d.%d", 64+pid>>8&63, pid&255, 1+reuseHosts.Add(1)&127)
	first := dialFrom(t, ln, host, 0)
	b, refused := offerFor(t, thief, first)
	bucket := first.key.Bucket()
	brokertest.Eventually(t, "the offer is shown", func() bool { _, may := server.MayHaveOffer(bucket, 0); return may })
	if err := first.client.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	first.client.Close()
	if n, err := first.server.Read(make([]byte, 1)); n != 0 || err == nil { // the reset has come
		t.Fatalf("%d, %v", n, err)
	}
	first.server.Close()
	second := dialFrom(t, ln, host, first.key.Client.Port())
	if second.key != first.key {
		t.Fatalf("%v, want %v", second.key, first.key)
	}
	if r := claimFor(t, server, second); r.err != client.ErrNone {
		t.Fatalf("the segment of another program: %v", r.err)
	}
	if why := <-refused; why != wire.Expired {
		t.Errorf("the offer: %v", why)
	}
	brokertest.Eventually(t, "the doorbell ends", b.ended)
	// The new connection's own offer is as good as any.
	own, _ := offerFor(t, server, second)
	brokertest.Eventually(t, "the offer is shown", func() bool { _, may := server.MayHaveOffer(bucket, 0); return may })
	if r := claimFor(t, server, second); r.err != nil || r.Nonce != own.nonce {
		t.Errorf("its own segment: %v", r.err)
	}
}
