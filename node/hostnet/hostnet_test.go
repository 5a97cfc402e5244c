package hostnet_test

import (
	"bytes"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exnet/internal/leaktest"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/hostnet"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// run runs a program with blanks between its arguments in the namespace.
func run(t testing.TB, n *netns.NS, command string) string {
	t.Helper()
	argv := strings.Fields(command)
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := n.Run(cmd); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out.String())
	}
	return out.String()
}

func open(t testing.TB, n *netns.NS) *hostnet.Conn {
	t.Helper()
	c, err := hostnet.Open(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// tunIn makes a persistent TUN device, as exn0 is one, without package tun.
func tunIn(t testing.TB, n *netns.NS, c *hostnet.Conn) hostnet.Link {
	t.Helper()
	run(t, n, "ip tuntap add dev exn0 mode tun")
	link, err := c.Link("exn0")
	if err != nil {
		t.Fatal(err)
	}
	return link
}

var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func TestRootLoopback(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	c := open(t, n)
	lo, err := c.Link("lo")
	if err != nil || lo.Up {
		t.Fatalf("%+v, %v; want it down", lo, err)
	}
	if err := c.LoopbackUp(); err != nil {
		t.Fatal(err)
	}
	if lo, err = c.LinkByIndex(lo.Index); err != nil || !lo.Up {
		t.Errorf("%+v, %v; want it up", lo, err)
	}
	run(t, n, "ping -c1 -W5 127.0.0.1")
	run(t, n, "ping -c1 -W5 ::1")
}

// exn0 looks as in listing 5.1, as far as a device without a MAC can.
func TestRootConfigure(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	c := open(t, n)
	link := tunIn(t, n, c)
	linkLocal := netip.MustParsePrefix("fe80::2c87:4ff:fe07:1/64") // listing 5.1
	addrs := append(prefixes("10.2.0.8/24", "fd00:2::8/64"), linkLocal)
	cfg := hostnet.LinkConfig{MTU: 65535, TxQueueLen: hostnet.TxQueueLen, Addrs: addrs, NoAutoLinkLocal: true}
	for range 2 { // a second time changes nothing
		if err := c.Configure(link.Index, cfg); err != nil {
			t.Fatal(err)
		}
	}

	want := hostnet.Link{Name: "exn0", Index: link.Index, MTU: 65535, TxQueueLen: 1000, Up: true}
	if got, err := c.Link("exn0"); err != nil || got != want {
		t.Errorf("link %+v, %v; want %+v", got, err, want)
	}
	got, err := c.Addrs(link.Index)
	if diff := cmp.Diff(addrs, got, comparePrefixes); diff != "" || err != nil {
		t.Errorf("addresses (-want +got):\n%s%v", diff, err)
	}
	routes, err := c.Routes(link.Index)
	wantRoutes := []hostnet.Route{
		{Dst: netip.MustParsePrefix("10.2.0.0/24"), Src: netip.MustParseAddr("10.2.0.8")},
		{Dst: netip.MustParsePrefix("fd00:2::/64"), Metric: 256},
		{Dst: netip.MustParsePrefix("fe80::/64"), Metric: 256},
	}
	if diff := cmp.Diff(wantRoutes, routes, comparePrefixes, compareAddrs); diff != "" || err != nil {
		t.Errorf("routes (-want +got):\n%s%v", diff, err)
	}
	shown := run(t, n, "ip addr show exn0")
	for _, s := range []string{"mtu 65535", "qlen 1000", "inet 10.2.0.8/24 brd 10.2.0.255 scope global", "inet6 fe80::2c87:4ff:fe07:1/64 scope link"} {
		if !strings.Contains(shown, s) {
			t.Errorf("ip addr does not say %q:\n%s", s, shown)
		}
	}
	if strings.Contains(shown, "tentative") {
		t.Errorf("an address cannot be used yet:\n%s", shown)
	}
}

// What the kernel takes away with going down comes back, and no more than that.
func TestRootRestore(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	c := open(t, n)
	link := tunIn(t, n, c)
	cfg := hostnet.LinkConfig{
		MTU:               9000,
		Addrs:             prefixes("10.2.0.1/24", "10.3.0.1/24", "fe80::1/64", "fd00:10:2::1/64"),
		NoAutoLinkLocal:   true,
		CongestionControl: "reno",
	}
	if err := c.Configure(link.Index, cfg); err != nil {
		t.Fatal(err)
	}
	want, err := c.Routes(link.Index)
	if err != nil {
		t.Fatal(err)
	}
	want = slices.DeleteFunc(want, func(r hostnet.Route) bool { return r.Dst == prefixes("10.3.0.0/24")[0] })
	run(t, n, "ip addr del 10.3.0.1/24 dev exn0")
	run(t, n, "ip link set exn0 mtu 8000")
	run(t, n, "ip link set exn0 down")
	run(t, n, "ip link set exn0 up")
	if err := c.Restore(link.Index, cfg); err != nil {
		t.Fatal(err)
	}
	addrs, err := c.Addrs(link.Index)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(addrs, netip.Prefix.Compare)
	wantAddrs := prefixes("10.2.0.1/24", "fd00:10:2::1/64", "fe80::1/64")
	if diff := cmp.Diff(wantAddrs, addrs, comparePrefixes); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	routes, err := c.Routes(link.Index)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, routes, compareAddrs, comparePrefixes); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	if got, err := c.Link("exn0"); err != nil || got.MTU != 8000 {
		t.Errorf("got %+v, %v, want the MTU that it had", got, err)
	}
	run(t, n, "ip link set exn0 down")
	if err := c.Restore(link.Index, cfg); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Link("exn0"); err != nil || got.Up {
		t.Errorf("got %+v, %v, want it down", got, err)
	}
}

func TestRootConfigureSmallMTU(t *testing.T) {
	n := netnstest.New(t)
	c := open(t, n)
	link := tunIn(t, n, c)
	err := c.Configure(link.Index, hostnet.LinkConfig{MTU: 576, Addrs: prefixes("fd00::1/64"), NoAutoLinkLocal: true})
	if err == nil || !strings.Contains(err.Error(), "IPv6 needs 1280") {
		t.Errorf("got %v", err)
	}
	for range 2 { // the second time IPv6 is off already
		if err := c.Configure(link.Index, hostnet.LinkConfig{MTU: 576, Addrs: prefixes("10.0.0.1/31"), NoAutoLinkLocal: true}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.Addrs(link.Index); err != nil || !slices.Equal(got, prefixes("10.0.0.1/31")) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestRootConfigureErrors(t *testing.T) {
	n := netnstest.New(t)
	c := open(t, n)
	link := tunIn(t, n, c)
	for _, tt := range []struct {
		name  string
		index int
		cfg   hostnet.LinkConfig
		want  string
	}{
		{"no such interface", 4711, hostnet.LinkConfig{}, hostnet.ErrNoLink.Error()},
		{"no network length", link.Index, hostnet.LinkConfig{Addrs: []netip.Prefix{{}}}, "without a network length"},
		{"MTU", link.Index, hostnet.LinkConfig{MTU: 70000}, "MTU 70000"},
		{"congestion control", link.Index, hostnet.LinkConfig{Addrs: prefixes("10.0.0.1/24"), CongestionControl: "none"}, "congestion control: none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := c.Configure(tt.index, tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := c.Link("nothing"); !errors.Is(err, hostnet.ErrNoLink) {
		t.Errorf("got %v, want %v", err, hostnet.ErrNoLink)
	}
}

// Where IPv6 is off, as in containers of Docker, an interface has no link-local address, and one
// that is asked for is refused in words that say so.
func TestRootConfigureWithoutIPv6(t *testing.T) {
	n := netnstest.New(t)
	c := open(t, n)
	link := tunIn(t, n, c)
	netnstest.SetSysctl(t, n, "ipv6/conf/exn0/disable_ipv6", "1")
	if err := c.Configure(link.Index, hostnet.LinkConfig{Addrs: prefixes("fe80::1/64", "10.2.0.1/24"), NoAutoLinkLocal: true}); err != nil {
		t.Fatal(err)
	}
	if out := run(t, n, "ip addr show exn0"); strings.Contains(out, "inet6") || !strings.Contains(out, "inet 10.2.0.1/24") {
		t.Errorf("addresses:\n%s", out)
	}
	err := c.Configure(link.Index, hostnet.LinkConfig{Addrs: prefixes("fd00::1/64")})
	if err == nil || !strings.Contains(err.Error(), "IPv6 is off") {
		t.Errorf("an address of IPv6: %v", err)
	}
}

// A closed Conn must not fall back to the namespace of the caller.
func TestRootConnClose(t *testing.T) {
	netnstest.CheckFDs(t)
	c := open(t, netnstest.New(t))
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Link("lo"); !errors.Is(err, hostnet.ErrClosed) {
		t.Errorf("got %v, want %v", err, hostnet.ErrClosed)
	}
}

func TestOpenHere(t *testing.T) {
	c, err := hostnet.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Link("lo"); err != nil {
		t.Error(err)
	}
}

func TestRootVeth(t *testing.T) {
	netnstest.CheckFDs(t)
	a, b := netnstest.New(t), netnstest.New(t)
	end := func(n *netns.NS, name, v4, v6 string) hostnet.VethEnd {
		return hostnet.VethEnd{NS: n, Name: name, Config: hostnet.LinkConfig{MTU: 9000, Addrs: prefixes(v4, v6)}}
	}
	ends := [2]hostnet.VethEnd{end(a, "va0", "10.9.0.1/24", "fd09::1/64"), end(b, "vb0", "10.9.0.2/24", "fd09::2/64")}
	if err := hostnet.CreateVeth(ends[0], ends[1]); err != nil {
		t.Fatal(err)
	}
	run(t, a, "ping -c1 -W5 10.9.0.2")
	run(t, b, "ping -c1 -W5 -M do -s 8000 fd09::1")
	if link, err := open(t, b).Link("vb0"); err != nil || link.MTU != 9000 || link.TxQueueLen == 0 {
		t.Errorf("%+v, %v", link, err)
	}
	if err := hostnet.CreateVeth(ends[0], ends[1]); !errors.Is(err, hostnet.ErrNameTaken) {
		t.Errorf("a second one: %v, want %v", err, hostnet.ErrNameTaken)
	}
}

// Nothing is left of a pair that could not be configured.
func TestRootVethUndo(t *testing.T) {
	a, b := netnstest.New(t), netnstest.New(t)
	err := hostnet.CreateVeth(hostnet.VethEnd{NS: a, Name: "va0"}, hostnet.VethEnd{NS: b, Name: "vb0", Config: hostnet.LinkConfig{MTU: 70000}})
	if err == nil {
		t.Fatal("no error")
	}
	if _, err := open(t, a).Link("va0"); !errors.Is(err, hostnet.ErrNoLink) {
		t.Errorf("got %v, want %v", err, hostnet.ErrNoLink)
	}
}
