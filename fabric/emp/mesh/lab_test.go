package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/identity"
	"exnet/internal/leaktest"
	"exnet/test/testlab"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const year = 365 * 24 * time.Hour

// hang guards against hanging.
const hang = 2 * time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for begun := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > hang {
			t.Fatalf("%s: not within %v", what, hang)
		}
	}
}

// authority is a fabric's, and the files of its nodes.
type authority struct {
	t    *testing.T
	pair *identity.Pair
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	pair, err := identity.Create(identity.Name{Fabric: name, Authority: true}, nil, year)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, pair}
}

// store returns what a node has of the authority, and its trust file.
func (a *authority) store(n fabric.NodeID) (*identity.Store, string) {
	a.t.Helper()
	return a.storeOf(n, year, nil)
}

// storeOf is store with a certificate for another time, and another clock.
func (a *authority) storeOf(n fabric.NodeID, life time.Duration, now func() time.Time) (*identity.Store, string) {
	a.t.Helper()
	dir := a.t.TempDir()
	p, err := identity.Create(identity.Name{Fabric: a.pair.Name.Fabric, Node: n}, a.pair, life)
	if err == nil {
		err = p.Save(filepath.Join(dir, "node"))
	}
	trust := filepath.Join(dir, "trust")
	if err == nil {
		err = os.WriteFile(trust, identity.PEM(a.pair.Cert), 0o600)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	s, err := identity.Open(identity.Config{Key: filepath.Join(dir, "node"), Trust: trust, Fabric: a.pair.Name.Fabric, Now: now})
	if err != nil {
		a.t.Fatal(err)
	}
	return s, trust
}

// fakeLink is a link that is up as long as its connections are.
type fakeLink struct {
	peer  fabric.NodeID
	conns []net.Conn
	done  chan struct{}
	once  sync.Once
}

func newFakeLink(conns []net.Conn, peer fabric.NodeID) (emp.Link, error) {
	l := &fakeLink{peer: peer, conns: conns, done: make(chan struct{})}
	for _, c := range conns {
		if _, err := c.Write([]byte{byte(len(conns))}); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	for _, c := range conns {
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil || int(b[0]) != len(conns) {
			return nil, errors.Join(fmt.Errorf("got %v: %w", b, err), l.Close())
		}
	}
	go func() {
		_, _ = conns[0].Read(make([]byte, 1))
		_ = l.Close()
	}()
	return l, nil
}

func (l *fakeLink) Peer() fabric.NodeID   { return l.peer }
func (l *fakeLink) Done() <-chan struct{} { return l.done }
func (l *fakeLink) Err() error            { return errors.New("the link is down") }
func (l *fakeLink) Close() error {
	l.once.Do(func() {
		for _, c := range l.conns {
			hangUp(c)
		}
		close(l.done)
	})
	return nil
}

// member is a Mesh that runs.
type member struct {
	*Mesh
	t    *testing.T
	log  *testlab.Output
	stop func()
}

// logged is whether its log says s.
func (m *member) logged(s string) bool { return strings.Contains(m.log.String(), s) }

func selfOf(n fabric.NodeID) emp.Description {
	return emp.Description{
		Version: emp.Version, Node: n, Token: emp.Token(time.Now().UnixNano()), Since: time.Now(),
		Addrs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 2, byte(n >> 8), byte(n)}), 16)},
		MAC:   fmt.Sprintf("2e:87:04:07:%02x:%02x", n>>8, n&255),
	}
}

// open opens a Mesh on a free port of the loopback.
func open(t *testing.T, store *identity.Store, self emp.Description, edit func(*Config), join ...*member) *member {
	t.Helper()
	m := &member{t: t, log: new(testlab.Output)}
	cfg := Config{Listen: "127.0.0.1:0", Fabric: "lab", Self: self, Store: store, Log: slog.New(slog.NewTextHandler(m.log, nil))}
	for _, j := range join {
		cfg.Join = append(cfg.Join, j.Addr().String())
	}
	if edit != nil {
		edit(&cfg)
	}
	var err error
	if m.Mesh, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	m.stop = m.Close
	t.Cleanup(func() { m.stop() })
	return m
}

// run has it run until stop or the test's end.
func (m *member) run() *member {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx, newFakeLink)
	}()
	m.stop = func() {
		cancel()
		<-done
	}
	return m
}

// ups returns the nodes that are linked.
func (m *member) ups() (all []fabric.NodeID) {
	for _, p := range m.Peers() {
		if p.State == emp.Up {
			all = append(all, p.Node)
		}
	}
	return all
}

// linked runs nodes 1 and 2, each with its store, and returns them once they have a link.
func linked(t *testing.T, store, other *identity.Store) (one, two *member) {
	t.Helper()
	one = open(t, store, selfOf(1), nil).run()
	two = open(t, other, selfOf(2), nil, one).run()
	one.awaits(2)
	two.awaits(1)
	return one, two
}

func (m *member) awaits(nodes ...fabric.NodeID) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("node %d linked with %v", m.cfg.Self.Node, nodes), func() bool { return slices.Equal(m.ups(), nodes) })
}
