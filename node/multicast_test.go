package node

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"exnet/arp"
	"exnet/exn"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/foreign"
	"exnet/multicast"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// listener is a UDP socket on a node, which can join groups.
type listener struct {
	c     *Cluster
	node  int
	conn  net.PacketConn
	iface *net.Interface
	join  func(*net.Interface, net.Addr) error
	leave func(*net.Interface, net.Addr) error
	// of one source
	joinSource  func(*net.Interface, net.Addr, net.Addr) error
	leaveSource func(*net.Interface, net.Addr, net.Addr) error
}

// listen opens a socket on a node, on a port for the family of a group.
func listen(t *testing.T, c *Cluster, node int, group netip.Addr, port int) *listener {
	t.Helper()
	l := &listener{c: c, node: node, iface: &net.Interface{Index: c.Nodes[node].Device.Index()}}
	network := "udp4"
	if group.Is6() {
		network = "udp6"
	}
	if err := c.Namespace(node).Do(func() (err error) {
		l.conn, err = net.ListenPacket(network, ":"+strconv.Itoa(port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.conn.Close() })
	if group.Is4() {
		p := ipv4.NewPacketConn(l.conn)
		l.join, l.leave = p.JoinGroup, p.LeaveGroup
		l.joinSource, l.leaveSource = p.JoinSourceSpecificGroup, p.LeaveSourceSpecificGroup
		if err := p.SetMulticastInterface(l.iface); err != nil {
			t.Fatal(err)
		}
		return l
	}
	p := ipv6.NewPacketConn(l.conn)
	l.join, l.leave = p.JoinGroup, p.LeaveGroup
	l.joinSource, l.leaveSource = p.JoinSourceSpecificGroup, p.LeaveSourceSpecificGroup
	if err := p.SetMulticastInterface(l.iface); err != nil {
		t.Fatal(err)
	}
	return l
}

func udpAddr(a netip.Addr, port int) net.Addr {
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, uint16(port)))
}

// send sends a datagram to a group.
func (l *listener) send(t *testing.T, group netip.Addr, port int, data []byte) {
	t.Helper()
	if _, err := l.conn.WriteTo(data, udpAddr(group, port)); err != nil {
		t.Fatal(err)
	}
}

// expect fails the test unless the next datagram is data.
func (l *listener) expect(t *testing.T, data []byte) {
	t.Helper()
	l.conn.SetReadDeadline(time.Now().Add(3 * time.Minute))
	buf := make([]byte, 1<<16)
	n, _, err := l.conn.ReadFrom(buf)
	if err != nil || !bytes.Equal(buf[:n], data) {
		t.Fatalf("node %d: %d bytes (%v), want %d", 1+l.node, n, err, len(data))
	}
}

// silent fails the test if a datagram is there.
func (l *listener) silent(t *testing.T) {
	t.Helper()
	l.conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, _, err := l.conn.ReadFrom(make([]byte, 1<<16)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("node %d: %d bytes, %v", 1+l.node, n, err)
	}
}

// isMember waits until a node is a member of a group, or no longer.
func isMember(t *testing.T, c *Cluster, node int, group netip.Addr, want bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Millisecond) {
		_, is := maps.Collect(c.Nodes[node].Stack.Members().All())[group]
		if is == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("node %d, member of %v: %v, want %v (%+v)", 1+node, group, is, want, c.Nodes[node].Stack.Members().Stats())
		}
	}
}

// groupTap counts the frames that come in for the MAC address of a group.
type groupTap struct {
	mac    arp.MAC
	mu     sync.Mutex
	frames int
}

func tapGroup(t *testing.T, n *Node, group netip.Addr) *groupTap {
	mac, err := arp.Multicast(group)
	if err != nil {
		t.Fatal(err)
	}
	g := &groupTap{mac: mac}
	n.Interface.SetTap(g)
	t.Cleanup(func() { n.Interface.SetTap(nil) })
	return g
}

func (g *groupTap) Frame(d exn.Direction, _ exteth.Offload, frame foreign.Frame) {
	if d == exn.RX && arp.MAC(frame.Head()[:6]) == g.mac {
		g.mu.Lock()
		g.frames++
		g.mu.Unlock()
	}
}

func (g *groupTap) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.frames
}

var testGroups = []netip.Addr{netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("ff15::1234")}

// Nodes that have joined a group get what is sent to it, whole and in order; a
// node that has not, or no longer, gets no frame of it.
func TestRootMulticast(t *testing.T) {
	const port = 5001
	eachPath(t, func(t *testing.T, no bool) {
		c := startCluster(t, ClusterConfig{Nodes: 4, Node: Config{NoFastPath: no}})
		for _, group := range testGroups {
			t.Run(group.String(), func(t *testing.T) {
				var l []*listener
				var taps []*groupTap
				for i := range c.Nodes {
					l = append(l, listen(t, c, i, group, port))
					taps = append(taps, tapGroup(t, c.Nodes[i], group))
				}
				for i := 1; i <= 2; i++ {
					if err := l[i].join(l[i].iface, udpAddr(group, 0)); err != nil {
						t.Fatal(err)
					}
					isMember(t, c, i, group, true)
				}
				for i, size := range []int{100, 1400, 9000, 40000} {
					data := bytes.Repeat([]byte{byte(1 + i)}, size)
					l[0].send(t, group, port, data)
					l[1].expect(t, data)
					l[2].expect(t, data)
				}
				l[3].silent(t)
				if n := taps[3].count(); n != 0 {
					t.Errorf("%d frames came to the node that has not joined", n)
				}
				if taps[1].count() != 4 || taps[2].count() != 4 {
					t.Errorf("%d and %d frames came to the members, want 4 each", taps[1].count(), taps[2].count())
				}
				// A member can send, too, and then gets nothing from the fabric.
				l[1].send(t, group, port, []byte("from a member"))
				l[2].expect(t, []byte("from a member"))

				if err := l[1].leave(l[1].iface, udpAddr(group, 0)); err != nil {
					t.Fatal(err)
				}
				isMember(t, c, 1, group, false)
				before := taps[1].count()
				l[0].send(t, group, port, []byte("one is left"))
				l[2].expect(t, []byte("one is left"))
				if taps[1].count() != before {
					t.Error("a frame came to the node that has left")
				}

				if err := l[2].leave(l[2].iface, udpAddr(group, 0)); err != nil {
					t.Fatal(err)
				}
				isMember(t, c, 2, group, false)
				dropped := c.Nodes[0].Interface.Stats().TxNoMembers
				l[0].send(t, group, port, []byte("nobody is left"))
				for deadline := time.Now().Add(3 * time.Minute); c.Nodes[0].Interface.Stats().TxNoMembers == dropped; time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatal("the frame for nobody was not counted")
					}
				}
			})
		}
	})
}

// Membership of one source, and of several, ends with the last one.
func TestRootMulticastSource(t *testing.T) {
	const port = 5002
	c := startCluster(t, ClusterConfig{Nodes: 3})
	for i, group := range []netip.Addr{netip.MustParseAddr("232.1.2.3"), netip.MustParseAddr("ff35::1234")} {
		t.Run(group.String(), func(t *testing.T) {
			a, b, d := listen(t, c, 0, group, port), listen(t, c, 1, group, port), listen(t, c, 2, group, port)
			sources := []net.Addr{udpAddr(addrs(0)[i], 0), udpAddr(addrs(2)[i], 0)}
			for _, s := range sources {
				if err := b.joinSource(b.iface, udpAddr(group, 0), s); err != nil {
					t.Fatal(err)
				}
			}
			isMember(t, c, 1, group, true)
			a.send(t, group, port, []byte("a"))
			b.expect(t, []byte("a"))
			if err := b.leaveSource(b.iface, udpAddr(group, 0), sources[0]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond) // the kernel reports and repeats it
			isMember(t, c, 1, group, true)
			d.send(t, group, port, []byte("d"))
			b.expect(t, []byte("d"))
			if err := b.leaveSource(b.iface, udpAddr(group, 0), sources[1]); err != nil {
				t.Fatal(err)
			}
			isMember(t, c, 1, group, false)
		})
	}
}

// A host that speaks the versions without sources is understood, and hosts do
// not suppress each other's reports.
func TestRootMulticastOldVersions(t *testing.T) {
	const port = 5003
	c := startCluster(t, ClusterConfig{Nodes: 3})
	for i := range c.Nodes {
		ns := c.Namespace(i)
		if err := errors.Join(ns.SetSysctl("ipv4/conf/exn0/force_igmp_version", "2"), ns.SetSysctl("ipv6/conf/exn0/force_mld_version", "1")); err != nil {
			t.Skip(err)
		}
	}
	for _, group := range testGroups {
		t.Run(group.String(), func(t *testing.T) {
			var l []*listener
			for i := range c.Nodes {
				l = append(l, listen(t, c, i, group, port))
			}
			for i := 1; i <= 2; i++ {
				if err := l[i].join(l[i].iface, udpAddr(group, 0)); err != nil {
					t.Fatal(err)
				}
			}
			isMember(t, c, 1, group, true)
			isMember(t, c, 2, group, true)
			l[0].send(t, group, port, []byte("old"))
			l[1].expect(t, []byte("old"))
			l[2].expect(t, []byte("old"))
			for i := 1; i <= 2; i++ {
				if err := l[i].leave(l[i].iface, udpAddr(group, 0)); err != nil {
					t.Fatal(err)
				}
				isMember(t, c, i, group, false)
			}
		})
	}
}

// The kernel answers the general queries that keep memberships alive.
func TestRootMulticastQuery(t *testing.T) {
	c := startCluster(t, ClusterConfig{Nodes: 2})
	n := c.Nodes[1]
	for i, group := range testGroups {
		l := listen(t, c, 1, group, 5004+i)
		if err := l.join(l.iface, udpAddr(group, 0)); err != nil {
			t.Fatal(err)
		}
		isMember(t, c, 1, group, true)
	}
	time.Sleep(1500 * time.Millisecond) // what the kernel says about itself, and repeats
	for _, query := range [][]byte{
		multicast.IGMPQuery(100*time.Millisecond, time.Second, 2),
		multicast.MLDQuery(netip.MustParseAddr("fe80::2"), 100*time.Millisecond, time.Second, 2),
	} {
		before := n.Stack.Members().Stats().Reports
		if err := (host{n.Device}).WritePacket(exteth.Offload{}, foreign.Private(query)); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(3 * time.Minute); n.Stack.Members().Stats().Reports == before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("no answer to %x", query)
			}
		}
	}
	if s := n.Stack.Members().Stats(); s.Bad != 0 || s.Failures != 0 || s.Groups != 2 {
		t.Errorf("%+v", s)
	}
}

// A node that is closed is no member any more.
func TestRootMulticastClose(t *testing.T) {
	const port = 5006
	c := startCluster(t, ClusterConfig{Nodes: 3})
	for _, group := range testGroups {
		a := listen(t, c, 0, group, port)
		for i := 1; i <= 2; i++ {
			l := listen(t, c, i, group, port)
			if err := l.join(l.iface, udpAddr(group, 0)); err != nil {
				t.Fatal(err)
			}
			isMember(t, c, i, group, true)
		}
		t.Cleanup(func() { a.conn.Close() })
	}
	members := func() string {
		return fmt.Sprint(c.nics[0].Routes().Members(multicast.FirstGroup), c.nics[0].Routes().Members(multicast.FirstGroup+1))
	}
	if got := members(); got != "[2 3] [2 3]" {
		t.Fatalf("members %s", got)
	}
	if err := c.Nodes[1].Stack.Close(); err != nil {
		t.Fatal(err)
	}
	if got := members(); got != "[3] [3]" {
		t.Errorf("members %s after one was closed", got)
	}
	if got := c.nics[0].Routes().Members(fabric.GroupBroadcast); !slices.Equal(got, []fabric.NodeID{2, 3}) {
		t.Errorf("the broadcast group has %v", got)
	}
}

// With a TAP device a node is a member of what its host reports, and of nothing else.
func TestRootMulticastTAP(t *testing.T) {
	const port = 5004
	c := startCluster(t, ClusterConfig{Nodes: 3, Node: Config{TAP: true}})
	for _, group := range testGroups {
		t.Run(group.String(), func(t *testing.T) {
			var l []*listener
			for i := range c.Nodes {
				l = append(l, listen(t, c, i, group, port))
			}
			other := tapGroup(t, c.Nodes[2], group)
			before := c.Nodes[0].Interface.Stats().TxNoMembers
			l[0].send(t, group, port, []byte("nobody is there"))
			for deadline := time.Now().Add(3 * time.Minute); c.Nodes[0].Interface.Stats().TxNoMembers == before; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the frame for nobody was not counted")
				}
			}
			if err := l[1].join(l[1].iface, udpAddr(group, 0)); err != nil {
				t.Fatal(err)
			}
			// The report is under way: until it is there, frames go nowhere.
			for dropped := before + 1; ; dropped++ {
				l[0].send(t, group, port, []byte("hello"))
				l[1].conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				buf := make([]byte, 100)
				if n, _, err := l[1].conn.ReadFrom(buf); err == nil && string(buf[:n]) == "hello" {
					break
				}
				if dropped > 2000 {
					t.Fatal("nothing came")
				}
			}
			if n := other.count(); n != 0 {
				t.Errorf("%d frames came to the node that has not joined", n)
			}
		})
	}
}
