package broker

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/internal/netns/netnstest"
)

// TestRootsComesLater: a client of its user's broker changes to root's when that is
// there, with its listeners, and stays.
func TestRootsComesLater(t *testing.T) {
	checkFDs(t)
	ns := netnstest.New(t)
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	var name string
	var ln *net.TCPListener
	err := ns.Do(func() (err error) {
		if name, err = client.SocketName(); err != nil {
			return err
		}
		got, err := net.Listen("tcp", "0.0.0.0:0")
		if err == nil {
			ln = got.(*net.TCPListener)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := makeDir(client.UserDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	users, stopUsers := startServer(t, Config{In: ns.Do, Path: filepath.Join(client.UserDir(), name)})
	server := dialClient(t, client.Config{In: ns.Do})
	server.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	own := dialClient(t, client.Config{In: ns.Do, Path: users.Path()})
	brokertest.Eventually(t, "the user's broker knows the listener", func() bool { return own.Listener(port(ln.Addr())) })

	roots, err := New(Config{In: ns.Do})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- roots.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := roots.Close(); err != nil {
			t.Error(err)
		}
	}()
	other := dialClient(t, client.Config{In: ns.Do, Path: roots.Path()})
	brokertest.Eventually(t, "root's broker knows the listener", func() bool { return other.Listener(port(ln.Addr())) })
	brokertest.Eventually(t, "the user's broker does not", func() bool { return !own.Listener(port(ln.Addr())) })
	if !own.Connected() {
		t.Error("a client that was told which broker to use has left it")
	}
	brokertest.Eventually(t, "the client knows that it is connected", server.Connected) // it announces first
	stopUsers()
	if !server.Connected() || !other.Listener(port(ln.Addr())) {
		t.Error("the client needs the user's broker still")
	}
}

// TestTapGoes: a client whose broker is behind a tap finds its broker itself when the tap is gone,
// as it is for a daemon that outlives its exn-run, and announces its listeners there.
func TestTapGoes(t *testing.T) {
	checkFDs(t)
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	tap, stopTap := startServer(t, Config{})
	own, _ := startServer(t, Config{})
	t.Setenv(client.TapEnv, tap.Path())
	t.Setenv(client.PathEnv, own.Path())
	server := dialClient(t, client.Config{})
	server.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	before, after := dialClient(t, client.Config{Path: tap.Path()}), dialClient(t, client.Config{Path: own.Path()})
	brokertest.Eventually(t, "the listener is known behind the tap", func() bool { return before.Listener(port(ln.Addr())) })
	if after.Listener(port(ln.Addr())) {
		t.Error("the client has passed the tap over")
	}
	stopTap()
	brokertest.Eventually(t, "the broker itself knows the listener", func() bool { return after.Listener(port(ln.Addr())) })
}
