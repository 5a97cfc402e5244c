package broker

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/wire"
	"exnet/internal/netns/netnstest"
	"exnet/node/rpc"
)

func TestBoundTakes(t *testing.T) {
	for _, tt := range []struct {
		at     string
		v6only bool
		to     string
		want   bool
	}{
		{"0.0.0.0", false, "10.1.1.1", true},
		{"0.0.0.0", false, "::1", false},
		{"::", false, "10.1.1.1", true},
		{"::", false, "::1", true},
		{"::", true, "10.1.1.1", false},
		{"::", true, "::1", true},
		{"10.1.1.1", false, "10.1.1.1", true},
		{"10.1.1.1", false, "10.1.1.2", false},
		{"fd00::1", true, "fd00::1", true},
		{"fd00::1", false, "fd00::2", false},
	} {
		b := bound{addr: netip.MustParseAddr(tt.at), v6only: tt.v6only}
		if got := b.isAccepting(netip.MustParseAddr(tt.to)); got != tt.want {
			t.Errorf("%+v takes %s: %v", b, tt.to, got)
		}
	}
}

// TestListeningSocket reads where sockets listen from their descriptors.
func TestListeningSocket(t *testing.T) {
	checkFDs(t)
	here, there := openDiags(t)
	for _, tt := range []struct {
		network, at, addr string
		v6only            bool
	}{
		{"tcp4", "0.0.0.0:0", "0.0.0.0", false},
		{"tcp", "[::]:0", "::", false},
		{"tcp6", "[::]:0", "::", true},
		{"tcp", "[::ffff:127.0.0.1]:0", "127.0.0.1", false},
	} {
		ln := listen(t, tt.network, tt.at)
		want := bound{netip.MustParseAddr(tt.addr), port(ln.Addr()), tt.v6only}
		b, _, err := here.findListening(proofFor(t, here, fdOf(t, ln)), want.port)
		if err != nil || b != want {
			t.Errorf("%s %s: %+v, %v, want %+v", tt.network, tt.at, b, err, want)
		}
		if _, _, err := there.findListening(proofFor(t, here, fdOf(t, ln)), want.port); !errors.Is(err, errSocket) {
			t.Errorf("of another namespace: %v", err)
		}
		if _, _, err := here.findListening(proofFor(t, here, fdOf(t, listen(t, tt.network, tt.at))), want.port); !errors.Is(err, errSocket) {
			t.Errorf("by another listener: %v", err)
		}
	}
}

// A kernel that cannot list the sockets of a protocol says so, and is not taken for one that has
// none of them.
func TestNoDiag(t *testing.T) {
	d, err := openDiag()
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	const unknown = 253 // for experiments (RFC 3692)
	any := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	if _, err := d.sendRequest(wire.DiagRequest(unknown, any, any, 0, 1<<tcpListen), unix.NLM_F_DUMP, func([]byte) {}); !errors.Is(err, errNoDiag) {
		t.Error(err)
	}
}

// openDiags opens those of this and of another namespace.
func openDiags(t *testing.T) (here, there *diag) {
	t.Helper()
	here, err := openDiag()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(here.close)
	if err := netnstest.New(t).Do(func() (err error) { there, err = openDiag(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(there.close)
	return here, there
}

// proofFor is what a descriptor for the socket fd proves.
func proofFor(t *testing.T, d *diag, fd int) proof {
	t.Helper()
	shown, err := wire.OpenProof(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(shown)
	p, err := proofOf(shown, d.dev)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestConnectedSocket has an IPv4 connection, of an IPv6 socket too (one Key), and one of IPv6:
// only its own proof will do.
func TestConnectedSocket(t *testing.T) {
	checkFDs(t)
	here, there := openDiags(t)
	for _, tt := range []struct{ network, at, host string }{
		{"tcp", "[::]:0", "127.0.0.1:"}, {"tcp4", "127.0.0.1:0", "127.0.0.1:"}, {"tcp6", "[::1]:0", "[::1]:"},
	} {
		ln := listen(t, tt.network, tt.at)
		conn := connect(t, ln, tt.host+portText(port(ln.Addr())))
		server, client := proofFor(t, here, fdOf(t, conn.server)), proofFor(t, here, fdOf(t, conn.client))
		m := wire.Message{Type: wire.Claim}
		if err := wire.Identify(&m, fdOf(t, conn.server)); err != nil || (wire.Key{Client: m.Client, Server: m.Server}) != conn.key || m.Interface != 0 {
			t.Errorf("%s: %+v, %v, want %v", tt.at, m, err, conn.key)
		}
		local, remote := m.Server, m.Client
		if of, err := here.findConnected(server, local, remote, 0); err != nil || of.zone != 0 || of.cookie == 0 {
			t.Errorf("%s: %+v, %v", tt.at, of, err)
		}
		if _, err := here.findConnected(client, remote, local, 0); err != nil {
			t.Errorf("%s: the client's end: %v", tt.at, err)
		}
		for name, err := range map[string]error{
			"the peer's proof": func() error { _, err := here.findConnected(client, local, remote, 0); return err }(),
			"a listener's proof": func() error {
				_, err := here.findConnected(proofFor(t, here, fdOf(t, ln)), local, remote, 0)
				return err
			}(),
			"no proof": func() error { _, err := here.findConnected(proof{}, local, remote, 0); return err }(),
			"another owner": func() error {
				_, err := here.findConnected(proof{server.inode, server.uid + 1}, local, remote, 0)
				return err
			}(),
			"another connection": func() error {
				_, err := here.findConnected(server, local, netip.AddrPortFrom(remote.Addr(), remote.Port()^1), 0)
				return err
			}(),
			"another namespace": func() error { _, err := there.findConnected(server, local, remote, 0); return err }(),
		} {
			if !errors.Is(err, errSocket) {
				t.Errorf("%s: %s: %v", tt.at, name, err)
			}
		}
	}
}

// TestProofKeepsNothingOpen: while a proof is held the socket can be closed: its port is
// free, and its peer is told, at once.
func TestProofKeepsNothingOpen(t *testing.T) {
	checkFDs(t)
	for range 200 {
		ln := listen(t, "tcp4", "127.0.0.1:0")
		conn := connect(t, ln, ln.Addr().String())
		var held []int
		for _, c := range []syscall.Conn{ln, conn.server} {
			if err := rawOf(t, c).Control(func(fd uintptr) {
				p, err := wire.OpenProof(int(fd))
				if err != nil {
					t.Error(err)
				}
				held = append(held, p)
			}); err != nil {
				t.Fatal(err)
			}
		}
		ln.Close()
		conn.server.Close()
		conn.client.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := conn.client.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("the peer reads %v", err)
		}
		if c, err := net.Dial("tcp4", ln.Addr().String()); !errors.Is(err, unix.ECONNREFUSED) {
			if err == nil {
				c.Close()
			}
			t.Fatalf("connect to a listener that is closed: %v", err)
		}
		rpc.Descriptors(held).Close()
		conn.client.Close()
	}
}

// TestRoutes asks the kernel which addresses are a namespace's own.
func TestRoutes(t *testing.T) {
	checkFDs(t)
	r, err := openRoutes()
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for addr, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "192.0.2.1": false, "2001:db8::1": false, "0.0.0.0": true,
	} {
		if got := r.isLocal(netip.MustParseAddr(addr), 0); got != want && addr != "0.0.0.0" {
			t.Errorf("%s: %v", addr, got)
		}
	}
	ns := netnstest.New(t)
	var far *routes
	if err := ns.Do(func() (err error) { far, err = openRoutes(); return err }); err != nil {
		t.Fatal(err)
	}
	if far.isLocal(netip.MustParseAddr("127.0.0.1"), 0) {
		t.Error("a namespace whose loopback is down has 127.0.0.1")
	}
	far.close()
	if far.isLocal(netip.MustParseAddr("127.0.0.1"), 0) {
		t.Error("it answers when it is closed")
	}
}

func TestPace(t *testing.T) {
	var p pace
	now, waited := int64(time.Hour), time.Duration(0)
	// A burst is free, then the rate holds.
	for range int(paceBurst / paceCost) {
		if w := p.addCost(now, paceCost); w != 0 {
			t.Fatalf("waits %v in a burst", w)
		}
	}
	for range 1000 {
		w := p.addCost(now, paceCost)
		waited += w
		now += int64(w)
	}
	if want := 1000 * paceCost; waited < want-paceCost || waited > want+paceCost {
		t.Errorf("1000 messages waited %v, want %v", waited, want)
	}
	// Who comes at the rate never waits, and a pause makes room again.
	for range 1000 {
		now += int64(paceCost) + 1
		if w := p.addCost(now, paceCost); w > paceCost {
			t.Fatalf("waits %v", w)
		}
	}
	now += int64(time.Second)
	if w := p.addCost(now, paceCost); w != 0 {
		t.Errorf("waits %v after a pause", w)
	}
}
