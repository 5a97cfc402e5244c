package broker

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"

	"golang.org/x/sys/unix"
)

// at is who has an address, as a broker finds it; 0: nobody.
func (s *Server) at(a netip.Addr) uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.byAddr[a]; p != nil {
		return p.node
	}
	return 0
}

// TestAddressClaims: a peer's broker has the addresses that the directory gives its
// node, and of the others those that nobody has.
func TestAddressClaims(t *testing.T) {
	checkFDs(t)
	own, two, three, free := addrA, netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("10.9.0.3"), netip.MustParseAddr("10.9.0.9")
	directory := map[netip.Addr]uint16{own: 1, two: 2, three: 3}
	s, err := New(Config{Node: 1, NoSocket: true, Addrs: []netip.Addr{own}, Owner: func(a netip.Addr) (uint16, bool) { n, ok := directory[a]; return n, ok }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	peerOf := func(node uint16, addrs ...netip.Addr) *peer {
		p := s.newPeer(peerMessage{Node: node, Addrs: addrs}, nobody{})
		if err := s.addPeer(p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	check := func(what string, want map[netip.Addr]uint16, conflicts uint64) {
		t.Helper()
		for a, n := range want {
			if got := s.at(a); got != n {
				t.Errorf("%s: %v is at node %d, want %d", what, a, got, n)
			}
		}
		if n := s.Stats().AddrConflicts; n != conflicts {
			t.Errorf("%s: %d conflicts, want %d", what, n, conflicts)
		}
	}
	// The thief comes first, and takes all there is to take.
	thief := peerOf(3, own, two, three, free)
	check("the thief", map[netip.Addr]uint16{own: 0, two: 0, three: 3, free: 3}, 2)
	victim := peerOf(2, two, free)
	check("the victim", map[netip.Addr]uint16{two: 2, free: 3}, 3)
	say := func(p *peer, addrs ...netip.Addr) {
		if err := s.fromPeer(p, peerMessage{Type: peerNode, Node: p.node, Addrs: addrs}, nil, false); err != nil {
			t.Fatal(err)
		}
	}
	say(thief, own, two, three, free)
	check("again", map[netip.Addr]uint16{own: 0, two: 2, three: 3, free: 3}, 3) // it is told once
	say(thief, three)
	check("what it gave up", map[netip.Addr]uint16{two: 2, three: 3, free: 2}, 3)
	// A node that was started anew while its old connection is still there.
	again := peerOf(2, two)
	s.mu.Lock()
	if s.byAddr[two] != again || s.byAddr[free] != victim {
		t.Error("the node that was started anew is not found")
	}
	s.mu.Unlock()
	s.dropPeer(victim)
	check("the old one goes", map[netip.Addr]uint16{two: 2, free: 0}, 3)
	// Whoever was denied has it when the other goes.
	peerOf(4, free)
	fifth := peerOf(5, free)
	check("denied", map[netip.Addr]uint16{free: 4}, 4)
	s.mu.Lock()
	fourth := s.byAddr[free]
	s.mu.Unlock()
	s.dropPeer(fourth)
	check("after it", map[netip.Addr]uint16{free: 5}, 4)
	// The directory gets to know another's.
	directory[free] = 6
	sixth := peerOf(6, free)
	check("the directory's", map[netip.Addr]uint16{free: 6}, 4)
	say(fifth, free)
	check("the directory's, still", map[netip.Addr]uint16{free: 6}, 5)
	s.dropPeer(sixth)
	check("nobody's", map[netip.Addr]uint16{free: 0}, 5)
}

// TestTooMuchOfPeer: what a peer's broker can have this one keep is bounded.
func TestTooMuchOfPeer(t *testing.T) {
	s, err := New(Config{Node: 1, NoSocket: true, Addrs: []netip.Addr{addrA}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := s.newPeer(peerMessage{Node: 2, Addrs: []netip.Addr{addrB}}, nobody{})
	if err := s.addPeer(p); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxBounds {
		b := bound{addr: []netip.Addr{addrB, netip.IPv4Unspecified()}[i/65536], port: uint16(i)}
		if err := s.fromPeer(p, peerMessage{Type: peerPort, Bound: b, Count: 1}, nil, false); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.bounds) != maxBounds {
		t.Errorf("%d listeners are known", len(p.bounds))
	}
	c := localClient(t, s)
	c.Listen(client.Socket{Local: netip.AddrPortFrom(addrA, 80)}, nil)
	brokertest.Eventually(t, "the listener is there", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.listeners[80] == 1
	})
	key := wire.Key{Client: netip.AddrPortFrom(addrB, 7), Server: netip.AddrPortFrom(addrA, 80)}
	foreign := wire.Key{Client: ap("10.9.9.9:7"), Server: key.Server} // an address that the peer does not have
	good, bad := newBundle(t, key), newBundle(t, foreign)
	for _, b := range []*bundle{&good, &bad} {
		defer b.handedOver()
		defer unix.Close(b.bell0)
	}
	hand := func(id uint32, k wire.Key, b bundle) {
		fds, err := rpc.DupAll(b.seg, b.bell)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { fds.Close() }()
		if err := s.receiveOffer(p, peerMessage{Type: peerHand, ID: id, Nonce: b.nonce, Client: k.Client, Server: k.Server}, fds, false); err != nil {
			t.Fatal(err)
		}
	}
	check := func(held int, refused uint64) {
		t.Helper()
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := s.count.PeerOffersRefused.Load(); p.offersHeld != held || n != refused {
			t.Errorf("%d offers wait, %d were refused; want %d, %d", p.offersHeld, n, held, refused)
		}
	}
	hand(1, key, good)
	check(1, 0)
	hand(2, foreign, bad)
	check(1, 1)
	s.mu.Lock()
	p.offersHeld += descriptorShare() // as if it had that many
	s.mu.Unlock()
	hand(3, key, good)
	check(1+descriptorShare(), 2)
}

// TestCheckPeer: who is not the broker of the node that it says does not come in.
func TestCheckPeer(t *testing.T) {
	checkFDs(t)
	wrong := errors.New("it is somebody else")
	s, _ := startServer(t, Config{Node: 1, Addrs: []netip.Addr{addrA}, CheckPeer: func(conn *net.UnixConn, node uint16) error {
		if conn == nil || node != 2 {
			return wrong
		}
		return nil
	}})
	for node, want := range map[uint16]error{2: nil, 3: wrong} {
		p := dialPeer(t, s)
		p.send(peerMessage{Type: peerNode, Node: node, Addrs: []netip.Addr{addrB}})
		if want == nil {
			brokertest.Eventually(t, "it is found", func() bool { return s.at(addrB) == node })
			p.conn.Close()
		}
		select {
		case err := <-p.done:
			if errors.Is(err, wrong) != (want != nil) {
				t.Errorf("node %d: %v", node, err)
			}
		case <-time.After(3 * time.Minute):
			t.Fatal("it is not refused")
		}
	}
	if s.Stats().RefusedPeers != 1 || s.at(addrB) != 0 {
		t.Errorf("%+v", s.Stats())
	}
}

// TestServerStats counts a set-up, and what is refused.
func TestServerStats(t *testing.T) {
	eachWay(t, func(t *testing.T, socket bool) {
		f := newFabric(t, socket)
		for range 2 {
			offerFor(t, f.ca, f.conn)
			f.shown(t, true)
			if r := claimFor(t, f.cb, f.conn); r.err != nil {
				t.Fatal(r.err)
			}
			f.nothingLeft(t)
		}
		a, b := f.a.Stats(), f.b.Stats()
		if a.Offers != 2 || a.Claimed != 2 || b.Offers != 0 || b.Claimed != 0 {
			t.Errorf("%+v, %+v", a, b)
		}
		var n uint64
		times := f.a.SetUpTimes()
		for _, c := range times.Counts {
			n += c
		}
		if n != 2 || times.Sum <= 0 || f.b.SetUpTimes() != (SetUpTimes{}) {
			t.Errorf("%+v, %+v", times, f.b.SetUpTimes())
		}
		f.b.mu.Lock()
		f.b.waiting.after = 30 * time.Millisecond
		f.b.mu.Unlock()
		_, refused := offerFor(t, f.ca, f.conn)
		reason(t, refused, wire.Expired)
		if a := f.a.Stats(); a.OffersExpired != 1 || a.OffersRefused != 0 {
			t.Errorf("%+v", a)
		}
		names := ""
		for name := range f.a.Stats().All() {
			names += name + " "
		}
		if !strings.Contains(names, "addr_conflicts ") {
			t.Error(names)
		}
	})
	var times SetUpTimes
	times.addTime(0)
	times.addTime(SetUpBounds[1])
	times.addTime(time.Hour)
	if times.Counts[0] != 1 || times.Counts[1] != 1 || times.Counts[len(SetUpBounds)] != 1 {
		t.Errorf("%+v", times)
	}
}
