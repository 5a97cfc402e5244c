package ipstack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
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
				if frames, limit := whole.Load(), int64(total/16000); frames > limit {
					t.Errorf("%d frames for %d bytes, want at most %d", frames, total, limit)
				}
			})
		}
	}
}

// checkWire checks that a frame is what a kernel would take: valid headers,
// metadata that fits, a checksum that is right once completed, and no packet
// above the MTU unless it is to be segmented below it.
func checkWire(t *testing.T, f hubFrame, mtu int) {
	t.Helper()
	p := bytes.Clone(f.frame[ethHdrLen:])
	if header.Ethernet(f.frame).Type() == header.ARPProtocolNumber {
		return
	}
	hdr, n, ok := ipLen(p)
	if !ok || n != len(p) {
		t.Errorf("bad packet %x", p[:min(len(p), 60)])
		return
	}
	if isIPv4(p) && !header.IPv4(p).IsChecksumValid() {
		t.Errorf("bad header checksum %x", p[:hdr])
	}
	if !checkOffload(f.off, p) || !fits(f.off, p, mtu) {
		t.Errorf("packet of %d bytes with offload %+v over MTU %d", len(p), f.off, mtu)
		return
	}
	if _, err := f.off.Complete(p); err != nil || !checksumOK(p, hdr) {
		t.Errorf("bad transport checksum, offload %+v, packet %x: %v", f.off, p[:min(len(p), 80)], err)
	}
}

func TestUDP(t *testing.T) {
	for _, mtu := range []int{1500, 65535} {
		for _, target := range []string{"10.2.0.2", "fd00::2"} {
			t.Run(fmt.Sprintf("mtu=%d/%s", mtu, target), func(t *testing.T) {
				a, b, la := pair(t, mtu, false, bothFamilies...)
				la.mu.Lock()
				la.see = func(f hubFrame) { checkWire(t, f, mtu) }
				la.mu.Unlock()
				l, err := b.ListenPacket("udp", net.JoinHostPort(target, "53"))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				c, err := a.DialContext(t.Context(), "udp", net.JoinHostPort(target, "53"))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				for _, n := range []int{0, 1, 1400, 5000, 60000} { // some in fragments
					want := pattern(n)
					if _, err := c.Write(want); err != nil {
						t.Fatal(n, err)
					}
					got := make([]byte, 65536)
					if err := l.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
						t.Fatal(err)
					}
					m, _, err := l.ReadFrom(got)
					if err != nil || !bytes.Equal(got[:m], want) {
						t.Errorf("%d bytes: got %d: %v", n, m, err)
					}
				}
			})
		}
	}
}

func TestHTTP(t *testing.T) {
	a, b, _ := pair(t, 65535, false, bothFamilies...)
	l, err := b.Listen("tcp6", "[fd00::2]:80")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	tr := &http.Transport{DialContext: a.DialContext}
	resp, err := (&http.Client{Transport: tr, Timeout: 10 * time.Second}).Post("http://[fd00::2]/", "text/plain", bytes.NewReader(pattern(100000)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !bytes.Equal(got, pattern(100000)) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	tr.CloseIdleConnections()
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	<-done
}

func TestDialErrors(t *testing.T) {
	a, _, _ := pair(t, 1500, false, bothFamilies...)
	ctx := t.Context()
	dial := func(network, address string) error {
		c, err := a.DialContext(ctx, network, address)
		if err == nil {
			c.Close()
		}
		return err
	}
	for _, tc := range []struct{ network, address string }{
		{"unix", "10.2.0.2:80"},
		{"tcp", "10.2.0.2"},
		{"tcp", "host.example:80"},
		{"tcp", "10.2.0.2:nosuchport"},
		{"tcp", ":80"},
		{"tcp4", "[fd00::2]:80"},
		{"tcp6", "10.2.0.2:80"},
		{"tcp", "192.0.2.1:80"}, // no route
		{"tcp", "10.2.0.2:80"},  // refused
		{"udp", "[2001::1]:80"}, // no route
	} {
		if err := dial(tc.network, tc.address); err == nil {
			t.Errorf("dial %s %s: no error", tc.network, tc.address)
		}
	}
	if l, err := a.Listen("udp", ":80"); err == nil {
		l.Close()
		t.Error("Listen on udp")
	}
	if l, err := a.Listen("tcp", "10.9.9.9:80"); err == nil {
		l.Close()
		t.Error("Listen on a foreign address")
	}
	if l, err := a.Listen("tcp", "nonsense"); err == nil {
		l.Close()
		t.Error("Listen on nonsense")
	}
	for _, address := range []string{"nonsense", "10.9.9.9:80"} {
		if l, err := a.ListenPacket("udp", address); err == nil {
			l.Close()
			t.Errorf("ListenPacket on %s", address)
		}
	}
	if l, err := a.ListenPacket("tcp", ":80"); err == nil {
		l.Close()
		t.Error("ListenPacket on tcp")
	}
	// A host that is not there.
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	start := time.Now()
	if c, err := a.DialContext(short, "tcp4", "10.2.0.77:80"); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("connection %v, error %v after %v", c, err, time.Since(start))
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
				hdr, _, _ := ipLen(p)
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
			if err := s.ReceiveFrame(2, tc.off, frameFrom(2, 1, etherType, tc.p)); err != nil {
				t.Error(err)
			}
			if got := s.Stats()[tc.want] - before[tc.want]; got != 1 {
				t.Errorf("%v grew by %d", tc.want, got)
			}
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
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
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
