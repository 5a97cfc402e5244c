package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/internal/leaktest"
	"exnet/internal/netns/netnstest"
	"exnet/node/rpc"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(playRole(role))
	}
	leaktest.Main(m)
}

// startServer runs a broker until the test's end, or until stop is called.
func startServer(t testing.TB, cfg Config) (s *Server, stop func()) {
	t.Helper()
	if cfg.Path == "" && !cfg.NoSocket {
		cfg.Path = filepath.Join(t.TempDir(), "ds.sock")
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, s.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return s, stop
}

// dialClient makes a Client that has found the broker.
func dialClient(t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.Dial(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// listen makes a TCP listener until the test's end.
func listen(t testing.TB, network, addr string) *net.TCPListener {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.(*net.TCPListener)
}

func rawOf(t testing.TB, c syscall.Conn) syscall.RawConn {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// connection is a TCP connection, both ends.
type connection struct {
	client, server *net.TCPConn
	key            wire.Key
}

func connect(t testing.TB, ln *net.TCPListener, to string) connection {
	t.Helper()
	c, err := net.Dial("tcp", to)
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

// bundle is what is offered: a segment and both ends of the doorbell.
type bundle struct {
	nonce            wire.Nonce
	seg, bell0, bell int
}

func newBundle(t testing.TB, key wire.Key) bundle {
	t.Helper()
	var b bundle
	rand.Read(b.nonce[:])
	head := make([]byte, segEndsOff, segHeadLen)
	copy(head, segMagic)
	copy(head[segNonceOff:], b.nonce[:])
	head = wire.AppendEnds(head, key.Client, key.Server)
	fd := brokertest.File(t, head, 8192, rpc.Seals|unix.F_SEAL_SEAL)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.seg, b.bell0, b.bell = fd, pair[0], pair[1]
	return b
}

// handedOver closes what the client keeps no longer.
func (b *bundle) handedOver() {
	unix.Close(b.seg)
	unix.Close(b.bell)
}

// ended reports whether the other end of the doorbell is gone.
func (b *bundle) ended() bool {
	var buf [1]byte
	n, err := unix.Read(b.bell0, buf[:])
	return n == 0 && err == nil
}

// offerFor offers a bundle for a connection, and returns it with where a refusal goes.
func offerFor(t testing.TB, c *client.Client, conn connection) (bundle, chan wire.Reason) {
	t.Helper()
	b := newBundle(t, conn.key)
	defer b.handedOver()
	t.Cleanup(func() { unix.Close(b.bell0) })
	refused := make(chan wire.Reason, 1)
	if err := c.Offer(client.Socket{Conn: rawOf(t, conn.client)}, b.nonce, b.seg, b.bell, func(r wire.Reason) { refused <- r }); err != nil {
		t.Fatal(err)
	}
	return b, refused
}

// result is what became of a Claim.
type result struct {
	client.Granted
	err error
}

func claimFor(t testing.TB, c *client.Client, conn connection) result {
	t.Helper()
	got := make(chan result, 1)
	if err := c.Claim(client.Socket{Conn: rawOf(t, conn.server)}, func(g client.Granted, err error) { got <- result{g, err} }); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-got:
		if r.err == nil {
			t.Cleanup(func() { unix.Close(r.Segment); unix.Close(r.Bell) })
		}
		return r
	case <-time.After(3 * time.Minute):
		t.Fatal("no answer to a claim")
	}
	return result{}
}

// plain is the key in its canonical form.
func plain(k wire.Key) wire.Key {
	k.Client, k.Server = plainAddr(k.Client), plainAddr(k.Server)
	return k
}

func checkFDs(t testing.TB) { t.Helper(); netnstest.CheckFDs(t) }

func port(a net.Addr) uint16 { return a.(*net.TCPAddr).AddrPort().Port() }

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func portText(p uint16) string { return strconv.Itoa(int(p)) }

func portText64(n uint64) string { return strconv.FormatUint(n, 10) }
