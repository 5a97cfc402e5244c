package ipstack

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"exnet/exteth"
	"exnet/fabric"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// TestLinkMayDeliverInTheSender: while a frame of ours is being sent, frames
// for us may arrive in the same goroutine.
func TestLinkMayDeliverInTheSender(t *testing.T) {
	for _, host := range []Host{&sinkHost{}, nil} {
		h := newHub()
		l, s := attach(t, h, 1, 65535, Config{Host: host})
		seeds := frameSeeds()
		nested := false
		var mu sync.Mutex
		l.mu.Lock()
		l.see = func(hubFrame) {
			mu.Lock()
			if nested {
				mu.Unlock()
				return
			}
			nested = true
			mu.Unlock()
			for _, f := range seeds {
				if err := s.ReceiveFrame(2, exteth.Offload{}, lent(f)); err != nil {
					t.Error(err)
				}
			}
			mu.Lock()
			nested = false
			mu.Unlock()
		}
		l.mu.Unlock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, a := range []string{"10.2.0.1/24", "fd00::1/64", "fe80::1/64"} {
				p := mustPrefix(a)
				if err := s.AddAddress(p); err != nil {
					t.Error(err)
				}
				if err := s.RemoveAddress(p); err != nil {
					t.Error(err)
				}
			}
			if terr := s.Netstack().JoinGroup(header.IPv4ProtocolNumber, NIC, tcpipAddr(netip.MustParseAddr("239.1.2.3"))); terr != nil {
				t.Error(terr)
			}
		}()
		select {
		case <-done:
		case <-time.After(3 * time.Minute):
			t.Fatal("deadlock")
		}
	}
}

// TestConcurrentUse has hosts, links, addresses and routes change at once.
func TestConcurrentUse(t *testing.T) {
	h := newHub()
	var stacks [3]*Stack
	var links [3]*fakeLink
	for i := range stacks {
		links[i], stacks[i] = attach(t, h, fabric.NodeID(1+i), 65535, Config{Host: &sinkHost{}})
	}
	t.Cleanup(h.run())
	addrs := []string{"10.2.0.1/24", "10.2.0.2/24", "10.2.0.3/24"}
	for i, s := range stacks {
		if err := s.AddAddress(mustPrefix(addrs[i])); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i, s := range stacks {
		wg.Go(func() {
			for n := range 300 {
				p := udpPacket(ipSpec{src: "10.2.0.9", dst: mustPrefix(addrs[(i+1+n%2)%3]).Addr().String()}, pattern(n))
				s.FromHost(links[i].buffers.get(p))
			}
		})
		wg.Go(func() {
			gw := mustPrefix(addrs[(i+1)%3]).Addr()
			for range 50 {
				if err := s.AddRoute(mustPrefix("192.0.2.0/24"), gw); err != nil {
					t.Error(err)
				}
				if err := s.RemoveRoute(mustPrefix("192.0.2.0/24"), gw); err != nil {
					t.Error(err)
				}
				s.forgetMAC(links[(i+1)%3].MAC())
				_ = s.Stats()
			}
		})
	}
	wg.Wait()
}

func TestHopsForgetWhenFull(t *testing.T) {
	w := newWorld(t, true)
	a, b := w.add(1, "10.2.0.1/24"), w.add(2, "10.2.0.2/24")
	p := udpPacket(ipSpec{src: "10.2.0.1", dst: "10.2.0.2"}, nil)
	a.send(p)
	next := netip.MustParseAddr("10.2.0.2")
	g := a.hops.beginLearn()
	for i := range maxDestinations {
		a.hops.setHop(a.hops.beginLearn(), netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}), next)
	}
	if n := a.table.Stats().Entries; n > maxDestinations || n == 0 {
		t.Errorf("%d entries", n)
	}
	// A route from before the flush is not believed.
	before := a.table.Stats().Entries
	a.hops.setHop(g, netip.MustParseAddr("12.0.0.1"), next)
	if n := a.table.Stats().Entries; n != before {
		t.Errorf("%d entries, want %d", n, before)
	}
	a.send(p)
	a.send(p)
	b.expect(p, p, p)
}
