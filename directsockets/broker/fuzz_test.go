package broker

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// fuzzFile makes a memfd of what an input says.
func fuzzFile(t *testing.T, text []byte, size, seals int) int {
	fd, err := unix.MemfdCreate("fuzz", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(fd, text[:min(len(text), size)], 0); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

// Whatever a client writes into its statistics, it is shown as no more than there can
// be, and each once.
func FuzzStats(f *testing.F) {
	s, err := newStats(3)
	if err != nil {
		f.Fatal(err)
	}
	defer s.seg.Retire()
	for i := range 2 {
		e := s.Alloc(EntryInfo{Key: Key{Client: ap("10.0.0.1:1000"), Server: ap("[fe80::1]:80")}, Server: i == 1, FD: 7 + i})
		e.Set(ModeDirect, WhyNothing)
	}
	good := bytes.Clone(s.seg.Bytes())
	f.Add(good, uint32(len(good)), uint8(sealed))
	f.Add(good[:300], uint32(len(good)), uint8(sealed))
	f.Add(good, uint32(len(good)-1), uint8(sealed))
	f.Add(good, uint32(len(good)), uint8(unix.F_SEAL_GROW))
	many := bytes.Clone(good)
	copy(many[statsEntriesOff:], []byte{0xff, 0xff, 0xff, 0xff})
	f.Add(many, uint32(1<<20), uint8(sealed))
	copy(many[statsEntriesOff:], []byte{200, 0, 0, 0})
	f.Add(many, uint32(statsHeaderLen+200*entryLen), uint8(sealed))
	f.Fuzz(func(t *testing.T, text []byte, size uint32, seals uint8) {
		size %= 1 << 20
		fd := fuzzFile(t, text, int(size), int(seals)&(sealed|unix.F_SEAL_FUTURE_WRITE))
		defer unix.Close(fd)
		all := readStats(fd, 40)
		if len(all) > 40 || len(all) > int(size)/entryLen {
			t.Fatalf("%d connections in %d bytes", len(all), size)
		}
		if len(all) > 0 && (int(seals)&sealed != sealed || checkStats(fd) != nil) {
			t.Fatal("shown, though it is no table")
		}
		for i, c := range all {
			if c.Seq == 0 || c.Seq&1 != 0 || c.Entry < 0 || statsHeaderLen+(c.Entry+1)*entryLen > int(size) {
				t.Fatalf("%+v", c)
			}
			if i > 0 && all[i-1].Entry >= c.Entry {
				t.Fatalf("entry %d after %d", c.Entry, all[i-1].Entry)
			}
		}
	})
}

// What the broker takes for a segment is one that nobody resizes, for that connection.
func FuzzSegment(f *testing.F) {
	key := Key{Client: ap("10.0.0.1:1000"), Server: ap("10.0.0.2:80")}
	nonce := Nonce{1, 2, 3}
	good := make([]byte, segHeadLen)
	copy(good, segMagic)
	copy(good[segNonceOff:], nonce[:])
	good = append(good[:segEndsOff], appendEnds(nil, key.Client, key.Server)...)
	f.Add(good, uint32(segMinSize), uint8(sealed))
	f.Add(good, uint32(segMinSize-1), uint8(sealed))
	f.Add(good[:segHeadLen-1], uint32(segMinSize), uint8(sealed))
	f.Add(good, uint32(segMinSize), uint8(unix.F_SEAL_SHRINK))
	f.Add([]byte{}, uint32(0), uint8(sealed))
	f.Fuzz(func(t *testing.T, text []byte, size uint32, seals uint8) {
		size %= 1 << 16
		fd := fuzzFile(t, text, int(size), int(seals)&sealed)
		defer unix.Close(fd)
		if checkSegment(fd, key, nonce) != nil {
			return
		}
		head := make([]byte, segHeadLen) // what is not there is zero
		copy(head, text)
		if size < segMinSize || int(seals)&sealed != sealed || !bytes.Equal(head[:8], good[:8]) || !bytes.Equal(head[segNonceOff:], good[segNonceOff:]) {
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
		for len(b) >= HeaderLen {
			n := min(len(b), max(HeaderLen, int(b[lengthOff])|int(b[lengthOff+1])<<8))
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
		s.drop(p)
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
func (nobody) abort()                         {}
func (nobody) close()                         {}
