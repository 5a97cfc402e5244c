package broker

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/shm"
)

func TestStats(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	c := dialClient(t, ClientConfig{Path: s.Path(), Program: "prog", Connections: 100})
	if got := s.Connections(); got == nil || len(got) != 0 {
		t.Errorf("%+v", got)
	}
	since := time.Unix(1700000000, 123)
	key := Key{Client: ap("10.2.0.1:40000"), Server: ap("[fd00::2]:5201")}
	var entries []*Entry
	for range 70 { // more than are read at a time
		entries = append(entries, c.Stats().Alloc(EntryInfo{Key: Key{Client: ap("1.1.1.1:1"), Server: ap("1.1.1.2:2")}, Since: since.Add(time.Hour)}))
	}
	e := c.Stats().Alloc(EntryInfo{Key: key, Server: true, FD: 9, Since: since})
	for i := range e.Counters() {
		e.Counters()[i].Store(uint64(100 + i))
	}
	e.Set(ModeDemoted, WhyPeer)
	all := s.Connections()
	if len(all) != 71 {
		t.Fatalf("%d connections", len(all))
	}
	got := all[0]
	got.Since = got.Since.UTC()
	want := Connection{
		Program: "prog", PID: os.Getpid(), Local: key.Server, Remote: key.Client, Server: true, Mode: "demoted", Reason: "peer",
		Device: 5201 & 15, FD: 9, Since: since.UTC(), Why: WhyPeer, Entry: 70, Seq: 2,
		Sent: Traffic{DirectBytes: 100, ShadowBytes: 102, VELO: 104, VELOLast: 105, RMAInfo: 106, RMAAvail: 107, Shutdown: 108, Demote: 109,
			ZeroCopyBytes: 122},
		Received: Traffic{DirectBytes: 101, ShadowBytes: 103, VELO: 110, VELOLast: 111, RMAInfo: 112, RMAAvail: 113, Shutdown: 114, Demote: 115,
			ZeroCopyBytes: 123},
		RingUsed: 116, RingSize: 117, Sleeps: 118, WakeUps: 119, SpinHits: 120, SpinFails: 121,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, e := range entries {
		e.Free()
	}
	e.Set(ModeDirect, WhyNothing)
	if all = s.Connections(); len(all) != 1 || all[0].Mode != "direct" || all[0].Reason != "" || !all[0].Server {
		t.Errorf("%+v", all)
	}
	e.Free()
	e.Free()
	// The entry's next use has another number, and nothing of the one before.
	e = c.Stats().Alloc(EntryInfo{Key: key, FD: -1, Since: since})
	all = s.Connections()
	if len(all) != 1 || all[0].Seq != 4 || all[0].Sent != (Traffic{}) || all[0].FD != -1 || all[0].Local != key.Client || all[0].Mode != "shadow" {
		t.Errorf("%+v", all)
	}
	e.Free()
}

// TestStatsFull has more connections than there is room for: they count unseen.
//
// +checklocksignore: nobody else is there
func TestStatsFull(t *testing.T) {
	s, err := newStats(2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.seg.Retire()
	seen := make(map[*Counters]bool)
	var all []*Entry
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
	if n := len(ReadStats(s.seg.Fd())); n != 2 {
		t.Errorf("%d are seen", n)
	}
	for _, e := range all {
		e.Free()
	}
	if len(s.free) != 2 || len(ReadStats(s.seg.Fd())) != 0 {
		t.Errorf("%d entries are free", len(s.free))
	}
	var none *Stats
	none.Alloc(EntryInfo{}).Counters()[0].Add(1)
	if _, err := newStats(MaxEntries + 1); err == nil {
		t.Error("too many entries")
	}
}

// TestStatsKeepClosed has closed connections be seen until their entries are needed, the
// one that was closed first goes first.
func TestStatsKeepClosed(t *testing.T) {
	s, err := newStats(3)
	if err != nil {
		t.Fatal(err)
	}
	defer s.seg.Retire()
	s.keep = true
	port := uint16(0)
	open := func() *Entry {
		port++
		a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), port)
		e := s.Alloc(EntryInfo{Key: Key{Client: a, Server: a}, Since: time.Unix(0, int64(port))})
		e.Set(ModeDirect, WhyNothing)
		return e
	}
	check := func(want string) {
		t.Helper()
		var got []string
		for _, c := range ReadStats(s.seg.Fd()) {
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
	open()
	check("1closed 2closed 3direct")
	open()
	check("1closed 3direct 4direct")
	open().Free()
	check("3direct 4direct 5closed")
}

// TestStatsChurn reads while entries come and go: what is read is of one connection.
func TestStatsChurn(t *testing.T) {
	s, err := newStats(8)
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
				e := s.Alloc(EntryInfo{Key: Key{Client: a, Server: a}, FD: int(port), Since: time.Unix(0, int64(port))})
				e.Free()
			}
		})
	}
	n := 0
	for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
		for _, c := range ReadStats(s.seg.Fd()) {
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
	s, err := newStats(MaxEntries)
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
	if n := len(ReadStats(s.seg.Fd())); n != 1 {
		t.Errorf("%d connections", n)
	}
	if after := pages(); after != before || after > 2 {
		t.Errorf("%d pages before, %d after", before, after)
	}
}

// TestHostileStats reads tables that lie about themselves.
func TestHostileStats(t *testing.T) {
	checkFDs(t)
	table := func(size int, seals int, change func(b []byte)) int {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		if err := unix.Ftruncate(fd, int64(size)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, statsHeaderLen)
		copy(b, statsMagic)
		binary.LittleEndian.PutUint32(b[statsVersionOff:], Version)
		binary.LittleEndian.PutUint32(b[statsEntriesOff:], 4)
		if change != nil {
			change(b)
		}
		if _, err := unix.Pwrite(fd, b[:min(size, len(b))], 0); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	put := func(off int, v uint32) func(b []byte) {
		return func(b []byte) { binary.LittleEndian.PutUint32(b[off:], v) }
	}
	if err := checkStats(table(statsHeaderLen+4*entryLen, sealed, nil)); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for name, fd := range map[string]int{
		"not sealed":       table(8192, unix.F_SEAL_GROW, nil),
		"sealed too late":  table(8192, unix.F_SEAL_SHRINK, nil),
		"too small":        table(100, sealed, nil),
		"empty":            table(0, sealed, nil),
		"entries too many": table(statsHeaderLen+4*entryLen, sealed, put(statsEntriesOff, 5)),
		"entries huge":     table(8192, sealed, put(statsEntriesOff, 1<<32-1)),
		"version":          table(8192, sealed, put(statsVersionOff, 2)),
		"magic":            table(8192, sealed, put(0, 1)),
	} {
		if checkStats(fd) == nil || ReadStats(fd) != nil {
			t.Errorf("%s: it was taken", name)
		}
	}
	// Noise in a good one is shown as it is, with no harm.
	fd := table(statsHeaderLen+4*entryLen, sealed, nil)
	noise := make([]byte, 4*entryLen)
	for i := range noise {
		noise[i] = byte(i*7 + 2)
	}
	if _, err := unix.Pwrite(fd, noise, statsHeaderLen); err != nil {
		t.Fatal(err)
	}
	for _, c := range ReadStats(fd) {
		if c.Mode == "" || c.Reason == "" {
			t.Errorf("%+v", c)
		}
	}
}

func TestStatsDoNotAlloc(t *testing.T) {
	s, err := newStats(4)
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
