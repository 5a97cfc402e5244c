package ipstack

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// frameFrom builds the frame that node src would send.
func frameFrom(src, dst fabric.NodeID, etherType uint16, body []byte) []byte {
	f := make([]byte, ethHdrLen, ethHdrLen+len(body))
	prefix := arp.DefaultPrefix()
	putEthernet(f, prefix.MAC(dst), prefix.MAC(src), etherType)
	return append(f, body...)
}

func TestReceiveChecks(t *testing.T) {
	p := udpPacket(ipSpec{src: "10.2.0.2", dst: "10.2.0.1"}, pattern(20))
	p6 := udpPacket(ipSpec{src: "fd00::2", dst: "fd00::1"}, pattern(20))
	edit := func(f []byte, i int, v byte) []byte { f = bytes.Clone(f); f[i] = v; return f }
	good := frameFrom(2, 1, etherTypeIPv4, p)
	for _, tc := range []struct {
		name  string
		src   fabric.NodeID
		off   exteth.Offload
		frame []byte
		want  Counter
	}{
		{"good", 2, exteth.Offload{}, good, FastRx},
		{"good6", 2, exteth.Offload{}, frameFrom(2, 1, etherTypeIPv6, p6), FastRx},
		{"padded", 2, exteth.Offload{}, append(bytes.Clone(good), 1, 2, 3), FastRx},
		{"broadcast", 2, exteth.Offload{}, append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, good[6:]...), FastRx},
		{"broadcast to one", 2, exteth.Offload{}, append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, frameFrom(2, 1, etherTypeIPv4, udpPacket(ipSpec{src: "10.2.0.2", dst: "10.2.0.9"}, nil))[6:]...), RxDropOtherHost},
		{"multicast to one", 2, exteth.Offload{}, append([]byte{0x33, 0x33, 0, 0, 0, 1}, frameFrom(2, 1, etherTypeIPv6, udpPacket(ipSpec{src: "fd00::2", dst: "fd00::9"}, nil))[6:]...), RxDropOtherHost},
		{"empty", 2, exteth.Offload{}, nil, RxDropShort},
		{"header cut", 2, exteth.Offload{}, good[:13], RxDropShort},
		{"no packet", 2, exteth.Offload{}, good[:14], RxDropMalformed},
		{"other host", 2, exteth.Offload{}, frameFrom(2, 3, etherTypeIPv4, p), RxDropOtherHost},
		{"spoofed node", 3, exteth.Offload{}, good, RxDropSpoofed},
		{"spoofed prefix", 2, exteth.Offload{}, edit(good, 6, 0x2a), RxDropSpoofed},
		{"group as source", 2, exteth.Offload{}, edit(good, 6, 0x2f), RxDropSpoofed},
		{"ethertype", 2, exteth.Offload{}, edit(good, 13, 0x01), RxDropEtherType},
		{"version", 2, exteth.Offload{}, edit(good, 14, 0x65), RxDropMalformed},
		{"ipv4 as ipv6", 2, exteth.Offload{}, frameFrom(2, 1, etherTypeIPv6, p), RxDropMalformed},
		{"ipv6 as ipv4", 2, exteth.Offload{}, frameFrom(2, 1, etherTypeIPv4, p6), RxDropMalformed},
		{"header length", 2, exteth.Offload{}, edit(good, 14, 0x44), RxDropMalformed},
		{"long header", 2, exteth.Offload{}, edit(good, 14, 0x4f), RxDropMalformed},
		{"total length", 2, exteth.Offload{}, edit(good, 14+3, byte(len(p)+1)), RxDropMalformed},
		{"offload", 2, exteth.Offload{Flags: exteth.OffloadNeedsChecksum, CsumStart: uint16(len(p)), CsumOffset: 0}, good, RxDropOffload},
		{"offload in the padding", 2, exteth.Offload{Flags: exteth.OffloadNeedsChecksum, CsumStart: uint16(len(p)), CsumOffset: 0}, append(bytes.Clone(good), 1, 2, 3), RxDropOffload},
		{"segments of another family", 2, exteth.Offload{Flags: exteth.OffloadNeedsChecksum, GSOType: exteth.GSOTCPv6, GSOSize: 1, CsumStart: 20}, good, RxDropOffload},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, w *world) {
				a := w.add(1, "10.2.0.1/24", "fd00::1/64")
				want := tc.want
				if want == FastRx && !w.fast {
					want = SlowRx
				}
				before := a.Stats()
				if err := a.ReceiveFrame(tc.src, tc.off, lent(tc.frame)); err != nil {
					t.Error(err)
				}
				for c := range numCounters {
					if c == NetstackRx {
						continue
					}
					n := uint64(0)
					if c == want {
						n = 1
					}
					a.grown(before, c, n)
				}
				switch {
				case tc.want != FastRx:
					a.expect()
				case tc.name == "good6":
					a.expect(p6)
				default:
					a.expect(p)
				}
			})
		})
	}
}

// TestReceiveCutFrames feeds every kind of frame, cut at every length.
func TestReceiveCutFrames(t *testing.T) {
	bothPaths(t, func(t *testing.T, w *world) {
		a := w.add(1, "10.2.0.1/24", "fd00::1/64")
		for _, seed := range frameSeeds() {
			for n := range seed {
				if err := a.ReceiveFrame(2, exteth.Offload{}, lent(seed[:n])); err != nil {
					t.Error(err)
				}
			}
		}
		w.settle()
		for _, p := range a.host.takeAll() {
			if _, total, ok := ipLen(p.packet, len(p.packet)); !ok || total != len(p.packet) {
				t.Errorf("host got %x", p.packet)
			}
		}
	})
}

// frameSeeds are whole frames of all kinds from node 2 to node 1.
func frameSeeds() [][]byte {
	arpMsg := header.ARP(make([]byte, header.ARPSize))
	arpMsg.SetIPv4OverEthernet()
	arpMsg.SetOp(header.ARPRequest)
	copy(arpMsg.HardwareAddressSender(), []byte{0x2e, 0x87, 0x04, 0x07, 0, 2})
	copy(arpMsg.ProtocolAddressSender(), []byte{10, 2, 0, 2})
	copy(arpMsg.ProtocolAddressTarget(), []byte{10, 2, 0, 1})

	ns := header.ICMPv6(make([]byte, header.ICMPv6NeighborSolicitMinimumSize+8))
	ns.SetType(header.ICMPv6NeighborSolicit)
	sol := header.NDPNeighborSolicit(ns.MessageBody())
	sol.SetTargetAddress(addr("fd00::1"))
	sol.Options().Serialize(header.NDPOptionsSerializer{header.NDPSourceLinkLayerAddressOption("\x2e\x87\x04\x07\x00\x02")})
	ns.SetChecksum(icmpv6Checksum(ns, addr("fd00::2"), addr("fd00::1")))

	v4, v6 := ipSpec{src: "10.2.0.2", dst: "10.2.0.1"}, ipSpec{src: "fd00::2", dst: "fd00::1"}
	withOpts := v4
	withOpts.options = []byte{1, 1, 1, 0}
	mld := ipSpec{
		src: "fe80::2", dst: "ff02::16", proto: protoICMPv6, ttl: 1, extType: extHopByHop,
		options: []byte{protoICMPv6, 0, 5, 2, 0, 0, 1, 0}, body: []byte{143, 0, 0, 0, 0, 0, 0, 0},
	}
	return [][]byte{
		frameFrom(2, 1, etherTypeARP, arpMsg),
		frameFrom(2, 1, etherTypeIPv4, udpPacket(v4, pattern(20))),
		frameFrom(2, 1, etherTypeIPv4, udpPacket(withOpts, pattern(20))),
		frameFrom(2, 1, etherTypeIPv4, echoPacket(v4, pattern(20))),
		frameFrom(2, 1, etherTypeIPv4, tcpPacket(v4, pattern(20))),
		frameFrom(2, 1, etherTypeIPv4, ipSpec{src: "10.2.0.2", dst: "224.0.0.1", proto: protoIGMP, ttl: 1, body: []byte{0x11, 0, 0xee, 0xff, 0, 0, 0, 0}}.packet()),
		frameFrom(2, 1, etherTypeIPv6, ipSpec{src: "fd00::2", dst: "fd00::1", proto: protoICMPv6, ttl: 255, body: ns}.packet()),
		frameFrom(2, 1, etherTypeIPv6, mld.packet()),
		frameFrom(2, 1, etherTypeIPv6, udpPacket(v6, pattern(20))),
		frameFrom(2, 1, etherTypeIPv6, echoPacket(v6, pattern(20))),
	}
}

// TestNeighborDiscoveryStaysBelow: ARP and NDP are never the host's, group
// membership is.
func TestNeighborDiscoveryStaysBelow(t *testing.T) {
	destOpts := []byte{protoICMPv6, 0, 1, 4, 0, 0, 0, 0}
	bothPaths(t, func(t *testing.T, w *world) {
		a := w.add(1, "10.2.0.1/24", "fd00::1/64")
		for typ := 133; typ <= 137; typ++ {
			ndp := ipSpec{src: "fd00::2", dst: "fd00::1", proto: protoICMPv6, ttl: 255, body: make([]byte, 32)}
			ndp.body[0] = byte(typ)
			icmp := header.ICMPv6(ndp.body)
			icmp.SetChecksum(icmpv6Checksum(icmp, addr(ndp.src), addr(ndp.dst)))
			plain := ndp.packet()
			ndp.extType, ndp.options = extDestOpts, destOpts
			for _, p := range [][]byte{plain, ndp.packet()} {
				if err := a.ReceiveFrame(2, exteth.Offload{}, lent(frameFrom(2, 1, etherTypeIPv6, p))); err != nil {
					t.Error(err)
				}
			}
		}
		for _, f := range frameSeeds()[:1] {
			if err := a.ReceiveFrame(2, exteth.Offload{}, lent(f)); err != nil {
				t.Error(err)
			}
		}
		a.expect()

		igmp := ipSpec{src: "10.2.0.2", dst: "224.0.0.22", proto: protoIGMP, ttl: 1, body: make([]byte, 8)}.packet()
		if err := a.ReceiveFrame(2, exteth.Offload{}, lent(frameFrom(2, 1, etherTypeIPv4, igmp))); err != nil {
			t.Error(err)
		}
		a.expect(igmp)
		w.settle()
	})
}

func TestHostRefusesPacket(t *testing.T) {
	bothPaths(t, func(t *testing.T, w *world) {
		a := w.add(1, "10.2.0.1/24")
		a.host.mu.Lock()
		a.host.err = errors.New("down")
		a.host.mu.Unlock()
		before := a.Stats()
		f := frameFrom(2, 1, etherTypeIPv4, udpPacket(ipSpec{src: "10.2.0.2", dst: "10.2.0.1"}, nil))
		if err := a.ReceiveFrame(2, exteth.Offload{}, lent(f)); (err != nil) != w.fast {
			t.Errorf("error %v", err)
		}
		a.grown(before, RxDropHost, 1)
		// An ICMP error that the host does not take, too.
		a.send(udpPacket(ipSpec{src: "10.2.0.1", dst: "192.0.2.1"}, nil))
		w.advance(2 * lastRouteWait)
		a.grown(before, RxDropHost, 2)
		a.grown(before, ICMPErrors, 0)
	})
}

// TestAfterClose: late calls are counted and dropped.
func TestAfterClose(t *testing.T) {
	bothPaths(t, func(t *testing.T, w *world) {
		a, b := w.add(1, "10.2.0.1/24"), w.add(2, "10.2.0.2/24")
		waiting := udpPacket(ipSpec{src: "10.2.0.1", dst: "10.2.0.3"}, nil)
		a.send(waiting)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		before := a.Stats()
		a.send(waiting)
		a.grown(before, TxDropClosed, 1)
		for _, f := range frameSeeds() {
			if err := a.ReceiveFrame(2, exteth.Offload{}, lent(f)); err != nil {
				t.Error(err)
			}
		}
		a.grown(before, RxDropClosed, uint64(len(frameSeeds())))
		w.advance(2 * time.Second)
		a.expect()
		b.expect()
	})
}
