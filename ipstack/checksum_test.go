package ipstack

import (
	"bytes"
	"testing"

	"exnet/exteth"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// checkWire checks that a frame is what a kernel would take: valid headers,
// metadata that fits, a checksum that is right once completed, and no packet
// above the MTU unless it is to be segmented below it.
func checkWire(t *testing.T, f hubFrame, mtu int) {
	t.Helper()
	p := bytes.Clone(f.frame[ethHdrLen:])
	if header.Ethernet(f.frame).Type() == header.ARPProtocolNumber {
		return
	}
	hdr, n, ok := ipLen(p, len(p))
	if !ok || n != len(p) {
		t.Errorf("bad packet %x", p[:min(len(p), 60)])
		return
	}
	if isIPv4(p) && !header.IPv4(p).IsChecksumValid() {
		t.Errorf("bad header checksum %x", p[:hdr])
	}
	if !checkOffload(f.off, p, len(p)) || !fitsMTU(f.off, p, mtu) {
		t.Errorf("packet of %d bytes with offload %+v over MTU %d", len(p), f.off, mtu)
		return
	}
	if _, err := f.off.Complete(p); err != nil || !checksumOK(p, hdr) {
		t.Errorf("bad transport checksum, offload %+v, packet %x: %v", f.off, p[:min(len(p), 80)], err)
	}
}

// TestChecksumOfOthers: what nobody vouches for is verified.
func TestChecksumOfOthers(t *testing.T) {
	h := newHub()
	_, s := attach(t, h, 1, 65535, Config{})
	for _, p := range []string{"10.2.0.1/24", "fd00::1/64"} {
		if err := s.AddAddress(mustPrefix(p)); err != nil {
			t.Fatal(err)
		}
	}
	v4, v6 := ipSpec{src: "10.2.0.2", dst: "10.2.0.1"}, ipSpec{src: "fd00::2", dst: "fd00::1"}
	flip := func(p []byte) []byte { p[len(p)-1] ^= 1; return p }
	noSum := func(p []byte, hdr int) []byte { p[hdr+6], p[hdr+7] = 0, 0; return p }
	tcp4 := exteth.Offload{Flags: exteth.OffloadNeedsChecksum, CsumStart: 20, CsumOffset: 16}
	for _, tc := range []struct {
		name string
		p    []byte
		off  exteth.Offload
		want Counter
	}{
		{"udp", udpPacket(v4, pattern(9)), exteth.Offload{}, NetstackRx},
		{"udp6", udpPacket(v6, pattern(9)), exteth.Offload{}, NetstackRx},
		{"udp wrong", flip(udpPacket(v4, pattern(9))), exteth.Offload{}, RxDropChecksum},
		{"udp6 wrong", flip(udpPacket(v6, pattern(9))), exteth.Offload{}, RxDropChecksum},
		{"udp wrong, vouched for", flip(udpPacket(v4, pattern(9))), exteth.Offload{Flags: exteth.OffloadDataValid}, NetstackRx},
		{"udp without", noSum(udpPacket(v4, pattern(9)), v4HdrLen), exteth.Offload{}, NetstackRx},
		{"udp6 without", noSum(udpPacket(v6, pattern(9)), v6HdrLen), exteth.Offload{}, RxDropChecksum},
		{"tcp partial", tcpPacket(v4, pattern(9)), tcp4, NetstackRx},
		{"tcp partial, not said", tcpPacket(v4, pattern(9)), exteth.Offload{}, RxDropChecksum},
		{"ping", echoPacket(v4, pattern(9)), exteth.Offload{}, NetstackRx},
		{"fragment", ipSpec{src: "10.2.0.2", dst: "10.2.0.1", proto: protoUDP, more: true, body: pattern(16)}.packet(), exteth.Offload{}, NetstackRx},
		{"uso", udpPacket(v4, pattern(99)), exteth.Offload{Flags: exteth.OffloadNeedsChecksum, GSOType: exteth.GSOUDPL4, GSOSize: 10, CsumStart: 20, CsumOffset: 6}, RxDropOffload},
	} {
		t.Run(tc.name, func(t *testing.T) {
			etherType := etherTypeIPv4
			if !isIPv4(tc.p) {
				etherType = etherTypeIPv6
			}
			before := s.Stats()
			if err := s.ReceiveFrame(2, tc.off, lent(frameFrom(2, 1, etherType, tc.p))); err != nil {
				t.Error(err)
			}
			if got := s.Stats()[tc.want] - before[tc.want]; got != 1 {
				t.Errorf("%v grew by %d", tc.want, got)
			}
		})
	}
}
