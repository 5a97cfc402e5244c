package connstats

import (
	"maps"
	"net/netip"
	"sync"
	"testing"

	"exnet/directsockets/broker/wire"
)

// conn is a connection from 10.0.0.1 to 10.0.0.last that has sent and received by a path.
func conn(s *Table, last byte, server bool, p Path, sent, received uint64) *Entry {
	here, there := netip.MustParseAddrPort("10.0.0.1:1000"), netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, last}), 80)
	key := wire.Key{Client: here, Server: there}
	if server {
		key = wire.Key{Client: there, Server: here}
	}
	e := s.Alloc(EntryInfo{Key: key, Server: server})
	e.SetPath(p)
	e.Set(ModeDirect, WhyNothing)
	c := e.Counters()
	c[0].Store(sent)
	c[1].Store(received)
	c[4].Store(1)  // VELO
	c[6].Store(2)  // RMA_INFO
	c[11].Store(4) // VELO_LAST
	c[9].Store(1)  // DEMOTE
	c[16].Store(9) // of the ring
	c[18].Store(1) // sleeps
	c[20].Store(2) // spins that found something
	c[21].Store(3) // spins that found nothing
	return &e
}

// read and sum do not run out of entries.
func read(fd, limit int) []Connection {
	budget := 2 * MaxEntries
	return Read(fd, limit, &budget)
}

func sum(fd int) map[netip.Addr]Total {
	budget := 2 * MaxEntries
	return Sum(fd, func(netip.Addr) bool { return true }, &budget)
}

func remote(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, last}) }

// TestSum adds up what went through memory, of open connections and of closed ones whose
// entries others have: each once, by the other end's address.
func TestSum(t *testing.T) {
	for _, keep := range []bool{false, true} {
		s, err := New(16, keep)
		if err != nil {
			t.Fatal(err)
		}
		defer s.seg.Retire()
		want := map[netip.Addr]Total{
			remote(2): {Amount{30, 3}, Amount{300, 4}, Waits{1, 2, 3}, 1},
			remote(3): {Amount{5, 3}, Amount{7, 4}, Waits{1, 2, 3}, 1},
		}
		check := func() {
			t.Helper()
			if got := sum(s.Fd()); !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		}
		first, second := conn(s, 2, false, PathMemory, 30, 300), conn(s, 3, true, PathMemory, 5, 7)
		conn(s, 4, false, PathFabric, 1000, 1000) // links see it
		conn(s, 5, false, PathNone, 1000, 1000)
		check()
		first.Free()
		check()
		second.Free()
		check()
		for range 100 { // more than there are entries
			conn(s, 2, true, PathMemory, 1, 2).Free()
			conn(s, 4, false, PathFabric, 1, 1).Free()
		}
		want[remote(2)] = Total{Amount{130, 303}, Amount{500, 404}, Waits{101, 202, 303}, 101}
		check()
		if n := len(read(s.Fd(), MaxEntries)); !keep && n != 2 {
			t.Errorf("%d connections are shown, want 2: a sum is none", n)
		}
	}
}

// TestSumNeverTooMuch adds up while connections come and go.
func TestSumNeverTooMuch(t *testing.T) {
	s, err := New(64, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.seg.Retire()
	const rounds = 3000
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range rounds {
				conn(s, 2, false, PathMemory, 1, 0).Free()
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		if got := sum(s.Fd())[remote(2)].Sent.Bytes; got > 2*rounds || over && got != 2*rounds {
			t.Fatalf("%d bytes, %d were sent", got, 2*rounds)
		}
	}
}

// A table may say anything: what is summed is between addresses that are known, and of a table
// with the most entries that there may be no more is read than the budget allows.
func TestSumIsBounded(t *testing.T) {
	s, err := New(MaxEntries, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.seg.Retire()
	for i := range MaxEntries {
		there := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		e := s.Alloc(EntryInfo{Key: wire.Key{Client: netip.MustParseAddrPort("10.0.0.1:1000"), Server: netip.AddrPortFrom(there, 80)}})
		e.SetPath(PathMemory)
		e.Set(ModeDirect, WhyNothing)
		e.Counters()[0].Store(1)
	}
	budget := 2 * MaxEntries
	got := Sum(s.Fd(), func(a netip.Addr) bool { return a == remote(2) || a == remote(3) }, &budget)
	if want := (Total{Sent: Amount{Bytes: 1}}); len(got) != 2 || got[remote(2)] != want || budget != 0 {
		t.Errorf("%d addresses, %v, budget %d", len(got), got[remote(2)], budget)
	}
	const few = 1000
	read := 0
	budget = MaxEntries + few
	Sum(s.Fd(), func(netip.Addr) bool { read++; return false }, &budget)
	if read == 0 || read > few || budget > 0 {
		t.Errorf("%d entries were looked at, %d are due, and %d are left", read, few, budget)
	}
	budget = few
	if n := len(Read(s.Fd(), MaxEntries, &budget)); n == 0 || n > few {
		t.Errorf("%d connections were read, %d are due", n, few)
	}
}
