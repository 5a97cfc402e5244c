package ipstack

import (
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

func TestCongestionControl(t *testing.T) {
	for set, want := range map[string]string{"": "cubic", "cubic": "cubic", "reno": "reno"} {
		_, s := attach(t, newHub(), 1, 1500, Config{CongestionControl: set, TCPBuffer: 1 << 20})
		var cc tcpip.CongestionControlOption
		var rcv tcpip.TCPReceiveBufferSizeRangeOption
		for _, opt := range []tcpip.GettableTransportProtocolOption{&cc, &rcv} {
			if terr := s.Netstack().TransportProtocolOption(header.TCPProtocolNumber, opt); terr != nil {
				t.Fatal(terr)
			}
		}
		if string(cc) != want || rcv.Max != 1<<20 {
			t.Errorf("%q: %s, buffer %d", set, cc, rcv.Max)
		}
	}
}

func TestConfig(t *testing.T) {
	l := &fakeLink{hub: newHub(), node: 1, mtu: 1500}
	for _, c := range []Config{
		{},
		{Link: l, TCPBuffer: 1},
		{Link: l, TCPBuffer: -1},
		{Link: l, CongestionControl: "bbr"},
		{Link: &fakeLink{hub: newHub(), node: 1, mtu: 67}},
	} {
		if s, err := New(c); err == nil {
			s.Close()
			t.Errorf("%+v accepted", c)
		}
	}
}

// TestSmallMTU: below 1280 bytes there is no IPv6.
func TestSmallMTU(t *testing.T) {
	for _, mtu := range []int{68, 1279} {
		bothPaths(t, func(t *testing.T, w *world) {
			w.mtu = mtu
			a, b := w.add(1, "10.2.0.1/24"), w.add(2, "10.2.0.2/24")
			_, net := attach(t, w.hub, 3, mtu, Config{Clock: w.clock})
			if l, err := net.Listen("tcp", ":80"); err != nil {
				t.Error(err)
			} else {
				l.Close()
			}
			if err := a.AddAddress(mustPrefix("fd00::1/64")); err == nil {
				t.Error("IPv6 address added")
			}
			p := udpPacket(ipSpec{src: "10.2.0.1", dst: "10.2.0.2"}, pattern(40))
			a.send(p)
			b.expect(p)
			a.send(udpPacket(ipSpec{src: "fd00::1", dst: "fd00::2"}, nil))
			w.advance(2 * lastRouteWait)
			if got := len(a.host.take()); got != 1 {
				t.Errorf("%d ICMP errors", got)
			}
		})
	}
}

func TestAddressErrors(t *testing.T) {
	w := newWorld(t, true)
	a := w.add(1)
	gw := netip.MustParseAddr("10.2.0.9")
	for name, err := range map[string]error{
		"address":           a.AddAddress(netip.Prefix{}),
		"remove address":    a.RemoveAddress(netip.Prefix{}),
		"mapped address":    a.AddAddress(netip.PrefixFrom(netip.MustParseAddr("::ffff:10.2.0.1"), 64)),
		"route":             a.AddRoute(netip.Prefix{}, gw),
		"remove route":      a.RemoveRoute(netip.Prefix{}, gw),
		"gateway's family":  a.AddRoute(mustPrefix("fd00::/64"), gw),
		"remove an unknown": a.RemoveAddress(mustPrefix("10.9.9.9/24")),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	// Unknown to netstack as IPv6, fine as what it is.
	if err := a.AddAddress(netip.PrefixFrom(netip.MustParseAddr("::ffff:10.2.0.1"), 96+24)); err != nil {
		t.Error(err)
	}
	if err := a.RemoveAddress(mustPrefix("10.2.0.1/24")); err != nil {
		t.Error(err)
	}
	if n := len(a.Netstack().GetRouteTable()); n != 0 {
		t.Errorf("%d routes left", n)
	}
	// Two addresses of a subnet share its route.
	for _, p := range []string{"10.2.0.1/24", "10.2.0.2/24"} {
		if err := a.AddAddress(mustPrefix(p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.RemoveAddress(mustPrefix("10.2.0.1/24")); err != nil {
		t.Fatal(err)
	}
	if n := len(a.Netstack().GetRouteTable()); n != 1 {
		t.Errorf("%d routes, want 1", n)
	}
}

func TestCounterNames(t *testing.T) {
	seen := make(map[string]bool)
	for name, v := range (Stats{}).All() {
		if name == "" || seen[name] || v != 0 {
			t.Errorf("counter %q = %d", name, v)
		}
		seen[name] = true
	}
	if len(seen) != int(numCounters) || FastTx.String() != "fast_tx" || numCounters.String() != "unknown" {
		t.Errorf("%d names", len(seen))
	}
	for range (Stats{}).All() {
		break
	}
}
