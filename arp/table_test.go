package arp

import (
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exnet/fabric"
)

func entry(n fabric.NodeID) Entry { return Entry{Node: n, MAC: DefaultPrefix().MAC(n)} }

func put(t testing.TB, tab *Table, dst string, n fabric.NodeID) {
	t.Helper()
	if err := tab.Put(tab.Generation(), netip.MustParseAddr(dst), entry(n)); err != nil {
		t.Fatal(err)
	}
}

// want looks dst up as a packet would; n < 0: it is not there.
func want(t testing.TB, tab *Table, dst string, n int) {
	t.Helper()
	e, ok := tab.Lookup(netip.MustParseAddr(dst).AsSlice())
	if ok != (n >= 0) || ok && e != entry(fabric.NodeID(n)) {
		t.Errorf("%s: %+v, %v, want node %d", dst, e, ok, n)
	}
}

func TestTable(t *testing.T) {
	tab := NewTable(0)
	want(t, tab, "10.2.0.8", -1)
	put(t, tab, "10.2.0.8", 8)
	put(t, tab, "fd00::8", 8)
	put(t, tab, "fe80::2c87:4ff:fe07:9%exn0", 9)
	want(t, tab, "10.2.0.8", 8)
	want(t, tab, "10.2.0.9", -1)
	want(t, tab, "fd00::8", 8)
	want(t, tab, "fe80::2c87:4ff:fe07:9", 9)
	put(t, tab, "10.2.0.8", 9) // the address moves
	want(t, tab, "10.2.0.8", 9)
	got := maps.Collect(tab.All())
	if d := cmp.Diff(map[netip.Addr]Entry{
		netip.MustParseAddr("10.2.0.8"):              entry(9),
		netip.MustParseAddr("fd00::8"):               entry(8),
		netip.MustParseAddr("fe80::2c87:4ff:fe07:9"): entry(9),
	}, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("All (-want +got):\n%s", d)
	}
	if !tab.Delete(netip.MustParseAddr("10.2.0.8")) || tab.Delete(netip.MustParseAddr("10.2.0.8")) {
		t.Error("Delete does not say what was there")
	}
	want(t, tab, "10.2.0.8", -1)
	want(t, tab, "fd00::8", 8)
	if st := tab.Stats(); st != (TableStats{Entries: 2, Puts: 4, Removed: 1}) {
		t.Errorf("%+v", st)
	}
	for range tab.All() {
		break
	}
}

// An IPv4 address and the IPv6 addresses that contain it are different.
func TestFamiliesApart(t *testing.T) {
	tab := NewTable(0)
	put(t, tab, "10.2.0.8", 1)
	put(t, tab, "::ffff:10.2.0.8", 2)
	put(t, tab, "::a02:8", 3)
	want(t, tab, "10.2.0.8", 1)
	want(t, tab, "::ffff:10.2.0.8", 2)
	want(t, tab, "::a02:8", 3)
}

func TestLookupLength(t *testing.T) {
	tab := NewTable(0)
	put(t, tab, "10.2.0.8", 1)
	a := netip.MustParseAddr("10.2.0.8").As4()
	long := append(a[:], make([]byte, 16)...)
	for n := range len(long) {
		if _, ok := tab.Lookup(long[:n]); ok != (n == 4) {
			t.Errorf("%d bytes: found %v", n, ok)
		}
	}
}

func TestPutRefuses(t *testing.T) {
	tab := NewTable(0)
	for _, a := range []netip.Addr{
		{}, netip.IPv4Unspecified(), netip.IPv6Unspecified(),
		netip.MustParseAddr("224.0.0.1"), netip.MustParseAddr("ff02::1"), netip.MustParseAddr("255.255.255.255"),
	} {
		if err := tab.Put(0, a, entry(1)); !errors.Is(err, ErrAddress) {
			t.Errorf("%v: %v", a, err)
		}
	}
	if err := tab.Put(0, netip.MustParseAddr("10.2.0.8"), Entry{MAC: Broadcast()}); !errors.Is(err, ErrAddress) {
		t.Errorf("broadcast: %v", err)
	}
	if err := tab.Put(0, netip.MustParseAddr("10.2.0.8"), Entry{}); !errors.Is(err, ErrAddress) {
		t.Errorf("no entry: %v", err)
	}
	if tab.Delete(netip.Addr{}) {
		t.Error("no address: deleted")
	}
	if st := tab.Stats(); st != (TableStats{}) {
		t.Errorf("%+v", st)
	}
}

func TestFull(t *testing.T) {
	tab := NewTable(3)
	put(t, tab, "10.2.0.1", 1)
	put(t, tab, "10.2.0.2", 2)
	put(t, tab, "fd00::3", 3)
	if err := tab.Put(0, netip.MustParseAddr("10.2.0.4"), entry(4)); err != ErrFull {
		t.Errorf("a fourth: %v", err)
	}
	put(t, tab, "10.2.0.2", 5) // a replacement needs no room
	want(t, tab, "10.2.0.2", 5)
	tab.Delete(netip.MustParseAddr("fd00::3"))
	put(t, tab, "10.2.0.4", 4)
	if st := tab.Stats(); st != (TableStats{Entries: 3, Puts: 5, Refused: 1, Removed: 1}) {
		t.Errorf("%+v", st)
	}
}

// Each kind of removal ends the generation, found or not, so that an answer of
// netstack's from before it is not put after it.
func TestStale(t *testing.T) {
	tab := NewTable(0)
	dst := netip.MustParseAddr("10.2.0.8")
	for name, remove := range map[string]func(){
		"Delete":     func() { tab.Delete(dst) },
		"DeleteNode": func() { tab.DeleteNode(8) },
		"DeleteMAC":  func() { tab.DeleteMAC(DefaultPrefix().MAC(8)) },
		"Flush":      func() { tab.Flush() },
	} {
		gen := tab.Generation()
		remove()
		if err := tab.Put(gen, dst, entry(8)); err != ErrStale {
			t.Errorf("%s: %v", name, err)
		}
	}
	want(t, tab, "10.2.0.8", -1)
	gen := tab.Generation()
	put(t, tab, "10.2.0.9", 9) // a Put does not end it
	if err := tab.Put(gen, dst, entry(8)); err != nil {
		t.Error(err)
	}
	if st := tab.Stats(); st.Stale != 4 {
		t.Errorf("%+v", st)
	}
}

func TestDeleteMany(t *testing.T) {
	tab := NewTable(0)
	fill(t, tab, 1000) // node i%100
	if n := tab.DeleteNode(42); n != 20 {
		t.Errorf("node 42 had %d destinations, want 10 + 10", n)
	}
	if n := tab.DeleteMAC(DefaultPrefix().MAC(43)); n != 20 {
		t.Errorf("node 43 had %d destinations, want 10 + 10", n)
	}
	for dst, e := range tab.All() {
		if e.Node == 42 || e.Node == 43 {
			t.Errorf("%v: node %d", dst, e.Node)
		}
	}
	if n := tab.Flush(); n != 2000-40 {
		t.Errorf("flushed %d", n)
	}
	for range tab.All() {
		t.Fatal("not empty")
	}
	if st := tab.Stats(); st.Entries != 0 || st.Removed != 2000 {
		t.Errorf("%+v", st)
	}
	put(t, tab, "10.2.0.8", 8)
	want(t, tab, "10.2.0.8", 8)
}

func address4(i int) netip.Addr {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24|uint32(i+1))
	return netip.AddrFrom4(a)
}

func address6(i int) netip.Addr {
	a := [16]byte{0xfd}
	binary.BigEndian.PutUint64(a[8:], uint64(i+1))
	return netip.AddrFrom16(a)
}

// fill puts n destinations of each family.
func fill(t testing.TB, tab *Table, n int) {
	t.Helper()
	for i := range n {
		for _, a := range []netip.Addr{address4(i), address6(i)} {
			if err := tab.Put(tab.Generation(), a, entry(fabric.NodeID(i%100))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Searches stay short for the addresses that networks have: consecutive, and
// with a step.
func TestSearchLength(t *testing.T) {
	const n = 1 << 15
	for step := 1; step <= 1<<16; step <<= 4 {
		tab := NewTable(2 * n)
		for i := range n {
			var a [4]byte
			binary.BigEndian.PutUint32(a[:], uint32(1+i*step)) // wraps: fewer
			if err := tab.Put(0, netip.AddrFrom4(a), entry(1)); err != nil && !errors.Is(err, ErrAddress) {
				t.Fatal(err)
			}
			b := [16]byte{0xfd}
			binary.BigEndian.PutUint64(b[4:], uint64(1+i*step))
			if err := tab.Put(0, netip.AddrFrom16(b), entry(1)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range tab.index {
			x := &tab.index[i]
			slots := *x.slots.Load()
			total, longest := 0, 0
			for j := range slots {
				if slots[j].entry.Load() == 0 {
					continue
				}
				d := (j - slots.startIndex(slots[j].key(), x.seed)) & (len(slots) - 1)
				total += d
				longest = max(longest, d)
			}
			// Random keys: 1.5 slots beyond the first on average when 3/4 are
			// used (Knuth 6.4, linear probing), half a slot when 1/2 are.
			if mean := float64(total) / float64(x.entries); mean > 3 || longest > 200 {
				t.Errorf("step %d, family %d: %.2f slots on average, %d at most", step, i, mean, longest)
			}
		}
	}
}

// Removed keys do not fill the table up.
func TestRemovedKeys(t *testing.T) {
	tab := NewTable(10)
	put(t, tab, "10.0.0.1", 7)
	for i := range 10000 {
		dst := address4(i + 100)
		if err := tab.Put(tab.Generation(), dst, entry(1)); err != nil {
			t.Fatal(err)
		}
		tab.Delete(dst)
	}
	want(t, tab, "10.0.0.1", 7)
	if n := len(*tab.index[0].slots.Load()); n != minSlots {
		t.Errorf("%d slots for one entry", n)
	}
	// A removed key that comes again takes its slot.
	used := tab.index[0].used
	for range 100 {
		tab.Delete(netip.MustParseAddr("10.0.0.1"))
		put(t, tab, "10.0.0.1", 8)
	}
	want(t, tab, "10.0.0.1", 8)
	if tab.index[0].used != used {
		t.Errorf("%d slots used, %d before", tab.index[0].used, used)
	}
}

func TestEntryWord(t *testing.T) {
	e := Entry{Node: 0x0102, MAC: MAC{
		0x2e, 0x87, // MAC address, upper half
		0x04, 0x07, 0xab, 0xcd, // and the rest
	}}
	if w := e.pack(); w != 0x0102_2e87_0407_abcd || unpack(w) != e {
		t.Errorf("%#x, %+v", w, unpack(w))
	}
	e.Stale = true
	if w := e.pack(); w != 0x0102_2f87_0407_abcd || unpack(w) != e {
		t.Errorf("stale: %#x, %+v", w, unpack(w))
	}
}

// Readers beside a writer find each entry as it was put, and never lose one
// that stays.
func TestConcurrent(t *testing.T) {
	tab := NewTable(0)
	const stay = 50
	fill(t, tab, stay)
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				j := i % stay
				a4, a6 := address4(j).As4(), address6(j).As16()
				e4, ok4 := tab.Lookup(a4[:])
				e6, ok6 := tab.Lookup(a6[:])
				if !ok4 || !ok6 || e4 != entry(e4.Node) || e6 != entry(e6.Node) {
					t.Errorf("%d: %v %v, %v %v", j, e4, ok4, e6, ok6)
					return
				}
			}
		})
	}
	for round := range 20 {
		for i := range 500 { // grows, replaces and empties
			n := fabric.NodeID(1000 + round)
			_ = tab.Put(tab.Generation(), address4(i), entry(n))
			_ = tab.Put(tab.Generation(), address6(i), entry(n))
		}
		for i := stay; i < 500; i++ {
			tab.Delete(address4(i))
			tab.Delete(address6(i))
		}
		tab.DeleteNode(9999)
	}
	close(stop)
	readers.Wait()
	if st := tab.Stats(); st.Entries != 2*stay {
		t.Errorf("%+v", st)
	}
}

// FuzzTable plays operations on a Table and on a map.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 1, 2, 0, 1, 3, 1, 1, 0, 2, 3, 0, 3, 0, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		const room = 20
		tab, model := NewTable(room), map[netip.Addr]Entry{}
		for ; len(ops) >= 3; ops = ops[3:] {
			i, n := int(ops[1]), fabric.NodeID(ops[2]%8)
			dst := address4(i)
			if ops[0]&0x80 != 0 {
				dst = address6(i)
			}
			before, had := model[dst]
			switch ops[0] % 4 {
			case 0:
				err := tab.Put(tab.Generation(), dst, entry(n))
				if full := !had && len(model) == room; full != (err == ErrFull) {
					t.Fatalf("put %v: %v", dst, err)
				} else if !full {
					model[dst] = entry(n)
				}
			case 1:
				if tab.Delete(dst) != had {
					t.Fatalf("delete %v: was there: %v", dst, had)
				}
				delete(model, dst)
			case 2:
				removed := len(model)
				maps.DeleteFunc(model, func(_ netip.Addr, e Entry) bool { return e.Node == n })
				if got := tab.DeleteNode(n); got != removed-len(model) {
					t.Fatalf("delete node %d: %d", n, got)
				}
			case 3:
				if e, ok := tab.Lookup(dst.AsSlice()); ok != had || e != before {
					t.Fatalf("look up %v: %v, %v, want %v, %v", dst, e, ok, before, had)
				}
			}
		}
		if !maps.Equal(maps.Collect(tab.All()), model) || tab.Stats().Entries != len(model) {
			t.Fatalf("%v\nwant %v", maps.Collect(tab.All()), model)
		}
	})
}

func TestAllocs(t *testing.T) {
	tab := NewTable(0)
	fill(t, tab, 100)
	a4, a6 := address4(7).As4(), address6(7).As16()
	p, m := DefaultPrefix(), DefaultPrefix().MAC(7)
	if n := testing.AllocsPerRun(1000, func() {
		tab.Lookup(a4[:])
		tab.Lookup(a6[:])
		if p.MAC(7).IsMulticast() || m.IsBroadcast() {
			t.Error("multicast")
		}
		if _, err := p.Node(m); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}
