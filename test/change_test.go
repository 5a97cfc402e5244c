package e2e

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
	"exnet/node"
	"exnet/node/hostnet"
)

// Addresses that the user gives exn0 while it runs are reachable, and not when
// he takes them away.
func TestRootAddress(t *testing.T) {
	longtest.Skip(t)
	need(t, "ip", "ping")
	eachPath(t, node.ClusterConfig{}, func(t *testing.T, l *lab) {
		l.explain("ipstack.tx_drop_unreachable", "ipstack.netstack_tx_errors", "ipstack.icmp_errors")
		a, b := l.hosts[0], l.hosts[1]
		var removed []*process
		for _, tt := range []struct {
			name  string
			fam   family
			here  string // "": none
			there string
		}{
			{"second of the network", 4, "", "10.2.0.77/24"},
			{"another network", 4, "10.77.0.1/16", "10.77.1.2/16"},
			{"second of the network", 6, "", "fd00:10:2::77/64"},
			{"another network", 6, "fd77::1/64", "fd77::2/64"},
		} {
			t.Run(fmt.Sprintf("ip=%d/%s", tt.fam, tt.name), func(t *testing.T) {
				if tt.here != "" {
					a.run(t, "ip", "addr", "add", tt.here, "dev", ifname)
				}
				b.run(t, "ip", "addr", "add", tt.there, "dev", ifname)
				a.pingable(t, netip.MustParsePrefix(tt.there).Addr())
				b.run(t, "ip", "addr", "del", tt.there, "dev", ifname)
			})
			// While a still knows the neighbour, its packets reach b, whose
			// kernel has no use for them.
			to := netip.MustParsePrefix(tt.there).Addr().String()
			removed = append(removed, a.start(t, "ping", "-n", "-c", "60", "-i", "0.5", "-W", "1", to))
		}
		for _, p := range removed {
			p.until(t, "error", func() bool { return strings.Contains(strings.ToLower(p.out.String()), "unreachable") })
		}
	})
}

// echo serves one connection on h, and returns a connection from client to it.
func (h *host) echo(t *testing.T, client *host, fam family) net.Conn {
	t.Helper()
	var ln net.Listener
	if err := h.ns.Do(func() (err error) {
		ln, err = net.Listen("tcp", netip.AddrPortFrom(fam.of(h), 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		// Not conn itself: between sockets io.Copy keeps pipes for the next
		// time, which would count as leaked.
		io.Copy(struct{ io.Writer }{conn}, struct{ io.Reader }{conn})
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	var conn net.Conn
	if err := client.ns.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", ln.Addr().String(), hangTime)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// exchange sends text and waits for it to come back.
func exchange(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(hangTime))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil {
		t.Fatal(err)
	}
	if string(got) != text {
		t.Errorf("got %q back, want %q", got, text)
	}
}

// An interface that is taken down and up again goes on, and so do the TCP
// connections over it.
func TestRootDownUp(t *testing.T) {
	longtest.Skip(t)
	need(t, "ip", "ping")
	eachPath(t, node.ClusterConfig{}, func(t *testing.T, l *lab) {
		// The kernel takes no packet for an interface that is down.
		l.explain("ipstack.rx_drop_host")
		if l.fast {
			l.explain("exteth.rx_refused")
		}
		a, b := l.hosts[0], l.hosts[1]
		for _, h := range []*host{a, b} {
			t.Run(fmt.Sprintf("node=%d", 1+h.i), func(t *testing.T) {
				conns := make(map[family]net.Conn)
				eachFamily(t, func(t *testing.T, fam family) { a.ping(t, fam.of(b).String(), 1, 56) })
				for _, fam := range []family{4, 6} {
					conns[fam] = b.echo(t, a, fam)
					exchange(t, conns[fam], "before")
				}
				h.run(t, "ip", "link", "set", ifname, "down")
				if out, err := a.try(t, "ping", "-n", "-c", "1", "-W", "1", family(4).of(b).String()); err == nil {
					t.Errorf("answered while down\n%s", out)
				}
				h.run(t, "ip", "link", "set", ifname, "up")
				for _, fam := range []family{4, 6} {
					a.pingable(t, fam.of(b))
					b.pingable(t, fam.of(a))
					exchange(t, conns[fam], "after")
				}
			})
		}
	})
}

// A network behind another node: that one forwards, and neither it nor exn0
// has to be told more than the kernel's routes.
func TestRootRoute(t *testing.T) {
	longtest.Skip(t)
	need(t, "ip", "iperf3", "ping", "traceroute")
	eachPath(t, node.ClusterConfig{}, func(t *testing.T, l *lab) {
		a, router := l.hosts[0], l.hosts[1]
		behind := netnstest.New(t)
		far := &host{lab: l, ns: behind}
		far.configure(t, (*hostnet.Conn).LoopbackUp)
		for _, h := range []*host{router, far} {
			// The link-local addresses of the veth are to work at once.
			netnstest.SetSysctl(t, h.ns, "ipv6/conf/default/accept_dad", "0")
		}
		prefixes := func(list ...string) (p []netip.Prefix) {
			for _, s := range list {
				p = append(p, netip.MustParsePrefix(s))
			}
			return p
		}
		if err := hostnet.CreateVeth(
			hostnet.VethEnd{NS: router.ns, Name: "veth0", Config: hostnet.LinkConfig{Addrs: prefixes("10.99.0.1/24", "fd99::1/64")}},
			hostnet.VethEnd{NS: behind, Name: "veth0", Config: hostnet.LinkConfig{Addrs: prefixes("10.99.0.2/24", "fd99::2/64")}},
		); err != nil {
			t.Fatal(err)
		}
		netnstest.SetSysctl(t, router.ns, "ipv4/ip_forward", "1")
		netnstest.SetSysctl(t, router.ns, "ipv6/conf/all/forwarding", "1")
		eachFamily(t, func(t *testing.T, fam family) {
			network := pick(fam, "10.99.0.0/24", "fd99::/64")
			to := netip.MustParseAddr(pick(fam, "10.99.0.2", "fd99::2"))
			a.run(t, "ip", "route", "add", network, "via", fam.of(router).String())
			far.run(t, "ip", "route", "add", "default", "via", pick(fam, "10.99.0.1", "fd99::1"))
			a.pingable(t, to)
			a.ping(t, to.String(), 3, 1400)
			checkHops(t, a.run(t, "traceroute", fam.flag(), "-n", "-q", "1", "-w", "5", to.String()), fam.of(router), to)

			// The veth has an MTU of 1500, of which the router tells.
			a.pingSays(t, to.String(), 3000, pick(fam, "Frag needed and DF set (mtu = 1500)", "Packet too big: mtu=1500"), "-M", "do")
			// Both ways: segments that the router's kernel gets whole and must
			// cut, and the other way round.
			for _, way := range [][]string{{}, {"-R"}} {
				bulk(t, a, far, to, way...)
			}
			// A route that goes away is not used any more.
			a.run(t, "ip", "route", "del", network)
			if out, err := a.try(t, append(pingArgs(1, 56), to.String())...); err == nil {
				t.Errorf("reached without a route\n%s", out)
			}
		})
	})
}
