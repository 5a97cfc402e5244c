package pairing_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/pairing"
	"exnet/internal/leaktest"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// newPairs skips the test where this host cannot.
func newPairs(t testing.TB) *pairing.Pairs {
	t.Helper()
	p, err := pairing.New("")
	if errors.Is(err, pairing.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// ip runs ip(8) or nft(8) in a namespace.
func ip(t testing.TB, n *netns.NS, command string) {
	t.Helper()
	argv := strings.Fields(command)
	cmd := exec.Command(argv[0], argv[1:]...)
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := n.Run(cmd); err != nil {
		t.Fatalf("%s: %v: %s", command, err, text.String())
	}
}

// bridged makes two namespaces on a bridge in a third, which routes and translates, too:
// 172.30.0.1 and fd30::1 are the bridge, .2 and .3 the others.
func bridged(t *testing.T) (router, a, b *netns.NS) {
	t.Helper()
	netnstest.Require(t)
	router, a, b = netnstest.New(t), netnstest.New(t), netnstest.New(t)
	for _, c := range []string{"ip link set lo up", "ip link add br0 type bridge", "ip addr add 172.30.0.1/24 dev br0", "ip -6 addr add fd30::1/64 dev br0 nodad", "ip link set br0 up"} {
		ip(t, router, c)
	}
	netnstest.SetSysctl(t, router, "ipv4/ip_forward", "1")
	for i, n := range []*netns.NS{a, b} {
		ip(t, router, fmt.Sprintf("ip link add v%d type veth peer name eth0 netns %s", i, n.Path()))
		ip(t, router, fmt.Sprintf("ip link set v%d master br0 up", i))
		for _, c := range []string{"ip link set lo up", fmt.Sprintf("ip addr add 172.30.0.%d/24 dev eth0", i+2), fmt.Sprintf("ip -6 addr add fd30::%d/64 dev eth0 nodad", i+2),
			"ip link set eth0 up", "ip route add default via 172.30.0.1"} {
			ip(t, n, c)
		}
	}
	return router, a, b
}

// cookies are the kernel's numbers for a connection's socket and its namespace.
func cookies(t *testing.T, c net.Conn) (socket, namespace uint64) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var err1, err2 error
	if err := raw.Control(func(fd uintptr) {
		socket, err1 = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE)
		namespace, err2 = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	}); err != nil || err1 != nil || err2 != nil {
		t.Fatal(err, err1, err2)
	}
	return socket, namespace
}

// connect makes a connection from one namespace to a listener in another, by way of an address.
func connect(t *testing.T, from, to *netns.NS, listen, dial string) (client, server net.Conn) {
	t.Helper()
	var ln net.Listener
	if err := to.Do(func() (err error) { ln, err = net.Listen("tcp", listen); return err }); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := from.Do(func() (err error) { client, err = net.DialTimeout("tcp", dial, time.Minute); return err }); err != nil {
		t.Fatal(err)
	}
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func plain(a net.Addr) netip.AddrPort {
	p := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// Whatever the network between two sockets is, each is known to be the other's.
func TestRootPairs(t *testing.T) {
	router, a, b := bridged(t)
	p := newPairs(t)
	if _, err := exec.LookPath("nft"); err == nil {
		translate(t, router, "10.96.0.10", "172.30.0.3:8080")
		for _, c := range []string{
			"nft add chain ip nat post { type nat hook postrouting priority 100 ; }",
			"nft add rule ip nat post ip daddr 172.30.0.3 masquerade", // the server sees the router's address
		} {
			ip(t, router, c)
		}
	} else {
		t.Log("nft is missing: no connection is translated")
	}
	for _, tt := range []struct{ name, listen, dial string }{
		{"IPv4", "172.30.0.3:8080", "172.30.0.3:8080"},
		{"IPv6", "[fd30::3]:8080", "[fd30::3]:8080"},
		{"IPv4 at an IPv6 listener", "[::]:8080", "172.30.0.3:8080"},
		{"a service's address", "172.30.0.3:8080", "10.96.0.10:80"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := exec.LookPath("nft"); err != nil && strings.HasPrefix(tt.dial, "10.96") {
				t.Skip("nft is missing (apt-get install nftables)")
			}
			client, server := connect(t, a, b, tt.listen, tt.dial)
			from, _ := cookies(t, client)
			to, ns := cookies(t, server)
			first, second := numbers(t, client)
			want := pairing.End{First: [2]uint32{first, second}, Cookie: to, Netns: ns, Local: plain(server.LocalAddr()), Remote: plain(server.RemoteAddr())}
			if got, ok := p.Server(from); !ok || got != want {
				t.Errorf("the server's end is %+v (%v), want %+v", got, ok, want)
			}
			if got, ok := p.Server(to); ok {
				t.Errorf("the server's socket is a client of %+v", got)
			}
			if s := services(p); strings.HasPrefix(tt.dial, "10.96") != slices.Contains(s, [2]uint16{80, 8080}) {
				t.Errorf("services %v", s)
			}
		})
	}
}

// translate has the router lead port 80 of an address to a server.
func translate(t *testing.T, router *netns.NS, addr, to string) {
	t.Helper()
	for _, c := range []string{
		"nft add table ip nat", "nft add chain ip nat pre { type nat hook prerouting priority -100 ; }",
		"nft add rule ip nat pre ip daddr " + addr + " tcp dport 80 dnat to " + to,
	} {
		ip(t, router, c)
	}
}

// services are those that are known.
func services(p *pairing.Pairs) (all [][2]uint16) {
	for port, at := range p.Services() {
		all = append(all, [2]uint16{port, at})
	}
	return all
}

// Services of two networks have the same port, and lead to two: both are known.
func TestRootServicesOfOnePort(t *testing.T) {
	router, a, b := bridged(t)
	p := newPairs(t)
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is missing (apt-get install nftables)")
	}
	for addr, server := range map[string]string{"10.96.0.10": "172.30.0.3:8080", "10.96.0.11": "172.30.0.3:8081"} {
		translate(t, router, addr, server)
		connect(t, a, b, server, addr+":80")
	}
	all := services(p)
	for _, want := range [][2]uint16{{80, 8080}, {80, 8081}} {
		if !slices.Contains(all, want) {
			t.Errorf("services %v, without %v", all, want)
		}
	}
}

// A socket that takes over the numbers of another's connection, as one can who has seen them and
// is root of its own namespace, is not the other end of it.
func TestRootForgedPair(t *testing.T) {
	_, a, b := bridged(t)
	p := newPairs(t)
	client, server := connect(t, a, b, "172.30.0.3:8080", "172.30.0.3:8080")
	from, _ := cookies(t, client)
	want, ok := p.Server(from)
	if !ok {
		t.Fatal("no pair")
	}
	sent, received := numbers(t, client)
	// Another client with the same numbers, by TCP_REPAIR, connects without a packet.
	forged := repaired(t, a, sent, received)
	if got, ok := p.Server(forged); ok {
		t.Errorf("the forged client has the server %+v", got)
	}
	if got, ok := p.Server(from); !ok || got != want {
		t.Errorf("the server is %+v (%v) afterwards, want %+v", got, ok, want)
	}
	// What it left behind, numbers of a connection that is there, gives the client no later server.
	if _, err := io.WriteString(server, "x"); err != nil {
		t.Fatal(err)
	}
}

// Two that claim to be one client are none, and another client, whose numbers have the same place,
// does not take it while the server of the first one may come.
func TestRootPlace(t *testing.T) {
	_, a, _ := bridged(t)
	p := newPairs(t)
	const client, server = 0x12345678, 0x9abcdef0
	first := repaired(t, a, client, server)
	both, cookie, since := p.Opened(client, server)
	if both != client|server<<32 || cookie != first {
		t.Fatalf("the place has %#x and the cookie %d, want %d", both, cookie, first)
	}
	repaired(t, a, client^0x5000000, server^0x7000000) // the same lowest bits
	if now, is, later := p.Opened(client, server); (now != both || is != first) && later-since < pairing.YoungTime {
		t.Fatalf("another one took it after %v", later-since)
	} else if now != both {
		t.Skipf("it took %v to connect twice", later-since)
	}
	repaired(t, a, client, server)
	if now, is, _ := p.Opened(client, server); now == both && is != 0 {
		t.Errorf("two claim to be one client, which is %d", is)
	}
}

// numbers returns the next sequence numbers of a connection on which nothing was sent.
func numbers(t *testing.T, c net.Conn) (send, receive uint32) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		repair(t, int(fd), 1)
		send, receive = queueSeq(t, int(fd), sendQueue, nil), queueSeq(t, int(fd), receiveQueue, nil)
		repair(t, int(fd), 0)
	}); err != nil {
		t.Fatal(err)
	}
	return send, receive
}

// repaired makes a connected socket with sequence numbers of its own choice, and returns its
// cookie.
func repaired(t *testing.T, n *netns.NS, send, receive uint32) (cookie uint64) {
	t.Helper()
	if err := n.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		repair(t, fd, 1)
		queueSeq(t, fd, sendQueue, &send)
		queueSeq(t, fd, receiveQueue, &receive)
		if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{172, 30, 0, 3}, Port: 8080}); err != nil {
			return err
		}
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return cookie
}

// Values of TCP_REPAIR_QUEUE (linux/tcp.h).
const (
	receiveQueue = 1
	sendQueue    = 2
)

func repair(t *testing.T, fd, on int) {
	t.Helper()
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, on); err != nil {
		t.Fatal("TCP_REPAIR: ", err)
	}
}

// queueSeq returns the sequence number of a queue, or sets it.
func queueSeq(t *testing.T, fd, queue int, to *uint32) uint32 {
	t.Helper()
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR_QUEUE, queue); err != nil {
		t.Fatal("TCP_REPAIR_QUEUE: ", err)
	}
	if to != nil {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ, int(int32(*to))); err != nil {
			t.Fatal("TCP_QUEUE_SEQ: ", err)
		}
		return *to
	}
	seq, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
	if err != nil {
		t.Fatal("TCP_QUEUE_SEQ: ", err)
	}
	return uint32(seq)
}
