package emp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/internal/leaktest"
	"exnet/test/testlab"
)

// helperEnv makes the test binary a node that joins the directory it names.
const helperEnv = "EXN_EMP_TEST_NODE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		os.Exit(runHelper(dir))
	}
	leaktest.Main(m)
}

func runHelper(dir string) int {
	id := fabric.NodeID(9)
	m, err := Join(Config{Dir: dir, Node: &id})
	if err != nil {
		return 1
	}
	os.Stdout.WriteString("ready\n")
	_ = m.Run(context.Background(), fakeLinker)
	return 0
}

// fakeLink is a link that exchanges the IDs, and then lasts until one side is
// gone.
type fakeLink struct {
	conn *net.UnixConn
	peer fabric.NodeID
	done chan struct{}
	err  error
}

func fakeLinker(conn *net.UnixConn, peer fabric.NodeID) (Link, error) {
	l := &fakeLink{conn: conn, peer: peer, done: make(chan struct{})}
	if _, err := conn.Write([]byte("link")); err != nil {
		conn.Close()
		return nil, err
	}
	buf := make([]byte, 16)
	if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "link" {
		conn.Close()
		return nil, errors.Join(errors.New("no link"), err)
	}
	go func() {
		defer close(l.done)
		_, l.err = conn.Read(buf)
		if l.err == nil {
			l.err = io.ErrUnexpectedEOF
		}
		conn.Close()
	}()
	return l, nil
}

func (l *fakeLink) Peer() fabric.NodeID   { return l.peer }
func (l *fakeLink) Done() <-chan struct{} { return l.done }
func (l *fakeLink) Err() error            { return l.err }
func (l *fakeLink) Close() error          { l.conn.Close(); <-l.done; return nil }

// node is a Member that runs.
type node struct {
	*Member
	stop func()
	log  *testlab.Output
}

func id(n fabric.NodeID) *fabric.NodeID { return &n }

func join(t *testing.T, cfg Config) *Member {
	t.Helper()
	m, err := Join(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Leave(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// start joins and runs a node until stop is called, or the test's end.
func start(t *testing.T, cfg Config, link Linker) node {
	t.Helper()
	log := new(testlab.Output)
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	m := join(t, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx, link) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return node{m, stop, log}
}

// up returns the IDs of the peers that a node is linked with.
func (n node) up() (ids []fabric.NodeID) {
	for _, p := range n.Peers() {
		if p.State == Up {
			ids = append(ids, p.Node)
		}
	}
	return ids
}

func eventually(t *testing.T, what string, within time.Duration, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func tempDir(t *testing.T) string { return filepath.Join(t.TempDir(), "lab") }

func prefixes(list ...string) (all []netip.Prefix) {
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}
