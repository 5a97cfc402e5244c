package probe

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"exnet/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A packet is what it says it is: the sum over a segment and its pseudo header, its own checksum
// included, is all ones.
func TestPacket(t *testing.T) {
	for _, tt := range []struct {
		local, remote string
		header        int
	}{{"10.0.0.1:40000", "10.0.0.2:80", ip4Len}, {"[fd00::1]:40000", "[fd00::2]:65535", ip6Len}} {
		a := Ask{Local: netip.MustParseAddrPort(tt.local), Remote: netip.MustParseAddrPort(tt.remote), Unacknowledged: 0, Expected: 0xfffffff0}
		b, err := a.packet()
		if err != nil || len(b) != tt.header+tcpLen {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		seg := b[tt.header:]
		want := binary.BigEndian.Uint16(seg[16:])
		binary.BigEndian.PutUint16(seg[16:], 0)
		if got := checksum(a.Local.Addr(), a.Remote.Addr(), seg); got != want || want == 0 {
			t.Errorf("checksum %#x, the packet has %#x", got, want)
		}
		if p := binary.BigEndian.Uint16(seg); p != a.Local.Port() {
			t.Errorf("from port %d", p)
		}
		if p := binary.BigEndian.Uint16(seg[2:]); p != a.Remote.Port() {
			t.Errorf("to port %d", p)
		}
		if s := binary.BigEndian.Uint32(seg[4:]); s != 0xffffffff {
			t.Errorf("sequence number %#x", s)
		}
		if s := binary.BigEndian.Uint32(seg[8:]); s != a.Expected {
			t.Errorf("acknowledges %#x", s)
		}
	}
}

// Addresses that do not belong together make no packet.
func TestPacketRefused(t *testing.T) {
	for _, tt := range [][2]string{{"10.0.0.1:1", "[fd00::1]:1"}, {"[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.2]:1"}} {
		if _, err := (Ask{Local: netip.MustParseAddrPort(tt[0]), Remote: netip.MustParseAddrPort(tt[1])}).packet(); err == nil {
			t.Errorf("%v", tt)
		}
	}
	if _, err := (Ask{}).packet(); err == nil {
		t.Error("no addresses at all")
	}
}
