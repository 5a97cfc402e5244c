package broker

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
)

// pairOf is a broker with two clients, a listener that is announced and a connection
// to it.
type pairOf struct {
	s              *Server
	stop           func()
	client, server *client.Client
	conn           connection
	announced      *client.Announcement
}

func newPair(t *testing.T) pairOf {
	t.Helper()
	checkFDs(t)
	var p pairOf
	p.s, p.stop = startServer(t, Config{})
	p.client, p.server = dialClient(t, client.Config{Path: p.s.Path()}), dialClient(t, client.Config{Path: p.s.Path()})
	ln := listen(t, "tcp4", "127.0.0.1:0")
	p.announced = p.server.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	brokertest.Eventually(t, "the listener is shown", func() bool { return p.client.Listener(port(ln.Addr())) })
	p.conn = connect(t, ln, ln.Addr().String())
	return p
}

// shown waits until an offer for the connection is.
func (p pairOf) shown(t *testing.T) {
	t.Helper()
	brokertest.Eventually(t, "the offer is shown", func() bool { _, may := p.server.MayHaveOffer(p.conn.key.Bucket(), 0); return may })
}

func (p pairOf) notShown(t *testing.T) {
	t.Helper()
	brokertest.Eventually(t, "the offer is not shown any more", func() bool { _, may := p.server.MayHaveOffer(p.conn.key.Bucket(), 0); return !may })
}

// counted fails the test if a user is said to hold more than its clients.
func (p pairOf) counted(t *testing.T) {
	t.Helper()
	brokertest.Eventually(t, "two descriptors are counted for each client", func() bool {
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		for _, u := range p.s.users {
			if u.local.held[descriptors].Load() != 2*u.local.held[clients].Load() {
				return false
			}
		}
		return true
	})
}

func reason(t *testing.T, from chan wire.Reason, want wire.Reason) {
	t.Helper()
	select {
	case got := <-from:
		if got != want {
			t.Errorf("refused: %v, want %v", got, want)
		}
	case <-time.After(3 * time.Minute):
		t.Errorf("nobody said: %v", want)
	}
}

func TestExpiry(t *testing.T) {
	p := newPair(t)
	p.s.mu.Lock()
	p.s.waiting.after = 30 * time.Millisecond
	p.s.mu.Unlock()
	for range 3 {
		b, refused := offerFor(t, p.client, p.conn)
		reason(t, refused, wire.Expired)
		brokertest.Eventually(t, "the doorbell has ended", b.ended)
		p.notShown(t)
	}
	if r := claimFor(t, p.server, p.conn); r.err != client.ErrNone {
		t.Errorf("claimed what has expired: %v", r.err)
	}
	// One after the other.
	ln := listen(t, "tcp4", "127.0.0.1:0")
	p.server.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	brokertest.Eventually(t, "the listener is shown", func() bool { return p.client.Listener(port(ln.Addr())) })
	other := connect(t, ln, ln.Addr().String())
	_, first := offerFor(t, p.client, p.conn)
	time.Sleep(10 * time.Millisecond)
	_, second := offerFor(t, p.client, other)
	reason(t, first, wire.Expired)
	reason(t, second, wire.Expired)
	p.counted(t)
	// What is claimed in time does not end.
	p.s.mu.Lock()
	p.s.waiting.after = time.Minute
	p.s.mu.Unlock()
	b, _ := offerFor(t, p.client, p.conn)
	p.shown(t)
	if r := claimFor(t, p.server, p.conn); r.err != nil || r.Nonce != b.nonce {
		t.Errorf("%+v", r)
	}
	p.counted(t)
}

func TestReplacedOffer(t *testing.T) {
	p := newPair(t)
	old, refused := offerFor(t, p.client, p.conn)
	p.shown(t)
	b, _ := offerFor(t, p.client, p.conn)
	reason(t, refused, wire.Expired)
	brokertest.Eventually(t, "the old doorbell has ended", old.ended)
	if r := claimFor(t, p.server, p.conn); r.err != nil || r.Nonce != b.nonce {
		t.Errorf("%+v", r)
	}
}

func TestWithdraw(t *testing.T) {
	p := newPair(t)
	b, refused := offerFor(t, p.client, p.conn)
	p.shown(t)
	p.client.Withdraw(b.nonce)
	brokertest.Eventually(t, "the doorbell has ended", b.ended)
	p.notShown(t)
	p.client.Withdraw(b.nonce) // again, without effect
	if r := claimFor(t, p.server, p.conn); r.err != client.ErrNone {
		t.Errorf("claimed what was withdrawn: %v", r.err)
	}
	select {
	case r := <-refused:
		t.Errorf("refused what was withdrawn: %v", r)
	default:
	}
}

func TestNoListener(t *testing.T) {
	p := newPair(t)
	p.announced.Close()
	brokertest.Eventually(t, "the listener is not shown", func() bool { return !p.client.Listener(p.conn.key.Server.Port()) })
	b, refused := offerFor(t, p.client, p.conn)
	reason(t, refused, wire.NoListener)
	brokertest.Eventually(t, "the doorbell has ended", b.ended)
}

// TestClientDies ends the client that has offered, and the one that listens.
func TestClientDies(t *testing.T) {
	p := newPair(t)
	b, _ := offerFor(t, p.client, p.conn)
	p.shown(t)
	p.client.Close()
	brokertest.Eventually(t, "the doorbell has ended", b.ended)
	p.notShown(t)
	if err := p.client.Offer(client.Socket{Conn: rawOf(t, p.conn.client)}, wire.Nonce{}, 0, 0, nil); !errors.Is(err, wire.ErrClosed) {
		t.Errorf("an offer of a closed client: %v", err)
	}
	if p.client.Connected() || p.client.Listener(p.conn.key.Server.Port()) {
		t.Error("a closed client sees something")
	}
	other := dialClient(t, client.Config{Path: p.s.Path()})
	p.server.Close()
	p.announced.Close() // nobody listens
	brokertest.Eventually(t, "its listener is not shown", func() bool { return !other.Listener(p.conn.key.Server.Port()) })
}

// TestPortGroup has several listen at one port (SO_REUSEPORT): the port is shown as
// long as one is left.
func TestPortGroup(t *testing.T) {
	p := newPair(t)
	port := p.conn.key.Server.Port()
	ln := listen(t, "tcp4", "127.0.0.9:"+portText(port))
	a := p.client.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	b := p.client.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	there := func(n int) func() bool {
		return func() bool { p.s.mu.Lock(); defer p.s.mu.Unlock(); return p.s.listeners[port] == n }
	}
	brokertest.Eventually(t, "three are there", there(3))
	if n := p.s.page.Listeners(port); n != 3 {
		t.Errorf("the page shows %d", n)
	}
	p.announced.Close()
	a.Close()
	a.Close()
	brokertest.Eventually(t, "one is there", there(1)) // two clients have said so, each in its time
	// 127.0.0.1 has none any more, though the port has.
	_, refused := offerFor(t, p.client, p.conn)
	reason(t, refused, wire.NoListener)
	if !p.client.Listener(port) {
		t.Error("the last listener is not shown")
	}
	b.Close()
	brokertest.Eventually(t, "none is shown", func() bool { return !p.client.Listener(port) })
}

// TestBrokerRestarts ends the broker: what is asked fails at once, claims that wait
// are answered, and with the next broker the listeners are there again.
func TestBrokerRestarts(t *testing.T) {
	p := newPair(t)
	port := p.conn.key.Server.Port()
	b, refused := offerFor(t, p.client, p.conn)
	p.shown(t)
	path := p.s.Path()
	p.stop()
	brokertest.Eventually(t, "the clients are on their own", func() bool { return !p.client.Connected() && !p.server.Connected() })
	brokertest.Eventually(t, "the doorbell has ended", b.ended)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	if p.client.Listener(port) || p.client.Word(0) != 0 {
		t.Error("something is seen without a broker")
	}
	if err := p.server.Claim(client.Socket{Conn: rawOf(t, p.conn.server)}, nil); !errors.Is(err, client.ErrNoBroker) {
		t.Errorf("a claim without a broker: %v", err)
	}
	select {
	case r := <-refused:
		t.Errorf("told about a refusal: %v", r)
	default:
	}
	again, _ := startServer(t, Config{Path: path})
	brokertest.Eventually(t, "the clients are back, and the listener", func() bool { return p.server.Connected() && p.client.Listener(port) })
	if again.Path() != path {
		t.Errorf("path %s", again.Path())
	}
	b, _ = offerFor(t, p.client, p.conn)
	p.shown(t)
	if r := claimFor(t, p.server, p.conn); r.err != nil || r.Nonce != b.nonce {
		t.Errorf("%+v", r)
	}
}

// Roles that the test binary plays for TestMain.
const (
	roleEnv    = "EXNET_BROKER_TEST_ROLE"
	roleBroker = "broker"
	roleClient = "client"
	roleStay   = "stay" // as roleClient, until the end of its input
)

// playRole is a broker at PathEnv until it is killed, or a client that asks one claim
// of the broker that it finds.
func playRole(role string) int {
	switch role {
	case roleBroker:
		s, err := New(Config{Path: os.Getenv(client.PathEnv)})
		if err != nil {
			println(err.Error())
			return 1
		}
		println("ready")
		_ = s.Run(context.Background())
	case roleClient, roleStay:
		c, err := client.Dial(client.Config{})
		if err != nil {
			println(err.Error())
			return 1
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if err := c.Wait(ctx); err != nil {
			println(err.Error())
			return 1
		}
		println("connected")
		if role == roleStay {
			_, _ = os.Stdin.Read(make([]byte, 1)) // until its end
		}
	}
	return 0
}

// self is the test binary in a role.
func self(role, path string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"="+role, client.PathEnv+"="+path)
	return cmd
}

// TestBrokerKilled kills the process of a broker, whose socket stays: the next one
// replaces it.
func TestBrokerKilled(t *testing.T) {
	checkFDs(t)
	path := filepath.Join(t.TempDir(), "ds.sock")
	start := func() *exec.Cmd {
		cmd := self(roleBroker, path)
		out, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var b [6]byte
		if _, err := out.Read(b[:]); err != nil || string(b[:5]) != "ready" {
			t.Fatalf("%q, %v", b, err)
		}
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		cmd.Process.Kill()
		cmd.Wait()
	}
	cmd := start()
	defer func() { kill(cmd) }()
	c := dialClient(t, client.Config{Path: path})
	ln := listen(t, "tcp4", "127.0.0.1:0")
	c.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	brokertest.Eventually(t, "the listener is shown", func() bool { return c.Listener(port(ln.Addr())) })
	if _, err := New(Config{Path: path}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second broker: %v", err)
	}
	kill(cmd)
	brokertest.Eventually(t, "the client notices", func() bool { return !c.Connected() })
	if _, err := os.Stat(path); err != nil {
		t.Errorf("no stale socket to replace: %v", err)
	}
	cmd = start()
	brokertest.Eventually(t, "the listener is shown again", func() bool { return c.Listener(port(ln.Addr())) })
}

// A client that waits for WELCOME when the broker ends is refused: hung up on, it would take the
// broker for one of another version.
func TestEndsBeforeWelcome(t *testing.T) {
	checkFDs(t)
	s, stop := startServer(t, Config{})
	c := dialRaw(t, s.Path())
	brokertest.Eventually(t, "the broker has a client", func() bool { return s.Idle() == 0 })
	stop()
	c.refused(0, wire.Expired)
	c.disconnected()
}
