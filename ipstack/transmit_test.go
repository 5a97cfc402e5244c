package ipstack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"exnet/exteth"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

func TestGroupsLeaveOnce(t *testing.T) {
	for _, tc := range []struct {
		name, src, dst string
		mac            [6]byte
	}{
		{"multicast", "10.2.0.1", "239.129.2.3", [6]byte{0x01, 0x00, 0x5e, 0x01, 0x02, 0x03}},
		{"all hosts", "10.2.0.1", "224.0.0.1", [6]byte{0x01, 0x00, 0x5e, 0x00, 0x00, 0x01}},
		{"broadcast", "10.2.0.1", "255.255.255.255", [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
		{"broadcast, no source", "0.0.0.0", "255.255.255.255", [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
		{"subnet broadcast", "10.2.0.1", "10.2.0.255", [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
		{"ipv6", "fd00::1", "ff02:dead:beef::1:3", [6]byte{0x33, 0x33, 0x00, 0x01, 0x00, 0x03}},
		{"ipv6, no source", "::", "ff02::2", [6]byte{0x33, 0x33, 0x00, 0x00, 0x00, 0x02}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, w *world) {
				a, b, c := w.add(1, "10.2.0.1/24", "fd00::1/64"), w.add(2, "10.2.0.2/24"), w.add(3, "10.2.0.3/24")
				p := udpPacket(ipSpec{src: tc.src, dst: tc.dst, ttl: 1}, pattern(100))
				w.hub.startLog()
				a.send(p)
				frames := w.hub.logged()
				if len(frames) != 1 {
					t.Fatalf("%d frames, want 1", len(frames))
				}
				if got := [6]byte(frames[0].frame); got != tc.mac {
					t.Errorf("to %x, want %x", got, tc.mac)
				}
				b.expect(p)
				c.expect(p)
				a.expect() // the kernel loops by itself
			})
		})
	}
}

// TestGroupBeforeAddresses: the kernel sends MLD reports and router
// solicitations before it has told us an address.
func TestGroupBeforeAddresses(t *testing.T) {
	routerAlert := []byte{protoICMPv6, 0, 5, 2, 0, 0, 1, 0} // RFC 2711, padded
	for _, tc := range []struct {
		name   string
		p      []byte
		toHost bool
	}{
		{"igmp", ipSpec{src: "10.2.0.9", dst: "224.0.0.22", proto: protoIGMP, ttl: 1, options: []byte{0x94, 4, 0, 0}, body: make([]byte, 16)}.packet(), true},
		{"mld", ipSpec{src: "::", dst: "ff02::16", proto: protoICMPv6, ttl: 1, extType: extHopByHop, options: routerAlert, body: []byte{143, 0, 0, 0, 0, 0, 0, 0}}.packet(), true},
		{"rs", ipSpec{src: "::", dst: "ff02::2", proto: protoICMPv6, ttl: 255, body: []byte{133, 0, 0, 0, 0, 0, 0, 0}}.packet(), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, w *world) {
				a, b := w.add(1), w.add(2)
				w.hub.startLog()
				a.send(tc.p)
				frames := w.hub.logged()
				if len(frames) != 1 || !bytes.Equal(frames[0].frame[ethHdrLen:], tc.p) {
					t.Fatalf("frames %x, want one with\n%x", frames, tc.p)
				}
				got := b.host.takeAll()
				if len(got) != 0 != tc.toHost {
					t.Errorf("host got %d packets, for the host: %v", len(got), tc.toHost)
				}
				if tc.toHost && !bytes.Equal(got[0].packet, tc.p) {
					t.Errorf("host got\n%x, want\n%x", got[0].packet, tc.p)
				}
			})
		})
	}
}

func TestTooBig(t *testing.T) {
	const mtu = 1500
	gso := exteth.Offload{
		Flags: exteth.OffloadNeedsChecksum, GSOType: exteth.GSOTCPv4, HdrLen: 40,
		GSOSize: mtu - 40 + 1, CsumStart: 20, CsumOffset: 16,
	}
	gso6 := gso
	gso6.GSOType, gso6.HdrLen, gso6.GSOSize, gso6.CsumStart = exteth.GSOTCPv6, 60, mtu-60+1, 40
	for _, tc := range []struct {
		name string
		p    []byte
		off  exteth.Offload
	}{
		{"ipv4 df", udpPacket(ipSpec{src: "10.2.0.1", dst: "10.2.0.2", df: true}, pattern(mtu)), exteth.Offload{}},
		{"ipv6", udpPacket(ipSpec{src: "fd00::1", dst: "fd00::2"}, pattern(mtu)), exteth.Offload{}},
		{"ipv4 segments", tcpPacket(ipSpec{src: "10.2.0.1", dst: "10.2.0.2"}, pattern(9000)), gso},
		{"ipv6 segments", tcpPacket(ipSpec{src: "fd00::1", dst: "fd00::2"}, pattern(9000)), gso6},
		{"fragment", ipSpec{src: "10.2.0.1", dst: "10.2.0.2", proto: protoUDP, more: true, body: pattern(mtu)}.packet(), exteth.Offload{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, w *world) {
				w.mtu = mtu
				a, b := w.add(1, "10.2.0.1/24", "fd00::1/64"), w.add(2, "10.2.0.2/24", "fd00::2/64")
				before := a.Stats()
				a.send(tc.p, tc.off)
				got := a.host.take()
				if len(got) != 1 {
					t.Fatalf("host got %d packets, want one ICMP error", len(got))
				}
				checkICMPError(t, got[0].packet, tc.p, reasonTooBig, mtu)
				a.grown(before, TxDropTooBig, 1)
				b.expect()
			})
		})
	}
}

func TestFragments(t *testing.T) {
	const mtu = 1500
	for _, offload := range []bool{false, true} {
		t.Run(fmt.Sprintf("offload=%v", offload), func(t *testing.T) {
			bothPaths(t, func(t *testing.T, w *world) {
				w.mtu = mtu
				a, b := w.add(1, "10.2.0.1/24"), w.add(2, "10.2.0.2/24")
				spec := ipSpec{src: "10.2.0.1", dst: "10.2.0.2", ttl: 1, id: 77}
				whole := udpPacket(spec, pattern(4000))
				p := bytes.Clone(whole)
				var off exteth.Offload
				if offload {
					off = exteth.Offload{Flags: exteth.OffloadNeedsChecksum, CsumStart: 20, CsumOffset: 6}
					spec.proto = protoUDP
					header.UDP(p[v4HdrLen:]).SetChecksum(spec.pseudo(len(p) - v4HdrLen))
				}
				a.send(p, off)
				got := b.host.take()
				if len(got) != 3 {
					t.Fatalf("%d fragments", len(got))
				}
				var body []byte
				for _, f := range got {
					h := header.IPv4(f.packet)
					if !h.IsValid(len(f.packet)) || !h.IsChecksumValid() || len(f.packet) > mtu || h.TTL() != 1 || h.ID() != 77 {
						t.Errorf("bad fragment header %v", h[:v4HdrLen])
					}
					if f.off != (exteth.Offload{}) {
						t.Errorf("fragment with offload %+v", f.off)
					}
					if int(h.FragmentOffset()) != len(body) {
						t.Errorf("fragment at %d, want %d", h.FragmentOffset(), len(body))
					}
					body = append(body, h.Payload()...)
				}
				if !bytes.Equal(body, whole[v4HdrLen:]) {
					t.Error("fragments do not make the packet")
				}
			})
		})
	}
}

// TestUnusualPackets passes, byte for byte.
func TestUnusualPackets(t *testing.T) {
	destOpts := []byte{protoUDP, 0, 1, 4, 0, 0, 0, 0}
	hopByHop := []byte{protoUDP, 0, 1, 4, 0, 0, 0, 0}
	fragHdr := []byte{protoUDP, 0, 0, 1, 0, 0, 0, 9}
	v4, v6 := ipSpec{src: "10.2.0.1", dst: "10.2.0.2"}, ipSpec{src: "fd00::1", dst: "fd00::2"}
	with := func(s ipSpec, f func(*ipSpec)) ipSpec { f(&s); return s }
	for _, tc := range []struct {
		name string
		p    []byte
		fast bool // its way out
	}{
		{"options", udpPacket(with(v4, func(s *ipSpec) { s.options = []byte{1, 1, 1, 0} }), pattern(9)), false},
		{"fragment", with(v4, func(s *ipSpec) { s.proto, s.offset, s.body = protoUDP, 800, pattern(99) }).packet(), true},
		{"sctp", with(v4, func(s *ipSpec) { s.proto, s.body = 132, pattern(99) }).packet(), true},
		{"no payload", with(v4, func(s *ipSpec) { s.proto = protoUDP }).packet(), true},
		{"ping", echoPacket(v4, pattern(56)), true},
		{"other source", udpPacket(with(v4, func(s *ipSpec) { s.src = "192.0.2.1" }), nil), true},
		{"ping6", echoPacket(v6, pattern(56)), true},
		{"destination options", udpPacket(with(v6, func(s *ipSpec) { s.extType, s.options = extDestOpts, destOpts }), pattern(9)), false},
		{"hop by hop", udpPacket(with(v6, func(s *ipSpec) { s.extType, s.options = extHopByHop, hopByHop }), pattern(9)), false},
		{"fragment header", with(v6, func(s *ipSpec) { s.extType, s.options, s.body = extFragment, fragHdr, pattern(64) }).packet(), true},
		{"esp", with(v6, func(s *ipSpec) { s.proto, s.body = 50, pattern(64) }).packet(), false},
		{"no next header", with(v6, func(s *ipSpec) { s.proto = 59 }).packet(), false},
		{"other source6", udpPacket(with(v6, func(s *ipSpec) { s.src = "2001:db8::1" }), nil), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, w *world) {
				a, b := w.add(1, "10.2.0.1/24", "fd00::1/64"), w.add(2, "10.2.0.2/24", "fd00::2/64")
				a.send(tc.p)
				before := a.Stats()
				a.send(tc.p)
				b.expect(tc.p, tc.p)
				if fast := a.Stats()[FastTx] > before[FastTx]; fast != (tc.fast && w.fast) {
					t.Errorf("took the fast path: %v", fast)
				}
			})
		})
	}
}

// TestOffloadMetadataSurvives both ways, also while the neighbour is resolved.
func TestOffloadMetadataSurvives(t *testing.T) {
	tso := exteth.Offload{
		Flags: exteth.OffloadNeedsChecksum, GSOType: exteth.GSOTCPv4, HdrLen: 40,
		GSOSize: 1460, CsumStart: 20, CsumOffset: 16,
	}
	tso6 := tso
	tso6.GSOType, tso6.HdrLen, tso6.GSOSize, tso6.CsumStart = exteth.GSOTCPv6|exteth.GSOECN, 60, 1440, 40
	uso := tso
	uso.GSOType, uso.HdrLen, uso.CsumOffset, uso.GSOSize = exteth.GSOUDPL4, 28, 6, 1472
	v4, v6 := ipSpec{src: "10.2.0.1", dst: "10.2.0.2"}, ipSpec{src: "fd00::1", dst: "fd00::2"}
	for _, tc := range []struct {
		name string
		p    []byte
		off  exteth.Offload
	}{
		{"tso", tcpPacket(v4, pattern(60000)), tso},
		{"tso, largest", tcpPacket(v4, pattern(65535-40)), tso},
		{"tso6", tcpPacket(v6, pattern(60000)), tso6},
		{"uso", udpPacket(v4, pattern(5000)), uso},
		{"checksum", tcpPacket(v4, pattern(10)), exteth.Offload{Flags: exteth.OffloadNeedsChecksum, CsumStart: 20, CsumOffset: 16}},
		{"valid", tcpPacket(v6, pattern(10)), exteth.Offload{Flags: exteth.OffloadDataValid}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, w *world) {
				w.mtu = 1500
				a, b := w.add(1, "10.2.0.1/24", "fd00::1/64"), w.add(2, "10.2.0.2/24", "fd00::2/64")
				a.send(tc.p, tc.off)
				a.send(tc.p, tc.off)
				got := b.host.take()
				if len(got) != 2 {
					t.Fatalf("%d packets", len(got))
				}
				for _, g := range got {
					if g.off != tc.off || !bytes.Equal(g.packet, tc.p) {
						t.Errorf("offload %+v, want %+v; packet equal: %v", g.off, tc.off, bytes.Equal(g.packet, tc.p))
					}
				}
			})
		})
	}
}

func TestHostSendsGarbage(t *testing.T) {
	good := udpPacket(ipSpec{src: "10.2.0.1", dst: "10.2.0.2"}, pattern(8))
	good6 := udpPacket(ipSpec{src: "fd00::1", dst: "fd00::2"}, pattern(8))
	bothPaths(t, func(t *testing.T, w *world) {
		a, b := w.add(1, "10.2.0.1/24", "fd00::1/64"), w.add(2, "10.2.0.2/24", "fd00::2/64")
		a.send(good)
		a.send(good6)
		b.expect(good, good6)

		before := a.Stats()
		drops := uint64(0)
		for _, p := range [][]byte{good, good6} {
			for n := range p { // cut at every length
				a.send(p[:n])
				drops++
			}
			long := append(bytes.Clone(p), 0)
			a.send(long)
			drops++
		}
		for _, first := range []byte{0x00, 0x44, 0x46, 0x4f, 0x55, 0x75, 0xff} {
			p := bytes.Clone(good)
			p[0] = first
			binary.BigEndian.PutUint16(p[v4LengthOff:], uint16(len(p)))
			if first == 0x46 {
				p = p[:v4HdrLen] // options that are not there
			}
			a.send(p)
			drops++
		}
		a.grown(before, TxDropMalformed, drops)
		for _, off := range []exteth.Offload{
			{Flags: exteth.OffloadNeedsChecksum, CsumStart: 20, CsumOffset: 15},
			{Flags: exteth.OffloadNeedsChecksum, CsumStart: 0xffff, CsumOffset: 0xffff},
			{Flags: exteth.OffloadNeedsChecksum, GSOType: exteth.GSOTCPv4, GSOSize: 100, CsumStart: 20, CsumOffset: 6},
			{Flags: exteth.OffloadNeedsChecksum, GSOType: exteth.GSOTCPv6, GSOSize: 100, CsumStart: 0, CsumOffset: 6},
			{Flags: exteth.OffloadNeedsChecksum, GSOType: exteth.GSOUDPL4, GSOSize: 100, CsumStart: 29, CsumOffset: 4},
			{GSOType: 2, GSOSize: 100},
		} {
			before := a.Stats()
			a.send(good, off)
			a.grown(before, TxDropOffload, 1)
		}
		b.expect()
	})
}
