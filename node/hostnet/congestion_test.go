package hostnet_test

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/internal/netns/netnstest"
	"exnet/node/hostnet"
)

// available returns a congestion control other than the default.
func available(t testing.TB) string {
	t.Helper()
	read := func(name string) []string {
		text, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
		if err != nil {
			t.Skip(err)
		}
		return strings.Fields(string(text))
	}
	present := read("tcp_congestion_control")[0]
	all := read("tcp_available_congestion_control")
	// cubic first: where it is not allowed to all, that is the case to test.
	for _, name := range append([]string{"cubic"}, all...) {
		if name != present && slices.Contains(all, name) {
			return name
		}
	}
	t.Skip("only one congestion control:", all)
	return ""
}

// ends makes a TCP connection to itself, and returns both ends and the listener, which end with the
// test.
func ends(t testing.TB, addr string, d net.Dialer, lc net.ListenConfig) (dialed, accepted *net.TCPConn, listener *net.TCPListener) {
	t.Helper()
	ln, err := lc.Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	a, err := d.DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn), ln.(*net.TCPListener)
}

// connect returns what both ends of a connection and its listener use.
func connect(t testing.TB, addr string, d net.Dialer, lc net.ListenConfig) (dialed, accepted, listener string) {
	t.Helper()
	a, b, ln := ends(t, addr, d, lc)
	get := func(name string, err error) string {
		if err != nil {
			t.Error(err)
		}
		return name
	}
	return get(hostnet.CongestionOf(a)), get(hostnet.CongestionOf(b)), get(hostnet.CongestionOf(ln))
}

func TestRootControlCongestion(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	if err := open(t, n).LoopbackUp(); err != nil {
		t.Fatal(err)
	}
	want := available(t)
	control := hostnet.ControlCongestion(want)
	if err := n.Do(func() error {
		a, b, l := connect(t, "127.0.0.1:0", net.Dialer{Control: control}, net.ListenConfig{Control: control})
		if a != want || b != want || l != want {
			t.Errorf("dialed %s, accepted %s, listener %s; want %s", a, b, l, want)
		}
		a, b, _ = connect(t, "[::1]:0", net.Dialer{}, net.ListenConfig{})
		if a == want || b == want {
			t.Errorf("dialed %s, accepted %s: %s without being told", a, b, want)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// Where the system has bbr, a connection over a short way has cubic, and one over a long way bbr
// again; another congestion control stays as it is.
func TestRootControlNear(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		t.Skip(err)
	}
	system, near, chosen := strings.TrimSpace(string(text)), "cubic", "reno"
	if system != "bbr" {
		near = system
	}
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	if err := open(t, n).LoopbackUp(); err != nil {
		t.Fatal(err)
	}
	// settled connects, settles both ends, and returns what they have.
	settled := func(control func(string, string, syscall.RawConn) error, limit time.Duration) (has [2]string) {
		a, b, _ := ends(t, "127.0.0.1:0", net.Dialer{Control: control}, net.ListenConfig{Control: control})
		for i, c := range []*net.TCPConn{a, b} {
			err := hostnet.SettleNear(c, limit)
			if err == nil {
				has[i], err = hostnet.CongestionOf(c)
			}
			if err != nil {
				t.Error(err)
			}
		}
		return has
	}
	if err := n.Do(func() error {
		if got := settled(hostnet.ControlNear, time.Hour); got != [2]string{near, near} {
			t.Errorf("a short way: %s, want %s", got, near)
		}
		if got := settled(hostnet.ControlNear, 0); got != [2]string{system, system} {
			t.Errorf("a long way: %s, want %s", got, system)
		}
		if got := settled(hostnet.ControlCongestion(chosen), 0); got != [2]string{chosen, chosen} {
			t.Errorf("chosen: %s, want %s", got, chosen)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestControlCongestionUnknown(t *testing.T) {
	d := net.Dialer{Control: hostnet.ControlCongestion("nothing")}
	_, err := d.Dial("tcp", "127.0.0.1:9")
	if !errors.Is(err, hostnet.ErrCongestion) || !strings.Contains(err.Error(), "tcp_available_congestion_control") {
		t.Errorf("got %v, want %v and what to do", err, hostnet.ErrCongestion)
	}
}

// A route's congestion control reaches programs that know nothing of it.
func TestRootRouteCongestion(t *testing.T) {
	netnstest.CheckFDs(t)
	a, b := netnstest.New(t), netnstest.New(t)
	want := available(t)
	cfg := func(addrs ...string) hostnet.LinkConfig {
		return hostnet.LinkConfig{Addrs: prefixes(addrs...), CongestionControl: want}
	}
	if err := hostnet.CreateVeth(
		hostnet.VethEnd{NS: a, Name: "va0", Config: cfg("10.9.0.1/24", "fd09::1/64")},
		hostnet.VethEnd{NS: b, Name: "vb0", Config: cfg("10.9.0.2/24", "fd09::2/64")}); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"10.9.0.2", "fd09::2"} {
		var ln net.Listener
		if err := b.Do(func() (err error) { ln, err = net.Listen("tcp", net.JoinHostPort(addr, "0")); return }); err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		if err := a.Do(func() error {
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				return err
			}
			defer c.Close()
			s, err := ln.Accept()
			if err != nil {
				return err
			}
			defer s.Close()
			dialed, err1 := hostnet.CongestionOf(c.(*net.TCPConn))
			accepted, err2 := hostnet.CongestionOf(s.(*net.TCPConn))
			if dialed != want || accepted != want {
				t.Errorf("%s: dialed %s, accepted %s; want %s", addr, dialed, accepted, want)
			}
			return errors.Join(err1, err2)
		}); err != nil {
			t.Error(err)
		}
	}
	conn := open(t, a)
	link, err := conn.Link("va0")
	if err != nil {
		t.Fatal(err)
	}
	routes, err := conn.Routes(link.Index)
	if err != nil || len(routes) < 2 {
		t.Fatalf("%v, %v", routes, err)
	}
	for _, r := range routes {
		// The kernel's own link-local address may have come later.
		if !r.Dst.Addr().IsLinkLocalUnicast() && r.CongestionControl != want {
			t.Errorf("route %v: %q, want %s", r.Dst, r.CongestionControl, want)
		}
	}
}
