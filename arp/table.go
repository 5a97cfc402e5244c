package arp

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"sync"
	"sync/atomic"

	"exnet/fabric"
)

// DefaultEntries is how many destinations a Table has by default: as many as
// there are nodes (16 bits).
const DefaultEntries = 1 << 16

// Errors of Table.Put.
var (
	// ErrFull says that the Table has no room. Leave the destination to the
	// slow path.
	ErrFull = errors.New("arp: table is full")

	// ErrStale says that something was removed since the generation that Put
	// was given, perhaps what is being put. Leave the destination to the slow
	// path, which resolves it anew.
	ErrStale = errors.New("arp: entries were removed meanwhile")
)

// Entry is where packets to a destination go.
type Entry struct {
	Node fabric.NodeID
	MAC  MAC
	// Stale says that the neighbour has not been heard of for a while: who sends there sees to it
	// that it is asked (RFC 4861 7.3.3).
	Stale bool
}

// Table is the fast path's neighbour table: from a destination address, be it
// the neighbour's own or one behind it, to the neighbour. netstack's neighbour
// and route events keep it.
//
// An entry must not be put after the event that ends it. So whoever puts one
// reads the Generation first, then asks netstack, then puts with that
// generation; every removal begins a new one.
//
// Concurrency: all methods may be called from any goroutine. Lookup takes no
// lock, does not allocate and never waits.
type Table struct {
	index [2]index // IPv4, IPv6
	max   int

	generation atomic.Uint64 // written under mu

	mu    sync.Mutex // excludes writers
	stats TableStats // guarded by mu; Entries is not kept
}

// TableStats are the counters of a Table since NewTable.
type TableStats struct {
	Entries int    // in the table now
	Puts    uint64 // entries put, new or replaced
	Refused uint64 // not put: the table was full
	Stale   uint64 // not put: something was removed meanwhile
	Removed uint64 // entries removed
}

// NewTable makes an empty Table for at most entries destinations; 0:
// DefaultEntries.
func NewTable(entries int) *Table {
	if entries <= 0 {
		entries = DefaultEntries
	}
	t := &Table{max: entries}
	for i := range t.index {
		t.index[i].init()
	}
	return t
}

// Lookup returns the entry of a destination address, given as the 4 or 16 bytes
// that a packet has. It borrows dst until return.
func (t *Table) Lookup(dst []byte) (Entry, bool) {
	switch len(dst) {
	case 4:
		return t.index[0].lookup(key4(dst))
	case 16:
		return t.index[1].lookup(key16(dst))
	}
	return Entry{}, false
}

// Generation is the number to give to Put. Read it before netstack is asked.
func (t *Table) Generation() uint64 { return t.generation.Load() }

// Put enters a destination or replaces its entry, unless something was removed
// since generation (ErrStale) or there is no room (ErrFull). Only unicast
// addresses can be entered (ErrAddress). A zone is ignored.
func (t *Table) Put(generation uint64, dst netip.Addr, e Entry) error {
	if !dst.IsValid() || dst.IsUnspecified() || dst.IsMulticast() || dst == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return fmt.Errorf("arp: %w: %v is not a unicast address", ErrAddress, dst)
	}
	if e.MAC.IsMulticast() || e.MAC == (MAC{}) {
		return fmt.Errorf("arp: %w: %v has the MAC address %v, which is not a unicast address", ErrAddress, dst, e.MAC)
	}
	x, k := t.indexOf(dst)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.generation.Load() != generation {
		t.stats.Stale++
		return ErrStale
	}
	if !x.setEntry(k, e, t.lenLocked() < t.max) {
		t.stats.Refused++
		return ErrFull
	}
	t.stats.Puts++
	return nil
}

// Delete removes a destination and says whether it was there.
func (t *Table) Delete(dst netip.Addr) bool {
	if !dst.IsValid() {
		return false
	}
	x, k := t.indexOf(dst)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.removedLocked(x.removeKey(k)) == 1
}

// DeleteNode removes all destinations behind a node and says how many.
func (t *Table) DeleteNode(n fabric.NodeID) int {
	return t.deleteIf(func(e Entry) bool { return e.Node == n })
}

// DeleteMAC removes all destinations behind a MAC address and says how many.
func (t *Table) DeleteMAC(m MAC) int {
	return t.deleteIf(func(e Entry) bool { return e.MAC == m })
}

// Flush removes everything, as after a change of routes, and says how much.
func (t *Table) Flush() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.lenLocked()
	for i := range t.index {
		t.index[i].init()
	}
	return t.removedLocked(n)
}

// All yields the entries. What changes during the iteration may be seen or not.
func (t *Table) All() iter.Seq2[netip.Addr, Entry] {
	return func(yield func(netip.Addr, Entry) bool) {
		for family := range t.index {
			for k, w := range t.index[family].eachEntry {
				if !yield(k.addr(family == 0), unpack(w)) {
					return
				}
			}
		}
	}
}

// Stats returns the counters.
func (t *Table) Stats() TableStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.stats
	st.Entries = t.lenLocked()
	return st
}

func (t *Table) lenLocked() int { return t.index[0].entries + t.index[1].entries }

func (t *Table) indexOf(dst netip.Addr) (*index, key) {
	if dst.Is4() {
		a := dst.As4()
		return &t.index[0], key4(a[:])
	}
	a := dst.As16()
	return &t.index[1], key16(a[:])
}

// deleteIf goes through the whole table; it is for events, not for packets.
func (t *Table) deleteIf(match func(Entry) bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	removed := 0
	for i := range t.index {
		x := &t.index[i]
		for k, w := range x.eachEntry {
			if match(unpack(w)) {
				removed += x.removeKey(k)
			}
		}
	}
	return t.removedLocked(removed)
}

// removedLocked begins a new generation, even if nothing was removed: what was
// to be removed may be on its way to Put.
func (t *Table) removedLocked(n int) int {
	t.generation.Add(1)
	t.stats.Removed += uint64(n)
	return n
}
