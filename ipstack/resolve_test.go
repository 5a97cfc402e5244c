package ipstack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"exnet/exteth"
	"exnet/fabric"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// families are the addresses of two neighbours in each family.
var families = []struct{ name, a, b, mask string }{
	{"ipv4", "10.2.0.1", "10.2.0.2", "/24"},
	{"ipv6", "fd00::1", "fd00::2", "/64"},
	{"ipv6 link-local", "fe80::2c87:4ff:fe07:1", "fe80::2c87:4ff:fe07:2", "/64"},
}

func TestFirstPacketResolvesThenFastPath(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, w *world) {
				a, b := w.add(1, f.a+f.mask), w.add(2, f.b+f.mask)
				before := a.Stats()
				var want [][]byte
				// One waits for the neighbour, with its hop limit untouched.
				for _, ttl := range []uint8{1, 64, 255} {
					p := udpPacket(ipSpec{src: f.a, dst: f.b, ttl: ttl}, pattern(int(ttl)))
					a.post(p)
					want = append(want, p)
				}
				w.settle()
				b.expect(want...)
				a.expect()
				a.grown(before, SlowTx, 3)

				before = a.Stats()
				for _, ttl := range []uint8{1, 255} {
					p := udpPacket(ipSpec{src: f.a, dst: f.b, ttl: ttl}, nil)
					a.send(p)
					b.expect(p)
				}
				if w.fast {
					a.grown(before, FastTx, 2)
					a.grown(before, SlowTx, 0)
				} else {
					a.grown(before, FastTx, 0)
					a.grown(before, SlowTx, 2)
				}
				// The way back was learned from the request.
				before = b.Stats()
				b.send(udpPacket(ipSpec{src: f.b, dst: f.a}, nil))
				b.grown(before, TxDropUnreachable, 0)
				if got := len(a.host.take()); got != 1 {
					t.Errorf("%d packets came back", got)
				}
			})
		})
	}
}

func TestFrameOnTheWire(t *testing.T) {
	bothPaths(t, func(t *testing.T, w *world) {
		a := w.add(1, "10.2.0.1/24")
		w.add(0x1234, "10.2.0.2/24")
		p := udpPacket(ipSpec{src: "10.2.0.1", dst: "10.2.0.2"}, []byte("x"))
		a.send(p)
		w.hub.startLog()
		a.send(p)
		frames := w.hub.logged()
		if len(frames) != 1 {
			t.Fatalf("%d frames", len(frames))
		}
		want := append([]byte{
			0x2e, 0x87, 0x04, 0x07, 0x12, 0x34, // destination
			0x2e, 0x87, 0x04, 0x07, 0x00, 0x01, // source
			0x08, 0x00, // IPv4
		}, p...)
		if string(frames[0].frame) != string(want) {
			t.Errorf("frame\n%x, want\n%x", frames[0].frame, want)
		}
	})
}

func TestNeighborStates(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			w := newWorld(t, true)
			a, b := w.add(1, f.a+f.mask), w.add(2, f.b+f.mask)
			p := udpPacket(ipSpec{src: f.a, dst: f.b}, []byte("x"))
			a.send(p)
			before := a.Stats()
			a.send(p)
			a.grown(before, FastTx, 1)

			// Stale after at most 1.5 s: the next packet passes through netstack,
			// the one after it does not.
			w.advance(3 * nudReachableTime / 2)
			before = a.Stats()
			a.send(p)
			a.grown(before, SlowTx, 1)
			a.send(p)
			a.send(p)
			a.grown(before, FastTx, 2)

			// netstack probes, and is answered.
			w.hub.startLog()
			w.advance(nudDelayFirstProbe + nudRetransmit)
			if n := len(w.hub.logged()); n < 2 {
				t.Errorf("%d frames while probing, want probe and answer", n)
			}
			before = a.Stats()
			a.send(p)
			a.grown(before, FastTx, 1)
			b.expect(p, p, p, p, p, p)

			// In steady use, the slow path sees about one packet a second.
			before = a.Stats()
			const seconds = 20
			for range seconds * 50 {
				a.send(p)
				w.advance(20 * time.Millisecond)
			}
			if slow := a.Stats()[SlowTx] - before[SlowTx]; slow > 2*seconds {
				t.Errorf("%d of %d packets took the slow path in %d s", slow, seconds*50, seconds)
			}
			if got := len(b.host.take()); got != seconds*50 {
				t.Errorf("%d of %d packets arrived", got, seconds*50)
			}
		})
	}
}

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
	w.advance(2 * time.Second)
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
				got := a.host.take()
				if len(got) != 1 {
					t.Fatalf("host got %d packets, want one ICMP error", len(got))
				}
				checkICMPError(t, got[0].packet, p, reasonNoRoute, 0)
				a.grown(before, TxDropNoRoute, 1)

				// An ICMP error is not answered by one.
				icmp := ipSpec{src: f.a, dst: f.b, proto: protoICMPv4, body: []byte{3, 1, 0, 0, 0, 0, 0, 0}}
				if !isIPv4(p) {
					icmp.proto, icmp.body[0] = protoICMPv6, 1
				}
				a.send(icmp.packet())
				a.expect()
			})
		})
	}
}

// checkICMPError checks an ICMP error that the host got about its packet orig.
func checkICMPError(t *testing.T, msg, orig []byte, reason icmpReason, mtu int) {
	t.Helper()
	hdr, total, ok := ipLen(msg)
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

// TestPeerComesBackAsAnotherNode is the case of a daemon that restarts.
func TestPeerComesBackAsAnotherNode(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, w *world) {
				a, b := w.add(1, f.a+f.mask), w.add(2, f.b+f.mask)
				p := udpPacket(ipSpec{src: f.a, dst: f.b}, []byte("x"))
				a.send(p)
				b.expect(p)
				b.leave()

				// The link reports the node as gone: one packet is lost, the next
				// one asks who has the address.
				before := a.Stats()
				a.send(p)
				a.grown(before, TxDropPeerDown, 1)
				a.grown(before, NeighborsForgotten, 1)
				a.post(p)
				w.settle()
				c := w.add(3, f.b+f.mask)
				w.advance(2 * nudRetransmit)
				c.expect(p)
				a.expect()
			})
		})
	}
}

// TestPeerMovesSilently is the same without a link that reports it: the old
// node is there, but does not have the address any more.
func TestPeerMovesSilently(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			for _, announced := range []bool{true, false} {
				t.Run(fmt.Sprintf("announced=%v", announced), func(t *testing.T) {
					w := newWorld(t, true)
					a, b := w.add(1, f.a+f.mask), w.add(2, f.b+f.mask)
					p := udpPacket(ipSpec{src: f.a, dst: f.b}, []byte("x"))
					a.send(p)
					a.send(p)
					b.expect(p, p)
					if err := b.RemoveAddress(mustPrefix(f.b + f.mask)); err != nil {
						t.Fatal(err)
					}
					c := w.add(3)
					if !announced {
						c.link.setFail(func(dst [6]byte) error {
							if dst[0]&1 != 0 {
								return fabric.ErrAgain
							}
							return nil
						})
					}
					if err := c.AddAddress(mustPrefix(f.b + f.mask)); err != nil {
						t.Fatal(err)
					}
					w.settle()
					c.link.setFail(nil)

					limit := 3 * time.Second
					if announced {
						limit = time.Second
					}
					const step = 20 * time.Millisecond
					var found time.Duration
					for len(c.host.take()) == 0 {
						if found > limit {
							t.Fatalf("not found after %v", found)
						}
						a.send(p)
						w.advance(step)
						found += step
					}
					t.Logf("found after %v", found)
				})
			}
		})
	}
}

func TestGateway(t *testing.T) {
	for _, f := range []struct{ a, b, c, mask, far, net string }{
		{"10.2.0.1", "10.2.0.2", "10.2.0.3", "/24", "192.0.2.7", "192.0.2.0/24"},
		{"fd00::1", "fd00::2", "fd00::3", "/64", "2001:db8::7", "2001:db8::/32"},
		{"fd00::1", "fe80::2", "fe80::3", "/64", "2001:db8::7", "::/0"},
	} {
		t.Run(f.net, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, w *world) {
				a, b, c := w.add(1, f.a+f.mask), w.add(2, f.b+f.mask), w.add(3, f.c+f.mask)
				if f.net == "::/0" {
					// The gateways answer to the address of the one that asks.
					for _, n := range []*node{b, c} {
						if err := n.AddRoute(mustPrefix(f.a+f.mask), netip.Addr{}); err != nil {
							t.Fatal(err)
						}
					}
				}
				net := mustPrefix(f.net)
				if err := a.AddRoute(net, mustPrefix(f.b+f.mask).Addr()); err != nil {
					t.Fatal(err)
				}
				p := udpPacket(ipSpec{src: f.a, dst: f.far}, pattern(9))
				a.send(p)
				before := a.Stats()
				a.send(p)
				if w.fast {
					a.grown(before, FastTx, 1)
				}
				// The gateway goes stale, and is probed as any neighbour.
				w.advance(2 * nudReachableTime)
				before = a.Stats()
				a.send(p)
				a.send(p)
				if w.fast {
					a.grown(before, SlowTx, 1)
				}
				b.expect(p, p, p, p)

				// Another gateway: the table forgets.
				if err := a.RemoveRoute(net, mustPrefix(f.b+f.mask).Addr()); err != nil {
					t.Fatal(err)
				}
				if err := a.AddRoute(net, mustPrefix(f.c+f.mask).Addr()); err != nil {
					t.Fatal(err)
				}
				a.send(p)
				a.send(p)
				b.expect()
				c.expect(p, p)

				// The destination moves onto the link.
				if err := a.RemoveRoute(net, mustPrefix(f.c+f.mask).Addr()); err != nil {
					t.Fatal(err)
				}
				a.send(p)
				if got := a.host.take(); len(got) != 1 {
					t.Fatalf("host got %d packets, want an ICMP error", len(got))
				} else {
					checkICMPError(t, got[0].packet, p, reasonNoRoute, 0)
				}
			})
		})
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

func TestAnswersForOwnAddressesOnly(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, w *world) {
				a, b := w.add(1, f.a+f.mask), w.add(2, f.b+f.mask)
				b2 := mustPrefix(f.b + f.mask)
				p := udpPacket(ipSpec{src: f.a, dst: f.b}, nil)
				a.send(p)
				b.expect(p)
				if err := b.RemoveAddress(b2); err != nil {
					t.Fatal(err)
				}
				if err := b.RemoveAddress(b2); err == nil {
					t.Error("removed an address twice")
				}
				a.leave()
				c := w.add(3, f.a+f.mask)
				c.send(p)
				w.advance(2 * time.Second)
				b.expect()
				if got := len(c.host.take()); got != 1 {
					t.Errorf("%d ICMP errors", got)
				}
			})
		})
	}
}

func TestAnnouncement(t *testing.T) {
	w := newWorld(t, true)
	a := w.add(1)
	w.add(2)
	w.hub.startLog()
	for _, p := range []string{"10.2.0.1/24", "fd00::1/64"} {
		if err := a.AddAddress(mustPrefix(p)); err != nil {
			t.Fatal(err)
		}
	}
	var sawARP, sawNA bool
	for _, f := range w.hub.logged() {
		etherType := binary.BigEndian.Uint16(f.frame[ethTypeOff:])
		body := f.frame[ethHdrLen:]
		switch {
		case etherType == etherTypeARP:
			h := header.ARP(body)
			sawARP = h.IsValid() && h.Op() == header.ARPReply && f.frame[0] == 0xff &&
				string(h.ProtocolAddressSender()) == "\x0a\x02\x00\x01" && string(h.HardwareAddressSender()) == string(f.frame[6:12])
		case etherType == etherTypeIPv6 && body[v6NextOff] == protoICMPv6:
			sawNA = header.ICMPv6(body[v6HdrLen:]).Type() == header.ICMPv6NeighborAdvert
		}
	}
	if !sawARP || !sawNA {
		t.Errorf("ARP announced: %v, NA announced: %v", sawARP, sawNA)
	}
	if got := a.Stats()[Announcements]; got != 2 {
		t.Errorf("%d announcements", got)
	}
	// The same address again is no news.
	if err := a.AddAddress(mustPrefix("10.2.0.1/24")); err != nil {
		t.Error(err)
	}
	if got := a.Stats()[Announcements]; got != 2 {
		t.Errorf("%d announcements", got)
	}
}
