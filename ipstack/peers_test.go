package ipstack

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"exnet/fabric"
)

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
						a.Probe()
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
					a.grown(before, FastTx, 2)
				}
				b.expect(p, p, p, p)
				a.Probe()
				w.hub.startLog()
				w.advance(nudDelayFirstProbe + nudRetransmit)
				if n := len(w.hub.logged()); n < 2 {
					t.Errorf("%d frames while probing, want probe and answer", n)
				}

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
				w.advance(2 * lastRouteWait)
				if got := a.host.take(); len(got) != 1 {
					t.Fatalf("host got %d packets, want an ICMP error", len(got))
				} else {
					checkICMPError(t, got[0].packet, p, reasonNoRoute, 0)
				}
			})
		})
	}
}
