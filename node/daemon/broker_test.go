package daemon

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/hostnet"
)

// dsClient is a program in a namespace that knows its broker.
func dsClient(t *testing.T, ns *netns.NS) *client.Client {
	t.Helper()
	c, err := client.Dial(client.Config{In: ns.Do, Program: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	eventually(t, "there is a broker", c.Connected)
	return c
}

// dsConnect makes a TCP connection between two namespaces. The zone of a link-local
// address is that of the listener's namespace; in the other one it is fromZone.
func dsConnect(t *testing.T, from, at *netns.NS, addr, fromZone string, listening func(*net.TCPListener)) (client, server *net.TCPConn) {
	t.Helper()
	var ln *net.TCPListener
	here := netip.MustParseAddr(addr)
	if err := at.Do(func() (err error) {
		ln, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(here, 0)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	listening(ln)
	if err := from.Do(func() error {
		to := netip.AddrPortFrom(here.WithZone(fromZone), ln.Addr().(*net.TCPAddr).AddrPort().Port())
		conn, err := net.DialTimeout("tcp", to.String(), 30*time.Second)
		if err == nil {
			client = conn.(*net.TCPConn)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err := ln.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

// dsSegment makes what is offered for a connection: a header as in SPEC.md, 2.1.
func dsSegment(t *testing.T, nonce wire.Nonce, client *net.TCPConn) (seg int, bells [2]int) {
	t.Helper()
	head := make([]byte, 8192)
	copy(head, "EXT-DS\x00\x01")
	copy(head[32:], nonce[:])
	for i, a := range []net.Addr{client.LocalAddr(), client.RemoteAddr()} {
		ap := a.(*net.TCPAddr).AddrPort()
		raw := ap.Addr().As16()
		copy(head[48+16*i:], raw[:])
		binary.LittleEndian.PutUint16(head[80+2*i:], ap.Port())
	}
	seg, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(seg, head, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(seg), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		t.Fatal(err)
	}
	bells, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return seg, bells
}

// setUp has two clients agree on a segment, or fails the test.
func setUp(t *testing.T, a, b *client.Client, from, at *netns.NS, addr string, zone ...string) {
	t.Helper()
	var stop func()
	near, server := dsConnect(t, from, at, addr, strings.Join(zone, ""), func(ln *net.TCPListener) {
		raw, err := ln.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		stop = b.Listen(client.Socket{Conn: raw}, func(r wire.Reason) { t.Errorf("listener refused: %v", r) }).Close
		port := ln.Addr().(*net.TCPAddr).AddrPort().Port()
		eventually(t, "the listener is known to the client", func() bool { return a.Listener(port) })
	})
	defer stop()
	nonce := wire.Nonce{1, 2, 3}
	seg, bells := dsSegment(t, nonce, near)
	defer unix.Close(bells[0])
	raw0, _ := near.SyscallConn()
	raw1, _ := server.SyscallConn()
	err := a.Offer(client.Socket{Conn: raw0}, nonce, seg, bells[1], func(r wire.Reason) { t.Errorf("refused: %v", r) })
	unix.Close(seg)
	unix.Close(bells[1])
	if err != nil {
		t.Fatal(err)
	}
	key := wire.Key{Client: plain(near.LocalAddr()), Server: plain(near.RemoteAddr())}
	eventually(t, "the offer is shown to the server", func() bool { _, may := b.MayHaveOffer(key.Bucket(), 0); return may })
	done := make(chan error, 1)
	if err := b.Claim(client.Socket{Conn: raw1}, func(g client.Granted, err error) {
		if err == nil {
			unix.Write(g.Bell, []byte{1})
			unix.Close(g.Segment)
			unix.Close(g.Bell)
		}
		done <- err
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatalf("%s: claim: %v", addr, err)
	}
	var buf [2]byte
	if n, err := unix.Read(bells[0], buf[:]); n != 1 || err != nil {
		t.Errorf("%s: the doorbell: %d bytes, %v", addr, n, err)
	}
}

func plain(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

// TestRootBrokers finds each other's clients between two nodes, within one, and after
// one was started again.
func TestRootBrokers(t *testing.T) {
	netnstest.CheckFDs(t)
	requireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	nsA, nsB := netnstest.New(t), netnstest.New(t)
	a := start(t, dir, nsA, "10.2.0.1/24", "fd00:10:2::1/64")
	b := start(t, dir, nsB, "10.2.0.2/24", "fd00:10:2::2/64")
	ca, cb := dsClient(t, nsA), dsClient(t, nsB)
	if ca.Node() != 1 || cb.Node() != 2 {
		t.Errorf("nodes %d, %d", ca.Node(), cb.Node())
	}
	setUp(t, ca, cb, nsA, nsB, "10.2.0.2")
	setUp(t, ca, cb, nsA, nsB, "fd00:10:2::2")
	zone := func(r *running) string { return strconv.Itoa(r.node.Device.Index()) }
	setUp(t, ca, cb, nsA, nsB, "fe80::2c87:4ff:fe07:2%"+zone(b), zone(a))
	setUp(t, cb, ca, nsB, nsA, "10.2.0.1")
	if err := b.node.Kernel(func(conn *hostnet.Conn, _ int, _ string) error { return conn.LoopbackUp() }); err != nil {
		t.Fatal(err)
	}
	own := dsClient(t, nsB)
	setUp(t, own, cb, nsB, nsB, "10.2.0.2")
	setUp(t, own, cb, nsB, nsB, "127.0.0.1")

	// An address that came later.
	if out, err := commandIn(nsB, "ip", "addr", "add", "10.2.0.77/24", "dev", "exn0"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "the broker has the address", func() bool {
		b.sockets.mu.Lock()
		defer b.sockets.mu.Unlock()
		return slices.Contains(b.sockets.addrs, netip.MustParseAddr("10.2.0.77"))
	})
	setUp(t, ca, cb, nsA, nsB, "10.2.0.77")

	ctl := ask(t, dir, 2)
	e := cb.Stats().Alloc(connstats.EntryInfo{Key: wire.Key{
		Client: netip.MustParseAddrPort("10.2.0.1:5"), Server: netip.MustParseAddrPort("10.2.0.2:80"),
	}, Server: true, Since: time.Now()})
	defer e.Free()
	s, err := ctl.Sockets()
	if err != nil || s.Node != 2 || len(s.Connections) != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	if c := s.Connections[0]; c.PID != os.Getpid() || c.Program != "test" || c.Mode != "shadow" || !c.Server {
		t.Errorf("%+v", c)
	}
	path := s.Broker

	// A node that ends takes its broker along; its peers do not show its listeners.
	b.stop()
	eventually(t, "its client is on its own", func() bool { return !cb.Connected() })
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", path, err)
	}
	start(t, dir, nsB, "10.2.0.2/24")
	eventually(t, "there is a broker again", cb.Connected)
	setUp(t, ca, cb, nsA, nsB, "10.2.0.2")
}

// TestRootBrokerInUse has two daemons in one namespace: one is the broker, and the
// other takes its place.
func TestRootBrokerInUse(t *testing.T) {
	netnstest.CheckFDs(t)
	requireTUN(t)
	ns := netnstest.New(t)
	first, err := broker.New(broker.Config{In: ns.Do})
	if err != nil {
		t.Fatal(err)
	}
	go first.Run(context.Background())
	dir := filepath.Join(t.TempDir(), "lab")
	d := start(t, dir, ns, "10.2.0.1/24")
	time.Sleep(10 * time.Millisecond)
	if s := d.Sockets(); s.Broker != "" || s.Connections == nil {
		t.Errorf("%+v", s)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "the daemon is the broker", func() bool { return d.Sockets().Broker != "" })
}

func commandIn(ns *netns.NS, argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := ns.Run(cmd)
	return out.String(), err
}
