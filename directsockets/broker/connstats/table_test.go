package connstats

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/wire"
	"exnet/directsockets/segment"
	"exnet/internal/netns/netnstest"
	"exnet/internal/shm"
	"exnet/node/rpc"

	"golang.org/x/sys/unix"
)

// TestStatsFull has more connections than there is room for: they count unseen.
//
// +checklocksignore: nobody else is there
func TestStatsFull(t *testing.T) {
	s, err := New(2, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.seg.Retire()
	seen := make(map[*Counters]bool)
	var all []Entry
	for range 4 {
		e := s.Alloc(EntryInfo{})
		e.Counters()[3].Add(1)
		e.Set(ModeDirect, WhyNothing)
		if seen[e.Counters()] || e.Counters()[3].Load() != 1 {
			t.Error("two connections share counters")
		}
		seen[e.Counters()] = true
		all = append(all, e)
	}
	if n := len(read(s.seg.Fd(), MaxEntries)); n != 2 {
		t.Errorf("%d are seen", n)
	}
	for _, e := range all {
		e.Free()
	}
	if len(s.free) != 2 || len(read(s.seg.Fd(), MaxEntries)) != 0 {
		t.Errorf("%d entries are free", len(s.free))
	}
	var none *Table
	unseen := none.Alloc(EntryInfo{})
	unseen.Counters()[0].Add(1)
	if _, err := New(MaxEntries+1, false); err == nil {
		t.Error("too many entries")
	}
}

// TestStatsKeepClosed has closed connections be seen until their entries are needed, the
// one that was closed first goes first.
func TestStatsKeepClosed(t *testing.T) {
	s, err := New(3, true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.seg.Retire()
	port := uint16(0)
	open := func() Entry {
		port++
		a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), port)
		e := s.Alloc(EntryInfo{Key: wire.Key{Client: a, Server: a}, Since: time.Unix(0, int64(port))})
		e.Set(ModeDirect, WhyNothing)
		return e
	}
	check := func(want string) {
		t.Helper()
		var got []string
		for _, c := range ReadAll(s.seg.Fd()) {
			got = append(got, fmt.Sprint(c.Local.Port(), c.Mode))
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s, want %s", text, want)
		}
	}
	first, second := open(), open()
	second.Free()
	first.Free()
	check("1closed 2closed")
	if open := read(s.seg.Fd(), MaxEntries); len(open) > 0 {
		t.Errorf("%+v are open", open)
	}
	open()
	if open := read(s.seg.Fd(), 1); len(open) != 1 || open[0].Local.Port() != 3 {
		t.Errorf("%+v are open: closed ones hide the one that is", open)
	}
	check("1closed 2closed 3direct")
	open()
	check("1closed 3direct 4direct")
	fifth := open()
	fifth.Free()
	check("3direct 4direct 5closed")
}

// It is told since when a connection is direct, and how often it went back. A program that tells
// what cannot be is not believed.
func TestDirectSince(t *testing.T) {
	s, err := New(2, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.seg.Retire()
	began := time.Now()
	e := s.Alloc(EntryInfo{Since: began.Add(-time.Hour)})
	e.Counters()[segment.RingSize].Store(1 << 20)
	check := func(direct bool, returns uint64) {
		t.Helper()
		c := read(s.seg.Fd(), 1)[0]
		if is := !c.DirectSince.IsZero(); is != direct || c.Returns != returns || c.RingSize != 1<<20 {
			t.Errorf("%+v, want direct %v, %d returns", c, direct, returns)
		}
		if at := c.DirectSince; direct && (at.Before(began.Add(-sinceUnit)) || at.After(time.Now())) {
			t.Errorf("direct since %v, began at %v", at, began)
		}
	}
	check(false, 0)
	e.SetPath(PathMemory)
	e.Set(ModeDirect, WhyNothing)
	check(true, 0)
	e.Set(ModeDemoted, WhySwitchedOff) // by PAUSE after PROMOTE alone, which is not counted
	check(false, 0)
	e.Counters()[segment.ReceivedDirect].Store(1)
	e.Set(ModeDemoted, WhyNetwork) // without a message
	check(false, 1)
	e.Counters()[segment.SentDemote].Store(3)
	e.Counters()[segment.ReceivedDemote].Store(2)
	e.Set(ModeDirect, WhyNothing)
	check(true, 3)
	word := &e.Counters()[segment.RingSize]
	word.Store(word.Load() + 1000<<32) // 10 s from now
	check(false, 3)
	word.Store(1 << 20) // of an old library
	check(false, 3)
}

// TestStatsChurn reads while entries come and go: what is read is of one connection.
func TestStatsChurn(t *testing.T) {
	s, err := New(8, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.seg.Retire()
	var stop atomic.Bool
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for n := uint16(1); !stop.Load(); n = n%1000 + 1 {
				port := n*2 + uint16(w)
				a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(port >> 8), byte(port), 1}), port)
				e := s.Alloc(EntryInfo{Key: wire.Key{Client: a, Server: a}, FD: int(port), Since: time.Unix(0, int64(port))})
				e.Free()
			}
		})
	}
	n := 0
	for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
		for _, c := range ReadAll(s.seg.Fd()) {
			n++
			p := c.Local.Port()
			if c.Local != c.Remote || c.FD != int(p) || c.Since.UnixNano() != int64(p) || c.Local.Addr().As4() != [4]byte{10, byte(p >> 8), byte(p), 1} {
				t.Errorf("torn: %+v", c)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d entries read", n)
}

// TestStatsTouchNothing looks at a large table that is hardly used.
func TestStatsTouchNothing(t *testing.T) {
	s, err := New(MaxEntries, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.seg.Retire()
	s.Alloc(EntryInfo{})
	pages := func() int64 {
		var st unix.Stat_t
		if err := unix.Fstat(s.seg.Fd(), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512 / shm.PageSize
	}
	before := pages()
	if n := len(read(s.seg.Fd(), MaxEntries)); n != 1 {
		t.Errorf("%d connections", n)
	}
	if after := pages(); after != before || after > 2 {
		t.Errorf("%d pages before, %d after", before, after)
	}
}

// TestHostileStats reads tables that lie about themselves.
func TestHostileStats(t *testing.T) {
	netnstest.CheckFDs(t)
	table := func(size int, seals int, change func(b []byte)) int {
		b := make([]byte, statsHeaderLen)
		copy(b, statsMagic)
		binary.LittleEndian.PutUint32(b[statsVersionOff:], wire.Version)
		binary.LittleEndian.PutUint32(b[statsEntriesOff:], 4)
		if change != nil {
			change(b)
		}
		fd := brokertest.File(t, b, size, seals)
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	put := func(off int, v uint32) func(b []byte) {
		return func(b []byte) { binary.LittleEndian.PutUint32(b[off:], v) }
	}
	if err := Check(table(statsHeaderLen+4*entryLen, rpc.Seals, nil)); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for name, fd := range map[string]int{
		"not sealed":       table(8192, unix.F_SEAL_GROW, nil),
		"sealed too late":  table(8192, unix.F_SEAL_SHRINK, nil),
		"too small":        table(100, rpc.Seals, nil),
		"empty":            table(0, rpc.Seals, nil),
		"entries too many": table(statsHeaderLen+4*entryLen, rpc.Seals, put(statsEntriesOff, 5)),
		"entries huge":     table(8192, rpc.Seals, put(statsEntriesOff, 1<<32-1)),
		"version":          table(8192, rpc.Seals, put(statsVersionOff, 2)),
		"magic":            table(8192, rpc.Seals, put(0, 1)),
	} {
		if Check(fd) == nil || read(fd, MaxEntries) != nil {
			t.Errorf("%s: it was taken", name)
		}
	}
	// Noise in a good one is shown as it is, with no harm.
	fd := table(statsHeaderLen+4*entryLen, rpc.Seals, nil)
	noise := make([]byte, 4*entryLen)
	for i := range noise {
		noise[i] = byte(i*7 + 2)
	}
	if _, err := unix.Pwrite(fd, noise, statsHeaderLen); err != nil {
		t.Fatal(err)
	}
	for _, c := range read(fd, MaxEntries) {
		if c.Mode == "" || c.Reason == "" {
			t.Errorf("%+v", c)
		}
	}
}

func TestStatsDoNotAlloc(t *testing.T) {
	s, err := New(4, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.seg.Retire()
	e := s.Alloc(EntryInfo{})
	if n := testing.AllocsPerRun(100, func() {
		e.Set(ModeDirect, WhyNothing)
		e.Counters()[1].Add(1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The broker switches a connection off and on, whatever its program says meanwhile. Nothing of that
// is left for the next connection.
func TestSetOff(t *testing.T) {
	s, err := New(1, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.seg.Retire()
	e := s.Alloc(EntryInfo{})
	e.SetNonce([16]byte{1, 2, 3, 4})
	c := read(s.Fd(), 1)[0]
	if !c.Heeds || c.Off || c.Draw != 0x030201 {
		t.Fatalf("%+v", c)
	}
	for _, off := range []bool{true, false, true} {
		if err := SetOff(s.Fd(), &c, off); err != nil {
			t.Fatal(err)
		}
		e.SetPath(PathMemory)
		e.Set(ModeDirect, WhyNothing)
		e.SetNonce([16]byte{5})
		if c := read(s.Fd(), 1)[0]; segment.SwitchedOff(e.Switch()) != off || c.Off != off || !c.Heeds || c.Draw != 5 {
			t.Fatalf("off %v: %+v", off, c)
		}
	}
	e.Free()
	next := s.Alloc(EntryInfo{})
	if err := SetOff(s.Fd(), &c, true); err != nil || segment.SwitchedOff(next.Switch()) {
		t.Error("a new connection is off: ", err)
	}
}
