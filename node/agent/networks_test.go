package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/broker/connstats"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"

	"golang.org/x/sys/unix"
)

// service has the router translate 10.96.0.10:80 to the server, and show it the router's address.
func (l *lab) service() {
	l.nft(l.router, "add table ip nat", "add chain ip nat pre { type nat hook prerouting priority -100 ; }",
		"add rule ip nat pre ip daddr 10.96.0.10 tcp dport 80 dnat to 172.30.0.3:8080",
		"add chain ip nat post { type nat hook postrouting priority 100 ; }",
		"add rule ip nat post ip daddr 172.30.0.3 masquerade")
}

// moves compares what two ends have counted.
func (l *lab) moves(client, server *netns.NS) {
	l.t.Helper()
	l.within(timeLimit, "both ends count the same", func() bool {
		c, s := l.last(client), l.last(server)
		return c != nil && s != nil && c.Sent.DirectBytes > 0 && c.Sent.DirectBytes == s.Received.DirectBytes && s.Sent.DirectBytes == c.Received.DirectBytes
	})
}

// IPv6, a service's address with masquerade, and a route between two bridges.
func TestRootNetworks(t *testing.T) {
	for _, tt := range []struct {
		name, addr string
		port       int
		prepare    func(l *lab)
	}{
		{"IPv6", "fd30::3", 8080, func(*lab) {}},
		{"a service's address and masquerade", "10.96.0.10", 80, (*lab).service},
		{"a service's address of IPv6", "fd96::10", 80, func(l *lab) {
			command(l.t, l.a, "ip route add default via fd30::1")
			netnstest.SetSysctl(l.t, l.router, "ipv6/conf/all/forwarding", "1")
			l.nft(l.router, "add table ip6 nat", "add chain ip6 nat pre { type nat hook prerouting priority -100 ; }",
				"add rule ip6 nat pre ip6 daddr fd96::10 tcp dport 80 dnat to [fd30::3]:8080",
				"add chain ip6 nat post { type nat hook postrouting priority 100 ; }", "add rule ip6 nat post ip6 daddr fd30::3 masquerade")
		}},
		{"a route between bridges", "172.31.0.3", 8080, func(l *lab) {
			for _, c := range []string{"ip link add br1 type bridge", "ip addr add 172.31.0.1/24 dev br1", "ip link set br1 up", "ip link set v1 master br1"} {
				command(l.t, l.router, c)
			}
			for _, c := range []string{"ip addr add 172.31.0.3/24 dev eth0", "ip addr del 172.30.0.3/24 dev eth0", "ip route replace default via 172.31.0.1"} {
				command(l.t, l.b, c)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			tt.prepare(l)
			l.chat(l.b, inGo, "server", "::", 8080)
			c := l.chat(l.a, inC, "client", tt.addr, tt.port)
			l.becomesDirect(l.a, c)
			l.moves(l.a, l.b)
		})
	}
}

// A service's address that leads back into the client's own namespace.
func TestRootServiceBack(t *testing.T) {
	l := newLab(t)
	l.service()
	command(t, l.router, "ip link set v1 type bridge_slave hairpin on") // where the bridge translates, it also sends it back
	l.chat(l.b, inGo, "server", "::", 8080)
	l.becomesDirect(l.b, l.chat(l.b, inC, "client", "10.96.0.10", 80))
	for _, x := range l.connections(l.b) {
		if x.Remote.Port() == 80 && x.Mode == connstats.ModeDirect.String() {
			return
		}
	}
	t.Errorf("the connection to the service is not direct: %+v", l.connections(l.b))
}

// A program begins in a namespace of its own when others have used the service already: it knows
// of it, too.
func TestRootServiceUsedBefore(t *testing.T) {
	l := newLab(t)
	l.service()
	l.chat(l.b, inGo, "server", "::", 8080)
	if err := l.a.Do(func() error { // by none of the agent's programs
		c, err := net.Dial("tcp", "10.96.0.10:80")
		if err != nil {
			return err
		}
		return c.Close()
	}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * lookTime) // the agent sees it, or the test shows less
	l.becomesDirect(l.a, l.chat(l.a, inC, "client", "10.96.0.10", 80))
}

// Two networks have the same addresses: each connection stays in its own.
func TestRootSameAddresses(t *testing.T) {
	l := newLab(t)
	twin := &lab{t: t, router: netnstest.New(t), a: netnstest.New(t), b: netnstest.New(t), proc: l.proc}
	twin.build()
	clients := make(map[*lab]*chat)
	for _, l := range []*lab{l, twin} {
		l.chat(l.b, inGo, "server", "172.30.0.3", 8080)
		clients[l] = l.chat(l.a, inGo, "client", "172.30.0.3", 8080)
	}
	for l, c := range clients {
		l.becomesDirect(l.a, c)
	}
	if got := clients[twin].do("ask 77 60"); got != "ok" { // so that they differ
		t.Fatal(got)
	}
	for l := range clients {
		l.moves(l.a, l.b)
	}
	if a, b := l.last(l.a), twin.last(twin.a); a.Sent.DirectBytes == b.Sent.DirectBytes {
		t.Errorf("both have moved %d bytes", a.Sent.DirectBytes)
	}
}

// A proxy in user space makes two connections of one: each is direct if the proxy asks for it.
func TestRootProxy(t *testing.T) {
	l := newLab(t)
	l.chat(l.b, inC, "server", "172.30.0.3", 8080)
	l.chat(l.router, inGo, "proxy", "172.30.0.3", 8080)
	c := l.chat(l.a, inC, "client", "172.30.0.1", proxyPort)
	l.becomesDirect(l.a, c)
	l.within(timeLimit, "both of the proxy's connections are direct", func() bool {
		if got := c.do("open"); got != "ok" { // one of before the namespaces were found may stay on TCP
			t.Fatal(got)
		}
		if got := c.do("ask 200 60"); got != "ok" {
			t.Fatal(got)
		}
		n := 0
		for _, x := range l.connections(l.router) {
			if x.Mode == connstats.ModeDirect.String() && x.Sent.DirectBytes > 0 && x.Received.DirectBytes > 0 {
				n++
			}
		}
		return n >= 2
	})
	for _, x := range l.connections(l.a) {
		if x.Remote.Addr().String() != "172.30.0.1" {
			t.Errorf("the client has a connection to %v", x.Remote)
		}
	}
}

// A connection whose handshake the agent has not seen stays on TCP, and says that.
func TestRootNoPair(t *testing.T) {
	for i, as := range []language{inC, inGo} {
		t.Run(as.String(), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.chat(l.b, inGo, "server", "172.30.0.3", 8080+i)
			c := l.chat(l.a, as, "client", "172.30.0.3", 8080+i)
			l.becomesDirect(l.a, c)
			if got := c.do("open"); got != "ok" {
				t.Fatal("open: ", got)
			}
			l.halt()
			l.start()
			l.within(timeLimit, "the reason", func() bool {
				if got := c.do("ask 20 60"); got != "ok" {
					t.Fatal("ask: ", got)
				}
				x := l.last(l.a)
				if x != nil && x.Mode == connstats.ModeDirect.String() {
					t.Fatalf("it is direct: %+v", x)
				}
				return x != nil && x.Reason == connstats.WhyNoPair.String()
			})
			l.becomesDirect(l.a, c) // the next one
		})
	}
}

// proxyPort is where a proxy listens.
const proxyPort = 9000

// chatProxy passes connections on to addr.
func chatProxy(addr string) error {
	ln, err := directsockets.Listen("tcp", fmt.Sprint(":", proxyPort))
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				s, err := directsockets.Dial("tcp", addr)
				if err != nil {
					return
				}
				defer s.Close()
				go func() { _, _ = io.Copy(s, c) }()
				_, _ = io.Copy(c, s)
			}()
		}
	}()
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, ln.Close())
}

// A SYN is the same with an agent as without: no packet carries anything new.
func TestRootSYN(t *testing.T) {
	l := newLab(t)
	var without [2][]byte
	for i, agent := range []bool{true, false} {
		if !agent {
			l.halt()
		}
		without[i] = l.synOptions()
	}
	if len(without[0]) == 0 || !bytes.Equal(without[0], without[1]) {
		t.Errorf("options with an agent: % x, without: % x", without[0], without[1])
	}
}

// synOptions are the kinds and lengths of the options of a SYN that leaves a's namespace for
// another host.
func (l *lab) synOptions() (kinds []byte) {
	l.t.Helper()
	fd := -1
	if err := l.router.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_IP))); err != nil {
			return err
		}
		in, err := net.InterfaceByName("br0")
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_IP), Ifindex: in.Index})
	}); err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30}); err != nil {
		l.t.Fatal(err)
	}
	c := l.chat(l.a, inC, "client", "172.30.0.1", 9)
	if got := c.do("open"); !strings.HasPrefix(got, "end") { // nobody listens
		l.t.Fatal(got)
	}
	b := make([]byte, 2048)
	for {
		n, err := unix.Read(fd, b)
		if err != nil {
			l.t.Fatal("no SYN: ", err)
		}
		ip := b[:n]
		if n < 40 || ip[9] != unix.IPPROTO_TCP {
			continue
		}
		tcp := ip[int(ip[0]&15)*4:]
		if tcp[13] != 2 || binary.BigEndian.Uint16(tcp[2:]) != 9 { // SYN
			continue
		}
		for o := tcp[20 : int(tcp[12]>>4)*4]; len(o) > 0; {
			if o[0] <= 1 {
				kinds, o = append(kinds, o[0]), o[1:]
				continue
			}
			kinds, o = append(kinds, o[0], o[1]), o[o[1]:]
		}
		return kinds
	}
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// agentProcess is an agent in a process of its own.
func agentProcess(t *testing.T, l *lab) *chat {
	t.Helper()
	here, err := netnstest.Here()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close() })
	return l.start1(here, "agent", l.proc)
}

// An agent that is killed leaves direct connections as they are; the next one serves new ones.
func TestRootAgentKilled(t *testing.T) {
	for _, in := range languages[:2] {
		t.Run(fmt.Sprint(in.client), func(t *testing.T) {
			l := newLab(t)
			l.halt()
			one := agentProcess(t, l)
			l.chat(l.b, in.server, "server", "172.30.0.3", 8080)
			c := l.chat(l.a, in.client, "client", "172.30.0.3", 8080)
			l.becomesDirect(l.a, c)
			if err := one.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = one.cmd.Wait() // it was killed
			before := l.sentBytes()
			if got := c.do("ask 1000 60"); got != "ok" {
				t.Fatal("after the agent was killed: ", got)
			}
			agentProcess(t, l)
			if got := c.do("ask 1000 60"); got != "ok" {
				t.Fatal("with the next agent: ", got)
			}
			if after := l.sentBytes(); after-before > 100_000 { // 2 MB were moved; ARP and ND are among it
				t.Errorf("its packets carried %d bytes meanwhile", after-before)
			}
			l.becomesDirect(l.a, c) // another one, as the listener was announced again
		})
	}
}
