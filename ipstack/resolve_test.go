package ipstack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

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

// A first packet's question for its neighbor leaves before FromHost returns, also if the caller
// then keeps the only place in the Go scheduler.
func TestFirstPacketAsksAtOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const packets = 20
	h := newHub()
	link, s := attach(t, h, 1, 65535, Config{Host: &fakeHost{}})
	if err := s.AddAddress(netip.MustParsePrefix("10.2.0.1/24")); err != nil {
		t.Fatal(err)
	}
	h.startLog()
	atOnce, before := 0, 0
	for i := range packets {
		s.FromHost(link.buffers.get(udpPacket(ipSpec{src: "10.2.0.1", dst: fmt.Sprintf("10.2.0.%d", 2+i)}, nil)))
		asked := len(h.logged())
		if asked > before {
			atOnce++
		}
		before = asked
	}
	if atOnce < packets/2 { // the scheduler prefers another goroutine at times
		t.Errorf("%d of %d questions left at once", atOnce, packets)
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

// stateIs fails unless a neighbour is in a state.
func (n *node) stateIs(addr, want string) {
	n.w.t.Helper()
	for _, got := range n.Neighbors() {
		if got.Addr == netip.MustParseAddr(addr) && got.State != want {
			n.w.t.Errorf("node %d: %s is %s, want %s", n.link.node, addr, got.State, want)
		}
	}
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

			// Stale after at most 1.5 s: packets still go the fast way, and netstack
			// probes, and is answered, once there is time for it.
			w.advance(3 * nudReachableTime / 2)
			before = a.Stats()
			for range 3 {
				a.send(p)
			}
			a.grown(before, FastTx, 3)
			w.advance(nudDelayFirstProbe + nudRetransmit)
			a.stateIs(f.b, "stale")
			a.Probe()
			a.stateIs(f.b, "delay")
			w.hub.startLog()
			w.advance(nudDelayFirstProbe + nudRetransmit)
			if n := len(w.hub.logged()); n < 2 {
				t.Errorf("%d frames while probing, want probe and answer", n)
			}
			a.stateIs(f.b, "reachable")
			before = a.Stats()
			a.send(p)
			a.grown(before, FastTx, 1)
			b.expect(p, p, p, p, p, p)

			// If there never is, a packet passes through netstack.
			w.advance(3 * nudReachableTime / 2)
			before = a.Stats()
			for range maxStale + 2 {
				a.send(p)
			}
			a.grown(before, FastTx, maxStale+1)
			a.grown(before, SlowTx, 1)
			a.stateIs(f.b, "delay")
			b.host.take()
			before = a.Stats()
			a.send(p)
			a.grown(before, FastTx, 1)
			b.expect(p)

			// In steady use, the slow path sees at most two packets a second.
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
				w.advance((nudMulticastProbes + 1) * nudRetransmit)
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

// Of stale next hops, the first few get packets the fast way, and Probe probes them all; packets to
// others pass through netstack, and none is lost.
func TestManyStale(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			w := newWorld(t, true)
			a := w.add(1, f.a+f.mask)
			var peers []*node
			var packets [][]byte
			addr := netip.MustParseAddr(f.b)
			for i := range maxLate + 2 {
				peers = append(peers, w.add(fabric.NodeID(2+i), addr.String()+f.mask))
				packets = append(packets, udpPacket(ipSpec{src: f.a, dst: addr.String()}, []byte("x")))
				addr = addr.Next()
			}
			all := func(want uint64) {
				t.Helper()
				before := a.Stats()
				for i, p := range packets {
					a.send(p)
					peers[i].expect(p)
				}
				a.grown(before, FastTx, want)
				a.grown(before, SlowTx, uint64(len(packets))-want)
			}
			all(0)
			all(maxLate + 2)
			w.advance(3 * nudReachableTime / 2)
			all(maxLate)
			a.Probe()
			for addr := netip.MustParseAddr(f.b); len(packets) > 0; packets = packets[1:] {
				a.stateIs(addr.String(), "delay")
				addr = addr.Next()
			}
		})
	}
}
