package ipstack

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"exnet/exteth"
	"exnet/fabric"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

func TestUnreachableNeighbor(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, w *world) {
				a := w.add(1, f.a+f.mask)
				w.add(2)
				first := udpPacket(ipSpec{src: f.a, dst: f.b}, pattern(40))
				second := udpPacket(ipSpec{src: f.a, dst: f.b}, pattern(3000))
				a.send(first)
				a.send(second)
				a.expect()
				w.advance((nudMulticastProbes + 1) * nudRetransmit)
				got := a.host.take()
				if len(got) != 2 {
					t.Fatalf("host got %d packets, want two ICMP errors", len(got))
				}
				slices.SortFunc(got, func(a, b hostPacket) int { return len(a.packet) - len(b.packet) })
				checkICMPError(t, got[0].packet, first, reasonUnreachable, 0)
				checkICMPError(t, got[1].packet, second, reasonUnreachable, 0)
				if n := a.pending.Load(); n != 0 {
					t.Errorf("%d packets still watched", n)
				}

				// It comes back: the next packet asks again.
				b := w.add(3, f.b+f.mask)
				a.send(first)
				b.expect(first)
			})
		})
	}
}

func TestWatchedPacketsAreBounded(t *testing.T) {
	w := newWorld(t, true)
	a := w.add(1, "10.2.0.1/24")
	p := udpPacket(ipSpec{src: "10.2.0.1", dst: "10.2.0.2"}, nil)
	for range 3 * maxPendingErrors {
		a.post(p)
	}
	if n := a.pending.Load(); n != maxPendingErrors {
		t.Errorf("%d packets watched, want %d", n, maxPendingErrors)
	}
	w.advance((nudMulticastProbes + 1) * nudRetransmit)
	if got := len(a.host.take()); got != maxPendingErrors {
		t.Errorf("%d ICMP errors, want %d", got, maxPendingErrors)
	}
}

func TestNoRoute(t *testing.T) {
	for _, f := range []struct{ a, mask, b string }{
		{"10.2.0.1", "/24", "192.0.2.1"},
		{"fd00::1", "/64", "2001:db8::1"},
	} {
		t.Run(f.b, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, w *world) {
				a := w.add(1, f.a+f.mask)
				p := udpPacket(ipSpec{src: f.a, dst: f.b}, pattern(10))
				before := a.Stats()
				a.send(p)
				a.expect()
				w.advance(2 * lastRouteWait)
				got := a.host.take()
				if len(got) != 1 {
					t.Fatalf("host got %d packets, want one ICMP error", len(got))
				}
				checkICMPError(t, got[0].packet, p, reasonNoRoute, 0)
				a.grown(before, TxDropNoRoute, 1)
				if n := a.pending.Load(); n != 0 {
					t.Errorf("%d packets still wait", n)
				}

				// An ICMP error is not answered by one.
				icmp := ipSpec{src: f.a, dst: f.b, proto: protoICMPv4, body: []byte{3, 1, 0, 0, 0, 0, 0, 0}}
				if !isIPv4(p) {
					icmp.proto, icmp.body[0] = protoICMPv6, 1
				}
				a.send(icmp.packet())
				w.advance(2 * lastRouteWait)
				a.expect()
			})
		})
	}
}

// A packet that is faster than the kernel's message about its route.
func TestLateRoute(t *testing.T) {
	bothPaths(t, func(t *testing.T, w *world) {
		a, b := w.add(1, "10.2.0.1/24"), w.add(2, "10.2.0.2/24")
		p := udpPacket(ipSpec{src: "10.2.0.1", dst: "192.0.2.1"}, pattern(10))
		before := a.Stats()
		a.send(p)
		w.advance(50 * time.Millisecond)
		b.expect()
		if err := a.AddRoute(mustPrefix("192.0.2.0/24"), mustPrefix("10.2.0.2/24").Addr()); err != nil {
			t.Fatal(err)
		}
		w.advance(2 * lastRouteWait)
		b.expect(p)
		a.expect()
		a.grown(before, TxDropNoRoute, 0)
	})
}

// Packets without a route are not kept without bound.
func TestLateRouteBound(t *testing.T) {
	w := newWorld(t, true)
	a := w.add(1, "10.2.0.1/24")
	p := udpPacket(ipSpec{src: "10.2.0.1", dst: "192.0.2.1"}, nil)
	before := a.Stats()
	for range maxPendingErrors + 3 {
		a.post(p)
	}
	a.grown(before, TxDropNoRoute, 3)
	w.advance(2 * lastRouteWait)
	a.grown(before, TxDropNoRoute, maxPendingErrors+3)
}

// checkICMPError checks an ICMP error that the host got about its packet orig.
func checkICMPError(t *testing.T, msg, orig []byte, reason icmpReason, mtu int) {
	t.Helper()
	hdr, total, ok := ipLen(msg, len(msg))
	if !ok || total != len(msg) {
		t.Fatalf("not an IP packet: %x", msg)
	}
	icmp := msg[hdr:]
	var want []byte
	var src, dst, quoted []byte
	if isIPv4(msg) {
		h := header.IPv4(msg)
		if !h.IsChecksumValid() || h.Protocol() != protoICMPv4 || header.ICMPv4Checksum(icmp, 0) != header.ICMPv4(icmp).Checksum() {
			t.Errorf("bad header or checksum: %x", msg)
		}
		if len(msg) > maxICMPv4Error {
			t.Errorf("error of %d bytes", len(msg))
		}
		want = map[icmpReason][]byte{
			reasonNoRoute:     {3, 0},
			reasonUnreachable: {3, 1},
			reasonTooBig:      {3, 4},
		}[reason]
		if got := int(binary.BigEndian.Uint16(icmp[6:])); got != mtu {
			t.Errorf("mtu %d, want %d", got, mtu)
		}
		src, dst = msg[v4SrcOff:v4DstOff], msg[v4DstOff:v4HdrLen]
		quoted = orig[v4SrcOff:v4HdrLen]
	} else {
		h := header.IPv6(msg)
		if h.NextHeader() != protoICMPv6 ||
			icmpv6Checksum(icmp, h.SourceAddress(), h.DestinationAddress()) != header.ICMPv6(icmp).Checksum() {
			t.Errorf("bad header or checksum: %x", msg)
		}
		if len(msg) > maxICMPv6Error {
			t.Errorf("error of %d bytes", len(msg))
		}
		want = map[icmpReason][]byte{
			reasonNoRoute:     {1, 0},
			reasonUnreachable: {1, 3},
			reasonTooBig:      {2, 0},
		}[reason]
		if got := int(binary.BigEndian.Uint32(icmp[4:])); got != mtu {
			t.Errorf("mtu %d, want %d", got, mtu)
		}
		src, dst = msg[v6SrcOff:v6DstOff], msg[v6DstOff:v6HdrLen]
		quoted = orig[v6SrcOff:v6HdrLen]
	}
	if string(icmp[:2]) != string(want) {
		t.Errorf("type and code %v, want %v", icmp[:2], want)
	}
	// From the packet's destination to its source.
	if string(dst)+string(src) != string(quoted) {
		t.Errorf("from %v to %v, of a packet with addresses %v", src, dst, quoted)
	}
	body := icmp[icmpErrorHdr:]
	if string(body) != string(orig[:len(body)]) || len(body) < min(len(orig), 500) {
		t.Errorf("quotes %d bytes\n%x, want the start of\n%x", len(body), body, orig)
	}
}

func TestLinkRefusals(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want Counter
	}{
		{fabric.ErrAgain, TxDropBusy},
		{fmt.Errorf("wrapped: %w", fabric.ErrPeerDown), TxDropPeerDown},
		{fabric.ErrNoRoute, TxDropPeerDown},
		{fabric.ErrClosed, TxDropLink},
		{exteth.ErrOffload, TxDropLink},
	} {
		t.Run(tc.err.Error(), func(t *testing.T) {
			bothPaths(t, func(t *testing.T, w *world) {
				a, b := w.add(1, "10.2.0.1/24"), w.add(2, "10.2.0.2/24")
				p := udpPacket(ipSpec{src: "10.2.0.1", dst: "10.2.0.2"}, nil)
				a.send(p)
				a.link.setFail(func([6]byte) error { return tc.err })
				before := a.Stats()
				a.send(p)
				a.grown(before, tc.want, 1)
				a.grown(before, TxDropNetstack, 0)
				a.link.setFail(nil)
				a.send(p)
				b.expect(p, p)
			})
		})
	}
}

// TestBusyLinkDoesNotFailResolution: netstack gives a neighbour up at the first
// error of a probe.
func TestBusyLinkDoesNotFailResolution(t *testing.T) {
	w := newWorld(t, true)
	a, b := w.add(1, "10.2.0.1/24"), w.add(2, "10.2.0.2/24")
	a.link.setFail(func([6]byte) error { return fabric.ErrAgain })
	p := udpPacket(ipSpec{src: "10.2.0.1", dst: "10.2.0.2"}, nil)
	a.send(p)
	a.link.setFail(nil)
	w.advance(2 * nudRetransmit)
	b.expect(p)
	a.expect()
}

// TestMayAnswer: RFC 1122 3.2.2 and RFC 4443 2.4 (e).
func TestMayAnswer(t *testing.T) {
	icmp := func(dst string, proto, typ uint8) ipSpec {
		src := "10.2.0.1"
		if proto == protoICMPv6 {
			src = "fd00::1"
		}
		return ipSpec{src: src, dst: dst, proto: proto, body: []byte{typ, 0, 0, 0, 0, 0, 0, 0}}
	}
	udp := func(src, dst string) ipSpec {
		return ipSpec{src: src, dst: dst, proto: protoUDP, body: make([]byte, 8)}
	}
	fragment := udp("10.2.0.1", "10.2.0.2")
	fragment.offset = 8
	empty, empty6 := icmp("10.2.0.2", protoICMPv4, 8), icmp("fd00::2", protoICMPv6, 128)
	empty.body, empty6.body = nil, nil
	for _, tc := range []struct {
		name string
		spec ipSpec
		want bool
	}{
		{"udp", udp("10.2.0.1", "10.2.0.2"), true},
		{"no source", udp("0.0.0.0", "10.2.0.2"), false},
		{"broadcast source", udp("255.255.255.255", "10.2.0.2"), false},
		{"group source", udp("224.0.0.1", "10.2.0.2"), false},
		{"group", udp("10.2.0.1", "224.0.0.1"), false},
		{"broadcast", udp("10.2.0.1", "255.255.255.255"), false},
		{"later fragment", fragment, false},
		{"echo", icmp("10.2.0.2", protoICMPv4, 8), true},
		{"echo reply", icmp("10.2.0.2", protoICMPv4, 0), true},
		{"unreachable", icmp("10.2.0.2", protoICMPv4, 3), false},
		{"unknown", icmp("10.2.0.2", protoICMPv4, 99), false},
		{"cut", empty, false},
		{"udp6", udp("fd00::1", "fd00::2"), true},
		{"no source6", udp("::", "fd00::2"), false},
		{"group source6", udp("ff02::1", "fd00::2"), false},
		{"group6", udp("fd00::1", "ff02::1"), false},
		{"echo6", icmp("fd00::2", protoICMPv6, 128), true},
		{"unreachable6", icmp("fd00::2", protoICMPv6, 1), false},
		{"redirect", icmp("fd00::2", protoICMPv6, 137), false},
		{"cut6", empty6, false},
	} {
		if got := mayAnswer(tc.spec.packet()); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
