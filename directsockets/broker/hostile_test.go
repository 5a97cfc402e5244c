package broker

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/internal/netns/netnstest"
	"exnet/node/rpc"

	"golang.org/x/sys/unix"
)

// TestBadMessages has clients break the rules, before and after HELLO: each is
// disconnected, what it sent is closed, and the others notice nothing.
func TestBadMessages(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	other := dialClient(t, client.Config{Path: s.Path()})
	encode := func(m wire.Message) []byte {
		b, err := m.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	mangled := encode(wire.Message{Type: wire.Claim})
	mangled[peerVersionOff]--
	for _, tt := range []struct {
		name  string
		greet bool
		b     []byte
		fds   int
	}{
		{"no header", false, []byte{1}, 0},
		{"no header, with descriptors", false, []byte{1}, 3},
		{"not HELLO", false, encode(wire.Message{Type: wire.Claim}), 1},
		{"HELLO without statistics", false, encode(wire.Message{Type: wire.Hello}), 0},
		{"HELLO with a pipe", false, encode(wire.Message{Type: wire.Hello}), 1},
		{"HELLO with two", false, encode(wire.Message{Type: wire.Hello}), 2},
		{"HELLO again", true, encode(wire.Message{Type: wire.Hello}), 1},
		{"another version", true, mangled, 1},
		{"unknown type", true, []byte{99, mangled[peerVersionOff] + 1, 8, 0, 0, 0, 0, 0}, 2},
		{"too long", true, make([]byte, 4096), 1},
		{"too short", true, encode(wire.Message{Type: wire.Offer})[:12], 3},
		{"OFFER with one", true, encode(wire.Message{Type: wire.Offer}), 1},
		{"OFFER with two", true, encode(wire.Message{Type: wire.Offer}), 2},
		{"OFFER with none", true, encode(wire.Message{Type: wire.Offer}), 0},
		{"OFFER with four", true, encode(wire.Message{Type: wire.Offer}), 4},
		{"OFFER with 200, truncated", true, encode(wire.Message{Type: wire.Offer}), 200},
		{"CLAIM with none", true, encode(wire.Message{Type: wire.Claim}), 0},
		{"UNLISTEN with one", true, encode(wire.Message{Type: wire.Unlisten}), 1},
		{"WITHDRAW with one", true, encode(wire.Message{Type: wire.Withdraw}), 1},
		{"a broker's message", true, encode(wire.Message{Type: wire.Grant, Client: ap("1.1.1.1:1"), Server: ap("1.1.1.1:2")}), 2},
		{"a broker's message without descriptors", true, encode(wire.Message{Type: wire.None}), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c *rawClient
			if tt.greet {
				c = greetRaw(t, s.Path())
			} else {
				c = dialRaw(t, s.Path())
			}
			tr := brokertest.NewTracer(t)
			var fds []int
			for range tt.fds {
				fds = append(fds, tr.W)
			}
			if err := c.write(tt.b, fds...); err != nil {
				t.Fatal(err)
			}
			c.disconnected()
			tr.ClosedEverywhere()
		})
	}
	if !other.Connected() {
		t.Error("another client was disconnected")
	}
}

// TestRandomBytes sends noise with any number of descriptors.
func TestRandomBytes(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	hello, err := wire.Message{Type: wire.Hello}.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	tr := brokertest.NewTracer(t)
	for range 300 {
		c := dialRaw(t, s.Path())
		if r.IntN(2) == 0 {
			c = greetRaw(t, s.Path())
		}
		for range r.IntN(20) {
			b := make([]byte, 1+r.IntN(70))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			if r.IntN(3) > 0 && len(b) >= wire.HeaderLen { // nearly a message
				b[peerTypeOff], b[peerVersionOff] = byte(r.IntN(13)), hello[peerVersionOff]
				b = b[:min(len(b), max(wire.HeaderLen, wire.Type(b[peerTypeOff]).Len()))]
				b[peerLengthOff], b[peerLengthOff+1] = byte(len(b)), 0
			}
			var fds []int
			for range r.IntN(6) {
				fds = append(fds, tr.W)
			}
			if c.write(b, fds...) != nil {
				break
			}
		}
		c.conn.Close()
	}
	tr.ClosedEverywhere()
	brokertest.Eventually(t, "all sessions have ended", func() bool { return s.Idle() > 0 })
	greetRaw(t, s.Path())
}

// file is a descriptor by another name, closed at the test's end.
func file(t *testing.T, fd int, err error) int {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestWrongDescriptors shows descriptors that prove nothing: each is refused and
// closed, and the client stays.
func TestWrongDescriptors(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	c := greetRaw(t, s.Path())
	ln := listen(t, "tcp4", "127.0.0.1:0")
	conn := connect(t, ln, ln.Addr().String())
	sock := func(domain, kind, proto int) int {
		fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, proto)
		return file(t, fd, err)
	}
	tr := brokertest.NewTracer(t)
	listening := fdOf(t, ln)
	connected := fdOf(t, conn.client)
	wrong := map[string]int{
		"pipe":              tr.W,
		"UDP":               sock(unix.AF_INET, unix.SOCK_DGRAM, 0),
		"Unix":              sock(unix.AF_UNIX, unix.SOCK_STREAM, 0),
		"TCP, neither":      sock(unix.AF_INET, unix.SOCK_STREAM, 0),
		"TCP, IPv6 neither": sock(unix.AF_INET6, unix.SOCK_STREAM, 0),
		"memfd":             statsFD(t, 1),
	}
	defer unix.Close(wrong["memfd"])
	for name, open := range strangeFiles {
		if fd, err := open(); err == nil { // else it is not to be had here
			wrong[name] = file(t, fd, nil)
		}
	}
	good := newBundle(t, conn.key)
	defer good.handedOver()
	defer unix.Close(good.bell0)
	id := uint32(100)
	try := func(kind string, fd int, listen, connect bool) {
		t.Helper()
		if listen {
			id++
			c.show(wire.Message{Type: wire.Listen, ID: id}, fd)
			c.refused(id, wire.NotOwner)
		}
		if connect {
			id++
			c.show(wire.Message{Type: wire.Offer, ID: id, Nonce: good.nonce}, fd, good.seg, good.bell)
			c.refused(id, wire.NotOwner)
			id++
			c.show(wire.Message{Type: wire.Claim, ID: id}, fd)
			if m, fds := c.next(); m.Type != wire.None || m.ID != id {
				fds.Close()
				t.Errorf("%s: a claim got %+v", kind, m)
			}
		}
	}
	for kind, fd := range wrong {
		try(kind, fd, true, true)
	}
	// The socket itself is no proof: it would be kept open.
	for id, m := range []wire.Message{{Type: wire.Listen, Server: ap(ln.Addr().String())}, {Type: wire.Offer, Nonce: good.nonce, Client: conn.key.Client, Server: conn.key.Server}} {
		m.ID = uint32(id)
		if m.Type == wire.Listen {
			c.send(m, listening)
		} else {
			c.send(m, connected, good.seg, good.bell)
		}
		c.refused(m.ID, wire.NotOwner)
	}
	try("listening", listening, false, true)
	tr.ClosedEverywhere()

	// Sockets of another namespace.
	ns := netnstest.New(t)
	var far int
	if err := ns.Do(func() (err error) {
		far, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Listen(far, 1)
	}); err != nil {
		t.Fatal(err)
	}
	file(t, far, nil)
	try("another namespace's", far, true, true)
}

// strangeFiles are descriptors that a client may show instead of what is due.
var strangeFiles = map[string]func() (int, error){
	"directory": func() (int, error) { return unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) },
	"path":      func() (int, error) { return unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0) },
	"/dev/zero": func() (int, error) { return unix.Open("/dev/zero", unix.O_RDWR|unix.O_CLOEXEC, 0) },
	"TUN":       func() (int, error) { return unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0) },
	"eventfd":   func() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC) },
	"epoll":     func() (int, error) { return unix.EpollCreate1(unix.EPOLL_CLOEXEC) },
	"netlink":   func() (int, error) { return unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) },
	"packet":    func() (int, error) { return unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) },
	"raw": func() (int, error) {
		return unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	},
	"vsock": func() (int, error) { return unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0) },
	"pidfd": func() (int, error) { return unix.PidfdOpen(os.Getpid(), 0) },
}

// TestStrangeStatistics says HELLO with what is no table of statistics.
func TestStrangeStatistics(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	for name, open := range strangeFiles {
		fd, err := open()
		if err != nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			defer unix.Close(fd)
			c := dialRaw(t, s.Path())
			c.send(wire.Message{Type: wire.Hello}, fd)
			c.disconnected()
		})
	}
	greetRaw(t, s.Path())
}

// TestBadSegments offers what is no segment for the connection.
func TestBadSegments(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	c := greetRaw(t, s.Path())
	ln := listen(t, "tcp4", "127.0.0.1:0")
	conn, other := connect(t, ln, ln.Addr().String()), connect(t, ln, ln.Addr().String())
	b, far := newBundle(t, conn.key), newBundle(t, other.key)
	for _, b := range []*bundle{&b, &far} {
		defer b.handedOver()
		defer unix.Close(b.bell0)
	}
	memfd := func(flags, size, seals int) int {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|flags)
		file(t, fd, err)
		if err := unix.Ftruncate(fd, int64(size)); err != nil {
			t.Fatal(err)
		}
		if seals != 0 {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
				t.Fatal(err)
			}
		}
		return fd
	}
	plain, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	seq, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file(t, seq[0], nil)
	file(t, seq[1], nil)
	type offered struct {
		name      string
		nonce     wire.Nonce
		seg, bell int
	}
	var strange []offered
	for name, open := range strangeFiles {
		if fd, err := open(); err == nil {
			file(t, fd, nil)
			strange = append(strange, offered{name, b.nonce, fd, b.bell}, offered{name + " as a doorbell", b.nonce, b.seg, fd})
		}
	}
	for i, tt := range append(strange, []offered{
		{"no memfd", b.nonce, int(plain.Fd()), b.bell},
		{"not sealed", b.nonce, memfd(unix.MFD_ALLOW_SEALING, 8192, 0), b.bell},
		{"not sealed against growing", b.nonce, memfd(unix.MFD_ALLOW_SEALING, 8192, unix.F_SEAL_SHRINK), b.bell},
		{"too small", b.nonce, memfd(unix.MFD_ALLOW_SEALING, 100, rpc.Seals), b.bell},
		{"no header", b.nonce, memfd(unix.MFD_ALLOW_SEALING, 8192, rpc.Seals), b.bell},
		{"another nonce", wire.Nonce{1}, b.seg, b.bell},
		{"another connection", far.nonce, far.seg, b.bell},
		{"a socket", b.nonce, b.bell, b.bell},
		{"the doorbell is the segment", b.nonce, b.seg, b.seg},
		{"the doorbell is TCP", b.nonce, b.seg, fdOf(t, conn.client)},
		{"the doorbell keeps messages apart", b.nonce, b.seg, seq[0]},
	}...) {
		t.Run(tt.name, func(t *testing.T) {
			c.t = t
			c.show(wire.Message{Type: wire.Offer, ID: uint32(i), Nonce: tt.nonce}, fdOf(t, conn.client), tt.seg, tt.bell)
			c.refused(uint32(i), wire.BadSegment)
		})
	}
	c.t = t
	c.show(wire.Message{Type: wire.Offer, ID: 77, Nonce: b.nonce}, fdOf(t, conn.client), b.seg, b.bell)
	c.refused(77, wire.NoListener) // the only thing that is wrong with this one
}

// TestAnothersClaim tries to get a segment that is for somebody else.
func TestAnothersClaim(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	dialer, thief := dialClient(t, client.Config{Path: s.Path()}), dialClient(t, client.Config{Path: s.Path()})
	ln := listen(t, "tcp4", "127.0.0.1:0")
	dialer.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	brokertest.Eventually(t, "the listener is shown", func() bool { return dialer.Listener(port(ln.Addr())) })
	conn, own := connect(t, ln, ln.Addr().String()), connect(t, ln, ln.Addr().String())
	b, _ := offerFor(t, dialer, conn)
	bucket := conn.key.Bucket()
	brokertest.Eventually(t, "the offer is shown", func() bool { _, may := thief.MayHaveOffer(bucket, 0); return may })
	if r := claimFor(t, thief, own); r.err != client.ErrNone {
		t.Errorf("with another connection: %v", r.err)
	}
	// Side 0 itself, which is not side 1.
	if r := claimFor(t, thief, connection{server: conn.client}); r.err != client.ErrNone {
		t.Errorf("from the wrong side: %v", r.err)
	}
	// It is not the thief's to withdraw.
	thief.Withdraw(b.nonce)
	if r := claimFor(t, dialer, conn); r.err != nil {
		t.Errorf("the owner: %v", r.err)
	}
	if b.ended() {
		t.Error("the doorbell has ended")
	}
}

// TestAnotherNamespace has a client of another namespace connect.
func TestAnotherNamespace(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	ns := netnstest.New(t)
	var c *rawClient
	if err := ns.Do(func() error { c = dialRaw(t, s.Path()); return nil }); err != nil {
		t.Fatal(err)
	}
	stats := statsFD(t, 1)
	defer unix.Close(stats)
	b, _ := wire.Message{Type: wire.Hello}.AppendBinary(nil)
	_ = c.write(b, stats) // or it is disconnected already
	c.conn.SetReadDeadline(time.Now().Add(3 * time.Minute))
	if _, fds, err := c.in.Next(); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		fds.Close()
		t.Errorf("it is answered: %v", err)
	}
}

// fdOf lends the descriptor of a socket until the test's end.
func fdOf(t testing.TB, conn interface{ File() (*os.File, error) }) int {
	t.Helper()
	f, err := conn.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return int(f.Fd())
}
