package ipstack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"exnet/exteth"
	"exnet/fabric"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// pair is two netstack-mode stacks with the hub at work.
func pair(t testing.TB, mtu int, noFastPath bool, addrs ...string) (a, b *Stack, la *fakeLink) {
	t.Helper()
	h := newHub()
	cfg := Config{NoFastPath: noFastPath}
	la, a = attach(t, h, 1, mtu, cfg)
	_, b = attach(t, h, 2, mtu, cfg)
	for i, s := range []*Stack{a, b} {
		for j := i; j < len(addrs); j += 2 {
			if err := s.AddAddress(mustPrefix(addrs[j])); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(h.run()) // runs before the stacks are closed
	return a, b, la
}

var bothFamilies = []string{"10.2.0.1/24", "10.2.0.2/24", "fd00::1/64", "fd00::2/64"}

func TestTCPTransfer(t *testing.T) {
	const total = 8 << 20
	data := pattern(1 << 20)
	for _, mtu := range []int{1500, 9000, 65535} {
		for _, target := range []string{"10.2.0.2", "fd00::2", "fe80::2c87:4ff:fe07:2"} {
			t.Run(fmt.Sprintf("mtu=%d/%s", mtu, target), func(t *testing.T) {
				a, b, la := pair(t, mtu, false, bothFamilies...)
				var whole, segments atomic.Int64
				la.mu.Lock()
				la.see = func(f hubFrame) {
					checkWire(t, f, mtu)
					if f.off.GSOType != exteth.GSONone {
						segments.Add(1)
					}
					whole.Add(1)
				}
				la.mu.Unlock()

				l, err := b.Listen("tcp", net.JoinHostPort("", "80"))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				sum := make(chan [sha256.Size]byte, 1)
				go func() {
					c, err := l.Accept()
					if err != nil {
						t.Error(err)
						return
					}
					defer c.Close()
					h := sha256.New()
					if n, err := io.Copy(h, c); err != nil || n != total {
						t.Errorf("received %d bytes: %v", n, err)
					}
					sum <- [sha256.Size]byte(h.Sum(nil))
				}()
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
				defer cancel()
				c, err := a.DialContext(ctx, "tcp", net.JoinHostPort(target, "80"))
				if err != nil {
					t.Fatal(err)
				}
				want := sha256.New()
				for range total / len(data) {
					want.Write(data)
					if _, err := c.Write(data); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				if got := <-sum; !bytes.Equal(got[:], want.Sum(nil)) {
					t.Error("data differ")
				}
				t.Logf("%d frames sent, %d to be segmented by the far side", whole.Load(), segments.Load())
				if mtu < 65535 && segments.Load() == 0 {
					t.Error("no large segment")
				}
				// Where the far side is not run in time, it is sent again, in small pieces.
				again := a.Netstack().Stats().TCP.Retransmits.Value()
				if frames, limit := whole.Load(), int64(total/16000); frames > limit && again == 0 {
					t.Errorf("%d frames for %d bytes, want at most %d", frames, total, limit)
				}
			})
		}
	}
}

// TestNetstackEcho pings a netstack-mode stack from a host.
func TestNetstackEcho(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, w *world) {
				a := w.add(1, f.a+f.mask)
				_, b := attach(t, w.hub, 2, w.mtu, Config{Clock: w.clock})
				if f.name != "ipv6 link-local" { // that one it makes itself
					if err := b.AddAddress(mustPrefix(f.b + f.mask)); err != nil {
						t.Fatal(err)
					}
				}
				w.settle()
				a.host.takeAll()
				a.send(echoPacket(ipSpec{src: f.a, dst: f.b}, pattern(1000)))
				got := a.host.take()
				if len(got) != 1 {
					t.Fatalf("%d answers", len(got))
				}
				p := got[0].packet
				hdr, _, _ := ipLen(p, len(p))
				if !bytes.Equal(p[hdr+8:], pattern(1000)) || p[hdr] == byte(header.ICMPv4Echo) {
					t.Errorf("answer %x", p)
				}
				// A port that nobody listens on.
				a.send(udpPacket(ipSpec{src: f.a, dst: f.b}, pattern(10)))
				got = a.host.take()
				if len(got) != 1 || isIPv4(got[0].packet) && got[0].packet[v4HdrLen] != byte(header.ICMPv4DstUnreachable) {
					t.Fatalf("got %x, want port unreachable", got)
				}
			})
		})
	}
}

// TestDeadPeerOfNetstack: TCP finds a peer that came back as another node.
func TestDeadPeerOfNetstack(t *testing.T) {
	h := newHub()
	_, a := attach(t, h, 1, 65535, Config{})
	_, b := attach(t, h, 2, 65535, Config{})
	_, c := attach(t, h, 3, 65535, Config{})
	t.Cleanup(h.run())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(a.AddAddress(mustPrefix("10.2.0.1/24")))
	must(b.AddAddress(mustPrefix("10.2.0.2/24")))
	serve := func(s *Stack) net.Listener {
		l, err := s.Listen("tcp", "10.2.0.2:80")
		must(err)
		return l
	}
	dial := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		conn, err := a.DialContext(ctx, "tcp", "10.2.0.2:80")
		must(err)
		must(conn.Close())
	}
	l := serve(b)
	dial()
	must(l.Close())
	h.mu.Lock()
	delete(h.nodes, fabric.NodeID(2))
	h.mu.Unlock()
	must(c.AddAddress(mustPrefix("10.2.0.2/24")))
	l = serve(c)
	dial()
	must(l.Close())
}
