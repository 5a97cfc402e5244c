package arp

import (
	"errors"
	"flag"
	"net"
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"exnet/fabric"
)

var _ flag.Value = (*Prefix)(nil)

func TestMACLayout(t *testing.T) {
	for _, tt := range []struct {
		node fabric.NodeID
		mac  MAC
		text string
	}{
		{1, MAC{
			0x2e, 0x87, 0x04, 0x07, // prefix
			0x00, 0x01, // node ID
		}, "2e:87:04:07:00:01"}, // listing 5.1
		{0, MAC{0x2e, 0x87, 0x04, 0x07, 0x00, 0x00}, "2e:87:04:07:00:00"},
		{0xabcd, MAC{0x2e, 0x87, 0x04, 0x07, 0xab, 0xcd}, "2e:87:04:07:ab:cd"},
		{0xffff, MAC{0x2e, 0x87, 0x04, 0x07, 0xff, 0xff}, "2e:87:04:07:ff:ff"},
	} {
		p := DefaultPrefix()
		m := p.MAC(tt.node)
		if m != tt.mac || m.String() != tt.text || net.HardwareAddr(m[:]).String() != tt.text {
			t.Errorf("node %d: %v, want %s", tt.node, m, tt.text)
		}
		if n, err := p.Node(m); err != nil || n != tt.node {
			t.Errorf("%v: node %d, %v, want %d", m, n, err, tt.node)
		}
		if m.IsMulticast() || m.IsBroadcast() {
			t.Errorf("%v is not unicast", m)
		}
	}
}

func TestForeignMAC(t *testing.T) {
	p := DefaultPrefix()
	own := p.MAC(7)
	for i := range macNodeOff {
		for bit := range 8 {
			m := own
			m[i] ^= 1 << bit
			if n, err := p.Node(m); !errors.Is(err, ErrForeign) || n != 0 {
				t.Errorf("%v: node %d, %v", m, n, err)
			}
		}
	}
	other := Prefix{0x02, 0, 0, 1}
	if _, err := p.Node(other.MAC(7)); err == nil || err.Error() !=
		"arp: mac address of another network: 02:00:00:01:00:07 does not begin with 2e:87:04:07" {
		t.Errorf("error %v", err)
	}
	if n, err := other.Node(other.MAC(7)); err != nil || n != 7 {
		t.Errorf("node %d, %v", n, err)
	}
}

func TestGroupBits(t *testing.T) {
	for _, tt := range []struct {
		mac                  MAC
		multicast, broadcast bool
	}{
		{MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, true, true},
		{MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xfe}, true, false},
		{MAC{0x01, 0x00, 0x5e, 0x00, 0x00, 0x01}, true, false},
		{MAC{0x33, 0x33, 0x00, 0x00, 0x00, 0x01}, true, false},
		{MAC{0x2e, 0x87, 0x04, 0x07, 0x00, 0x01}, false, false},
		{MAC{}, false, false},
	} {
		if tt.mac.IsMulticast() != tt.multicast || tt.mac.IsBroadcast() != tt.broadcast {
			t.Errorf("%v: multicast %v, broadcast %v", tt.mac, tt.mac.IsMulticast(), tt.mac.IsBroadcast())
		}
	}
}

func TestMulticast(t *testing.T) {
	for _, tt := range []struct{ group, mac string }{
		{"224.0.0.1", "01:00:5e:00:00:01"},
		{"239.255.255.255", "01:00:5e:7f:ff:ff"}, // the end of the range in thesis 5.4.5.1
		{"224.128.0.1", "01:00:5e:00:00:01"},     // the 24th bit is lost
		{"225.1.2.3", "01:00:5e:01:02:03"},
		{"ff02:dead:beef::1:3", "33:33:00:01:00:03"}, // thesis 5.4.5.1
		{"ff02::1", "33:33:00:00:00:01"},
		{"ff02::1:ff07:1", "33:33:ff:07:00:01"}, // solicited node of listing 5.1
		{"ff02::1%eth0", "33:33:00:00:00:01"},
	} {
		group := netip.MustParseAddr(tt.group)
		m, err := Multicast(group)
		if err != nil || m.String() != tt.mac || !m.IsMulticast() {
			t.Errorf("%s: %v, %v, want %s", tt.group, m, err, tt.mac)
		}
		// netstack must agree, its frames are sent beside ours.
		if group.Is4() {
			a := group.As4()
			if got := header.EthernetAddressFromMulticastIPv4Address(tcpip.AddrFrom4(a)); got != tcpip.LinkAddress(m[:]) {
				t.Errorf("%s: netstack has %v", tt.group, got)
			}
		} else if got := header.EthernetAddressFromMulticastIPv6Address(tcpip.AddrFrom16(group.As16())); got != tcpip.LinkAddress(m[:]) {
			t.Errorf("%s: netstack has %v", tt.group, got)
		}
	}
	for _, s := range []string{"10.2.0.8", "255.255.255.255", "fe80::1", "::", "0.0.0.0"} {
		if m, err := Multicast(netip.MustParseAddr(s)); !errors.Is(err, ErrAddress) || m != (MAC{}) {
			t.Errorf("%s: %v, %v", s, m, err)
		}
	}
	if _, err := Multicast(netip.Addr{}); !errors.Is(err, ErrAddress) {
		t.Errorf("no address: %v", err)
	}
}

func TestLinkLocal(t *testing.T) {
	for node, want := range map[fabric.NodeID]string{
		1:      "fe80::2c87:4ff:fe07:1", // listing 5.1
		0:      "fe80::2c87:4ff:fe07:0",
		0xabcd: "fe80::2c87:4ff:fe07:abcd",
	} {
		m := DefaultPrefix().MAC(node)
		if got := m.LinkLocal(); got != netip.MustParseAddr(want) {
			t.Errorf("node %d: %v, want %s", node, got, want)
		}
		if got := header.LinkLocalAddr(tcpip.LinkAddress(m[:])); got.As16() != m.LinkLocal().As16() {
			t.Errorf("node %d: netstack has %v", node, got)
		}
	}
}

func TestParsePrefix(t *testing.T) {
	for _, tt := range []struct {
		in, err string
		want    Prefix
	}{
		{"2e:87:04:07", "", DefaultPrefix()},
		{"2E-87-04-07", "", DefaultPrefix()},
		{"02:00:00:00", "", Prefix{2, 0, 0, 0}},
		{"", `arp: "": use four octets such as 2e:87:04:07`, Prefix{}},
		{"2e:87:04", `arp: "2e:87:04": use four octets such as 2e:87:04:07`, Prefix{}},
		{"2e:87:04:07:00:01", `arp: "2e:87:04:07:00:01": use four octets such as 2e:87:04:07`, Prefix{}},
		{"2e:87:4:7", `arp: octet "4" of "2e:87:4:7"; use two hexadecimal digits`, Prefix{}},
		{"2e:87:04:0g", `arp: octet "0g" of "2e:87:04:0g"; use two hexadecimal digits`, Prefix{}},
		{"2f:87:04:07", "arp: 2f:87:04:07 is a multicast address; use an even first octet", Prefix{}},
		{"2c:87:04:07", "arp: 2c:87:04:07 is not locally administered; use x2, x6, xA or xE as first octet", Prefix{}},
		{"00:00:00:00", "arp: 00:00:00:00 is not locally administered; use x2, x6, xA or xE as first octet", Prefix{}},
	} {
		p, err := ParsePrefix(tt.in)
		if tt.err != "" {
			if err == nil || err.Error() != tt.err || p != tt.want {
				t.Errorf("%q: %v, %v\nwant %s", tt.in, p, err, tt.err)
			}
			q := DefaultPrefix()
			if q.Set(tt.in) == nil || q != DefaultPrefix() {
				t.Errorf("Set(%q): %v", tt.in, q)
			}
			continue
		}
		if err != nil || p != tt.want {
			t.Errorf("%q: %v, %v, want %v", tt.in, p, err, tt.want)
		}
		var q Prefix
		if err := q.Set(p.String()); err != nil || q != p {
			t.Errorf("Set(%q): %v, %v", p, q, err)
		}
	}
}

func FuzzParsePrefix(f *testing.F) {
	for _, s := range []string{"2e:87:04:07", "2E-87-04-07", "2f:87:04:07", "::::", "2e:87:04"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePrefix(s)
		if err != nil {
			return
		}
		if m := p.MAC(1); m.IsMulticast() || m[0]&localBit == 0 {
			t.Fatalf("%q: accepted %v", s, p)
		}
		if q, err := ParsePrefix(p.String()); err != nil || q != p {
			t.Fatalf("%q: %v, back %v, %v", s, p, q, err)
		}
	})
}
