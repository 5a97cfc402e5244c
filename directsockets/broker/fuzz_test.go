package broker

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"

	"golang.org/x/sys/unix"
)

// What the broker takes for a segment is one that nobody resizes, for that connection.
func FuzzSegment(f *testing.F) {
	key := wire.Key{Client: ap("10.0.0.1:1000"), Server: ap("10.0.0.2:80")}
	nonce := wire.Nonce{1, 2, 3}
	good := make([]byte, segHeadLen)
	copy(good, segMagic)
	copy(good[segNonceOff:], nonce[:])
	good = append(good[:segEndsOff], wire.AppendEnds(nil, key.Client, key.Server)...)
	f.Add(good, uint32(segMinSize), uint8(rpc.Seals))
	f.Add(good, uint32(segMinSize-1), uint8(rpc.Seals))
	f.Add(good[:segHeadLen-1], uint32(segMinSize), uint8(rpc.Seals))
	f.Add(good, uint32(segMinSize), uint8(unix.F_SEAL_SHRINK))
	f.Add([]byte{}, uint32(0), uint8(rpc.Seals))
	f.Fuzz(func(t *testing.T, text []byte, size uint32, seals uint8) {
		size %= 1 << 16
		fd := brokertest.File(t, text, int(size), int(seals)&rpc.Seals)
		defer unix.Close(fd)
		if checkSegment(fd, segMagic, key, nonce) != nil {
			return
		}
		head := make([]byte, segHeadLen) // what is not there is zero
		copy(head, text)
		if size < segMinSize || int(seals)&rpc.Seals != rpc.Seals || !bytes.Equal(head[:8], good[:8]) || !bytes.Equal(head[segNonceOff:], good[segNonceOff:]) {
			t.Fatalf("taken: %d bytes, seals %x, % x", size, seals, head)
		}
	})
}

// A peer's broker says anything, in any order: the tables stay whole, and empty when
// it has gone.
func FuzzPeerSession(f *testing.F) {
	enc := func(all ...peerMessage) (b []byte) {
		for _, m := range all {
			var err error
			if b, err = m.AppendBinary(b); err != nil {
				f.Fatal(err)
			}
		}
		return b
	}
	a := netip.MustParseAddr("10.9.0.2")
	node := peerMessage{Type: peerNode, Node: 2, Addrs: []netip.Addr{a}}
	port := peerMessage{Type: peerPort, Bound: bound{addr: a, port: 80}, Count: 1}
	every := peerMessage{Type: peerPort, Bound: bound{addr: netip.IPv6Unspecified(), port: 80}, Count: 1 << 30}
	f.Add(enc(node, port, every))
	f.Add(enc(node, port, peerMessage{Type: peerPort, Bound: port.Bound}))
	f.Add(enc(node, peerMessage{Type: peerNode, Node: 2}, port))
	f.Add(enc(node, peerMessage{Type: peerNode, Node: 3}))
	f.Add(enc(node, peerMessage{Type: peerResult, ID: 1, Reason: 3}, peerMessage{Type: peerRetract, ID: 1}))
	f.Add(enc(node, every, every, every))
	f.Add(enc(port))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := New(Config{Node: 1, NoSocket: true, Addrs: []netip.Addr{netip.MustParseAddr("10.9.0.1")}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p := s.newPeer(peerMessage{Node: 2}, nobody{})
		if err := s.addPeer(p); err != nil {
			t.Fatal(err)
		}
		for len(b) >= wire.HeaderLen {
			n := min(len(b), max(wire.HeaderLen, int(b[peerLengthOff])|int(b[peerLengthOff+1])<<8))
			var m peerMessage
			err := m.UnmarshalBinary(b[:n])
			b = b[n:]
			if err != nil || m.Type == peerHand || s.fromPeer(p, m, nil, false) != nil {
				break
			}
			s.mu.Lock()
			sum := make(map[uint16]int)
			for b, n := range p.bounds {
				if n <= 0 {
					t.Errorf("%v has %d listeners", b, n)
				}
				sum[b.port] += n
			}
			for port, n := range p.ports {
				if sum[port] != n || !s.page.Listener(port) {
					t.Errorf("port %d: %d, %d; %v", port, n, sum[port], s.page.Listener(port))
				}
			}
			for a, q := range s.byAddr {
				if q != p || !slices.Contains(p.addrs, a) || s.isOwn(a) {
					t.Errorf("%v is found", a)
				}
			}
			s.mu.Unlock()
		}
		ports := p.ports
		s.dropPeer(p)
		for port := range ports {
			if s.page.Listener(port) {
				t.Errorf("port %d is shown", port)
			}
		}
		if len(s.byAddr) != 0 || len(s.peers) != 0 { // +checklocksforce: nobody else is there
			t.Error("left in the tables")
		}
	})
}

// nobody takes all messages.
type nobody struct{}

func (nobody) send(peerMessage, ...int) error { return nil }
func (nobody) Abort()                         {}
func (nobody) Close()                         {}
