package node

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/hostnet"
	"exnet/node/tun"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// An interface that a user moves to another namespace works there by the addresses that it gets,
// and works at home again when it comes back.
func TestRootMoved(t *testing.T) {
	eachPath(t, func(t *testing.T, no bool) {
		c := startCluster(t, ClusterConfig{Nodes: 2, Node: Config{NoFastPath: no}})
		home, other := c.Namespace(0), netnstest.New(t)
		var told []netip.Addr // by the last call, which comes before the ping that passes
		changes := make(chan []netip.Addr, 100)
		c.Nodes[0].OnAddrs(func(list []netip.Addr) { changes <- list })
		peer := addrs(1)[0]
		reaches(t, home, peer, 56)
		move := func(from, to *netns.NS) {
			t.Helper()
			link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: indexIn(t, from)}}
			if err := from.Do(func() error { return netlink.LinkSetNsFd(link, to.Fd()) }); err != nil {
				t.Fatal(err)
			}
			// As a user would: it is down, and has no addresses.
			if err := conn(t, to).Configure(indexIn(t, to), hostnet.LinkConfig{Addrs: []netip.Prefix{Addr4(0)}}); err != nil {
				t.Fatal(err)
			}
			awaitPlace(t, c.Nodes[0], to == home)
			reaches(t, to, peer, 56)
			reaches(t, c.Namespace(1), addrs(0)[0], 3000)
			for len(changes) > 0 {
				told = <-changes
			}
		}
		for range 2 {
			move(home, other)
			if len(told) != 0 {
				t.Errorf("programs at home may use %v, which are elsewhere", told)
			}
			awaitAddrs(t, other, Addr4(0), c.Nodes[0].linkLocal())
			move(other, home)
			if !slices.Contains(told, addrs(0)[0]) {
				t.Errorf("programs at home may use %v", told)
			}
		}
	})
}

// When IPv6 is switched off and on, an interface has its own IPv6 addresses again.
func TestRootIPv6OffAndOn(t *testing.T) {
	c := startCluster(t, ClusterConfig{Nodes: 2})
	n, ns := c.Nodes[0], c.Namespace(0)
	disable := func(value string) {
		t.Helper()
		netnstest.SetSysctl(t, ns, "ipv6/conf/"+n.Device.Name()+"/disable_ipv6", value)
	}
	for range 2 {
		disable("1")
		awaitAddrs(t, ns, Addr4(0))
		disable("0")
		awaitAddrs(t, ns, Addr4(0), Addr6(0), n.linkLocal())
		reaches(t, ns, addrs(1)[1], 56)
	}
}

// A node that finds its interface, and has no descriptor to watch it, says that the interface is
// elsewhere, and looks again.
func TestRootUnwatched(t *testing.T) {
	c := startCluster(t, ClusterConfig{Nodes: 1})
	n := c.Nodes[0]
	p := &n.place
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	p.tracked = nil // this test looks
	for room, unwatched := 0, false; ; room++ {
		if err := p.changeState(away, nil, 0, nil); err != nil {
			t.Fatal(err)
		}
		restore := leaveDescriptors(t, room)
		watcher, err := p.findInterface()
		restore()
		if err == nil {
			if !unwatched {
				t.Error("no look failed to watch what it had found")
			}
			if err := watcher.Close(); err != nil {
				t.Error(err)
			}
			return
		}
		if !errors.Is(err, unix.EMFILE) {
			t.Fatalf("with %d descriptors: %v", room, err)
		}
		unwatched = unwatched || strings.Contains(err.Error(), "watching")
		err = n.Kernel(func(*hostnet.Conn, int, string) error { return nil })
		if !errors.Is(err, ErrElsewhere) {
			t.Fatalf("with %d descriptors nobody watches the interface, and it counts as found: %v", room, err)
		}
	}
}

// leaveDescriptors leaves so many descriptors to this process, until restore.
func leaveDescriptors(t *testing.T, room int) (restore func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	var fds []int
	for range room + 1 {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(fds[room]), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitPlace waits until a node has found its interface.
func awaitPlace(t *testing.T, n *Node, home bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		found := false
		err := n.Kernel(func(_ *hostnet.Conn, _ int, visiting string) error {
			found = (visiting == "") == home
			return nil
		})
		if err == nil && found {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the interface is not found at its place: %v", err)
		}
	}
}

// indexIn returns the index of exn0 in a namespace.
func indexIn(t *testing.T, ns *netns.NS) int {
	t.Helper()
	link, err := conn(t, ns).Link(tun.DefaultName)
	if err != nil {
		t.Fatal(err)
	}
	return link.Index
}

// awaitAddrs waits until exn0 has these addresses, and no others.
func awaitAddrs(t *testing.T, ns *netns.NS, want ...netip.Prefix) {
	t.Helper()
	index, conn := indexIn(t, ns), conn(t, ns)
	slices.SortFunc(want, netip.Prefix.Compare)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		got, err := conn.Addrs(index)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(got, netip.Prefix.Compare)
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("exn0 has %v, want %v", got, want)
		}
	}
}
