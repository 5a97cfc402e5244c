package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/ipv4"

	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/control"
	"exnet/node/hostnet"
	"exnet/test/testlab"
)

// site is three hosts, which share nothing but what veths lead to, a router:
//
//	host 1 ──┐
//	host 2 ──┼── router
//	host 3 ──┘
type site struct {
	t      *testing.T
	bin    string // with exn-tun and the web server
	exnTun string
	dir    string // with the keys
	router *netns.NS
	hosts  [3]*netns.NS
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, bin: t.TempDir(), dir: t.TempDir(), router: netnstest.New(t)}
	s.exnTun = filepath.Join(s.bin, "exn-tun")
	if err := testlab.Into(s.bin, "exnet/cmd/exn-tun", "./testdata/fabric/web"); err != nil {
		t.Fatal(err)
	}
	for i := range s.hosts {
		s.hosts[i] = netnstest.New(t)
		end := func(ns *netns.NS, name string, last int) hostnet.VethEnd {
			a := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(1 + i), byte(last)}), 24)
			return hostnet.VethEnd{NS: ns, Name: name, Config: hostnet.LinkConfig{MTU: 1500, Addrs: []netip.Prefix{a}}}
		}
		if err := hostnet.CreateVeth(end(s.router, fmt.Sprintf("r%d", 1+i), 1), end(s.hosts[i], "eth0", 2)); err != nil {
			t.Fatal(err)
		}
		s.in(s.hosts[i], "ip", "route", "add", "default", "via", fmt.Sprintf("10.9.%d.1", 1+i))
		s.in(s.hosts[i], "ip", "link", "set", "lo", "up")
	}
	netnstest.SetSysctl(t, s.router, "ipv4/ip_forward", "1")
	return s
}

func (s *site) in(ns *netns.NS, argv ...string) string {
	s.t.Helper()
	out, err := runIn(s.t, ns, nil, argv...)
	if err != nil {
		s.t.Fatalf("%v: %v\n%s", argv, err, out)
	}
	return out
}

// at is the address of a host, from 1.
func (s *site) at(i int) string { return fmt.Sprintf("10.9.%d.2", i) }

// key runs exn-tun key among the keys.
func (s *site) key(args ...string) {
	s.t.Helper()
	cmd := exec.Command(s.exnTun, append([]string{"key"}, args...)...)
	cmd.Dir = s.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("key %v: %v\n%s", args, err, out)
	}
}

// home is the directory of a host's node.
func (s *site) home(i int) string { return filepath.Join(s.dir, "host"+strconv.Itoa(i)) }

// args of exn-tun up on a host, for a node of its own ID unless there are others.
func (s *site) args(i int, more ...string) []string {
	n := strconv.Itoa(i)
	return append([]string{
		s.exnTun, "up", "--dir", s.home(i), "--fair", "--listen", ":4791",
		"--topology", "torus:3", "--direct", "fabric:" + webPort,
		"--addr", "10.2.0." + n + "/24", "--addr6", "fd00:10:2::" + n + "/64",
		"--key", filepath.Join(s.dir, "node"+n+".key"), "--trust", filepath.Join(s.dir, "ca.crt"),
	}, more...)
}

// up starts a node, and waits until it is up.
func (s *site) up(i int, more ...string) *process {
	s.t.Helper()
	p := startIn(s.t, s.hosts[i-1], nil, s.args(i, more...)...)
	p.says(s.t, "is up")
	return p
}

// refused runs a node that must not come up, for a reason told in one line.
func (s *site) refused(i int, want string, more ...string) {
	s.t.Helper()
	// Of a flag that is there twice the last one counts.
	out, err := runIn(s.t, s.hosts[i-1], nil, s.args(i, more...)...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || strings.Count(out, "\n") != 1 || !strings.Contains(out, want) {
		s.t.Errorf("up %v: %v, %q, want status 1 and one line with %q", more, err, out, want)
	}
}

// status is what a node says about itself.
func (s *site) status(i int) control.Status {
	s.t.Helper()
	var all []control.Status
	askNode(s.t, &all, s.exnTun, "status", "--dir", s.home(i), "--json")
	if len(all) != 1 {
		s.t.Fatalf("status of node %d: %+v", i, all)
	}
	return all[0]
}

// peers returns the other nodes as one of them sees them.
func (s *site) peers(i int) map[int]control.Peer {
	s.t.Helper()
	peers := make(map[int]control.Peer)
	for _, p := range s.status(i).Peers {
		peers[p.Node] = p
	}
	return peers
}

// count is a counter of a node.
func (s *site) count(i int, name string) uint64 {
	s.t.Helper()
	for _, n := range s.status(i).Counters {
		if n.Name == name {
			return n.Value
		}
	}
	s.t.Fatalf("no counter %s", name)
	return 0
}

// linked waits until nodes have linked each other, or not.
func (s *site) linked(want bool, nodes ...int) {
	s.t.Helper()
	eventually(s.t, func() error {
		for _, i := range nodes {
			peers := s.peers(i)
			for _, j := range nodes {
				if up := peers[j].State == "up"; i != j && up != want {
					return fmt.Errorf("node %d: %d is %+v", i, j, peers[j])
				}
			}
		}
		return nil
	})
}

// pings waits until a node reaches another.
func (s *site) pings(from, to int) {
	s.t.Helper()
	for _, addr := range []string{"10.2.0.", "fd00:10:2::"} {
		eventually(s.t, func() error {
			_, err := runIn(s.t, s.hosts[from-1], nil, "ping", "-n", "-c", "1", "-W", "2", addr+strconv.Itoa(to))
			return err
		})
	}
}

// datagram sends from one host to an address until another one receives it.
func (s *site) datagram(from, to int, addr string) {
	s.t.Helper()
	var in, out net.PacketConn
	open := func(i int, conn *net.PacketConn, at string) {
		if err := s.hosts[i-1].Do(func() (err error) {
			*conn, err = net.ListenPacket("udp4", at)
			return err
		}); err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { (*conn).Close() })
	}
	open(to, &in, ":9999")
	open(from, &out, ":0")
	dst := netip.MustParseAddr(addr)
	if dst.IsMulticast() {
		exn0 := func(i int) (ifi *net.Interface) {
			if err := s.hosts[i-1].Do(func() (err error) { ifi, err = net.InterfaceByName(ifname); return err }); err != nil {
				s.t.Fatal(err)
			}
			return ifi
		}
		group := &net.UDPAddr{IP: dst.AsSlice()}
		if err := errors.Join(ipv4.NewPacketConn(in).JoinGroup(exn0(to), group), ipv4.NewPacketConn(out).SetMulticastInterface(exn0(from))); err != nil {
			s.t.Fatal(err)
		}
	}
	eventually(s.t, func() error {
		if _, err := out.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, 9999))); err != nil {
			return err
		}
		if err := in.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			return err
		}
		_, _, err := in.ReadFrom(make([]byte, 1))
		return err
	})
}

// Three hosts are one fabric: what works among them, who is kept out, what a cut, a kill and
// a restart do.
func TestRootHosts(t *testing.T) {
	needShow(t)
	checkLeaks(t)
	s := newSite(t)
	s.key("ca", "--out", "ca")
	s.key("ca", "--out", "other-ca")
	for i := 1; i <= 3; i++ {
		s.key("node", "--node", strconv.Itoa(i), "--ca", "ca", "--out", "node"+strconv.Itoa(i))
	}
	s.key("node", "--node", "3", "--ca", "other-ca", "--out", "stranger")

	one := s.up(1, "--conns-congestion", "reno")
	two := s.up(2, "--join", s.at(1))
	stranger := startIn(t, s.hosts[2], nil, s.args(3, "--join", s.at(1), "--key", filepath.Join(s.dir, "stranger.key"))...)
	stranger.says(t, "is up")
	stranger.says(t, "does not trust this node's key")
	one.says(t, "key is not trusted")
	if n := len(s.peers(1)) + len(s.peers(3)); n != 1 {
		t.Errorf("%d peers beside a stranger", n)
	}
	if strings.Contains(stranger.out.String(), "node=2") {
		t.Errorf("a stranger knows who there is: %s", stranger.out.String())
	}
	stranger.stop()
	s.refused(3, "already in use", "--key", filepath.Join(s.dir, "node2.key"), "--join", s.at(1))
	s.refused(3, "node 2 has 10.2.0.2", "--addr", "10.2.0.2/24", "--join", s.at(1))
	s.refused(2, "address already in use", "--dir", filepath.Join(s.dir, "again"), "--interface", "exn9")
	s.refused(3, "nowhere.invalid", "--join", "nowhere.invalid")
	s.refused(3, "no such congestion control", "--conns-congestion", "nonsense")
	if err := os.Chmod(filepath.Join(s.dir, "stranger.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.refused(3, "others may read", "--key", filepath.Join(s.dir, "stranger.key"))

	three := s.up(3, "--join", s.at(2)) // any member will do
	s.linked(true, 1, 2, 3)
	if p := s.peers(1)[2]; p.Congestion != "reno" {
		t.Errorf("%+v", p)
	}
	s.show("stream", "10.2.0.2")

	two.stop() // killed
	eventually(t, func() error {
		if p := s.peers(1)[2]; p.State == "up" {
			return fmt.Errorf("node 2 is dead: %+v", p)
		}
		return nil
	})
	two = s.up(2, "--join", s.at(3))
	s.linked(true, 1, 2, 3)
	s.pings(2, 1)
	for _, p := range []*process{three, two, one} {
		p.terminate(t)
	}
}
