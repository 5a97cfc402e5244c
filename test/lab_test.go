package e2e

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node"
	"exnet/node/hostnet"
	"exnet/test/testlab"
)

const ifname = "exn0"

// lab is the nodes of one test.
type lab struct {
	*node.Cluster
	hosts []*host
	fast  bool // with the fast path
	// explained are counters of drops that the test causes (true) or may cause.
	explained map[string]bool
}

// host is one node as its users see it: a namespace with an exn0.
type host struct {
	lab *lab
	i   int // of the node in the Cluster
	ns  *netns.NS
}

// newLab brings up nodes, which go when the test ends. Then it checks that
// nothing was dropped or left behind.
func newLab(t *testing.T, cfg node.ClusterConfig) *lab {
	t.Helper()
	checkLeaks(t)
	c, err := node.StartCluster(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{Cluster: c, fast: !cfg.Node.NoFastPath, explained: make(map[string]bool)}
	for i := range c.Nodes {
		l.hosts = append(l.hosts, &host{lab: l, i: i, ns: c.Namespace(i)})
	}
	t.Cleanup(func() {
		l.checkCounters(t)
		l.close(t)
	})
	for _, h := range l.hosts {
		h.configure(t, (*hostnet.Conn).LoopbackUp)
	}
	return l
}

// close takes the nodes down and checks that their interfaces are gone.
func (l *lab) close(t *testing.T) {
	t.Helper()
	var held []*netns.NS
	for _, h := range l.hosts {
		// While the namespace is held its inode number is its own.
		testlab.CheckNobodyIn(t, h.ns)
		if err := h.ns.Do(func() error {
			ns, err := netnstest.Here()
			held = append(held, ns)
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Errorf("taking the nodes down: %v", err)
	}
	for _, ns := range held {
		if err := ns.Do(func() error {
			if _, err := net.InterfaceByName(ifname); err == nil {
				return errors.New(ifname + " is still there")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	}
}

// eachPath runs a test with the fast path and without.
func eachPath(t *testing.T, cfg node.ClusterConfig, f func(t *testing.T, l *lab)) {
	t.Helper()
	for _, p := range []struct {
		name   string
		noFast bool
	}{{"path=fast", false}, {"path=netstack", true}} {
		t.Run(p.name, func(t *testing.T) {
			cfg := cfg
			cfg.Node.NoFastPath = p.noFast
			l := newLab(t, cfg)
			f(t, l)
			l.checkPath(t)
		})
	}
}

// family is an IP version.
type family int

// eachFamily runs a test over IPv4 and IPv6.
func eachFamily(t *testing.T, f func(t *testing.T, fam family)) {
	t.Helper()
	t.Run("ip=4", func(t *testing.T) { f(t, 4) })
	t.Run("ip=6", func(t *testing.T) { f(t, 6) })
}

// of returns the address of a host.
func (f family) of(h *host) netip.Addr {
	if f == 4 {
		return node.Addr4(h.i).Addr()
	}
	return node.Addr6(h.i).Addr()
}

// flag is the option of many programs for the family.
func (f family) flag() string {
	if f == 4 {
		return "-4"
	}
	return "-6"
}

// pick returns the argument of its family.
func pick[T any](f family, v4, v6 T) T {
	if f == 4 {
		return v4
	}
	return v6
}

// configure calls f with a connection to the host's network configuration.
func (h *host) configure(t *testing.T, f func(*hostnet.Conn) error) {
	t.Helper()
	conn, err := hostnet.Open(h.ns)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := f(conn); err != nil {
		t.Fatal(err)
	}
}
