package directsockets_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
	"exnet/test/testlab"
)

// testWait is how long anything may take that does not depend on how fast it is.
const testWait = 3 * time.Minute

// startBroker runs a broker of its own and returns a client of it.
func startBroker(t testing.TB) *client.Client {
	t.Helper()
	s := testlab.StartBroker(t)
	client := dialBroker(t, s.Path())
	brokerPaths.Store(client, s.Path())
	t.Cleanup(func() { brokerPaths.Delete(client) })
	return client
}

var brokerPaths sync.Map

// brokerPath is the path of the broker that startBroker made.
func brokerPath(t testing.TB, client *client.Client) string {
	t.Helper()
	path, ok := brokerPaths.Load(client)
	if !ok {
		t.Fatal("not a client of startBroker")
	}
	return path.(string)
}

// runBroker runs a broker at path until stop, which fails the test if it has failed.
func runBroker(t testing.TB, path string) (stop func()) {
	t.Helper()
	s, err := broker.New(broker.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(context.Background()) }()
	return func() {
		if err := errors.Join(s.Close(), <-done); err != nil {
			t.Error(err)
		}
	}
}

func dialBroker(t testing.TB, path string) *client.Client {
	t.Helper()
	return dialBrokerAs(t, client.Config{Path: path})
}

// dialBrokerAs is a client that has reached its broker, until the test ends.
func dialBrokerAs(t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	client, err := client.Dial(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), testWait)
	defer cancel()
	if err := client.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	return client
}

// pair connects a client and a server over the loopback.
func pair(t testing.TB, client, server directsockets.Config) (c, s *directsockets.Conn) {
	t.Helper()
	lc := directsockets.ListenConfig{Config: server}
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			close(accepted)
			return
		}
		accepted <- conn
	}()
	waitListener(t, client.Broker, l.Addr())
	d := directsockets.Dialer{Config: client}
	conn, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, ok := <-accepted
	if !ok {
		t.Fatal("not accepted")
	}
	c, s = conn.(*directsockets.Conn), other.(*directsockets.Conn)
	t.Cleanup(func() { c.Close(); s.Close() })
	return c, s
}

// waitListener waits until the broker knows of a listener.
func waitListener(t testing.TB, client *client.Client, addr net.Addr) {
	t.Helper()
	if client == nil {
		return
	}
	eventually(t, "the broker knows the listener", func() bool {
		return client.Listener(uint16(addr.(*net.TCPAddr).Port))
	})
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testWait); !ok(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("not reached: %s", what)
		}
	}
}

// makeDirect moves bytes until both directions of both ends are direct.
func makeDirect(t testing.TB, a, b net.Conn) {
	t.Helper()
	direct := func(c net.Conn) bool { return c.(*directsockets.Conn).Stats().Direct() }
	defer func() {
		if t.Failed() {
			t.Log(a.(*directsockets.Conn).Stats(), b.(*directsockets.Conn).Stats())
		}
	}()
	var buf [1]byte
	eventually(t, "both ends are direct", func() bool {
		for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
			if _, err := way[0].Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(way[1], buf[:]); err != nil {
				t.Fatal(err)
			}
		}
		return direct(a) && direct(b)
	})
}

// directPair is pair, both directions of which go through memory.
func directPair(t testing.TB) (c, s *directsockets.Conn) {
	t.Helper()
	cfg := directsockets.Config{Broker: startBroker(t), Eager: true}
	c, s = pair(t, cfg, cfg)
	makeDirect(t, c, s)
	return c, s
}
