package arp

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"

	"exnet/fabric"
)

// key is an address of one family: big endian, an IPv4 address in the lower
// half of lo. The zero key, the unspecified address, is never in the table.
type key struct{ hi, lo uint64 }

func key4(b []byte) key { return key{lo: uint64(binary.BigEndian.Uint32(b))} }

func key16(b []byte) key {
	return key{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}

func (k key) addr(is4 bool) netip.Addr {
	if is4 {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], uint32(k.lo))
		return netip.AddrFrom4(a)
	}
	var a [16]byte
	binary.BigEndian.PutUint64(a[:], k.hi)
	binary.BigEndian.PutUint64(a[8:], k.lo)
	return netip.AddrFrom16(a)
}

// staleBit is that of a group's MAC address, which no neighbour has.
const staleBit = 1 << 40

// pack encodes an entry into what is read and written at once: 16 bits of node
// ID and 48 bits of MAC address, one of which stands for Stale.
func (e Entry) pack() uint64 {
	w := uint64(e.Node)<<48 |
		uint64(binary.BigEndian.Uint16(e.MAC[:]))<<32 |
		uint64(binary.BigEndian.Uint32(e.MAC[2:]))
	if e.Stale {
		w |= staleBit
	}
	return w
}

func unpack(w uint64) Entry {
	e := Entry{Node: fabric.NodeID(w >> 48), Stale: w&staleBit != 0}
	w &^= staleBit
	binary.BigEndian.PutUint16(e.MAC[:], uint16(w>>32))
	binary.BigEndian.PutUint32(e.MAC[2:], uint32(w))
	return e
}

// slot is a place for a destination.
//
//	             key    entry
//	never used   0      0
//	in use       k      e
//	removed      k      0      until the slots are replaced, or k comes again
//
// The key is written once, before the entry. So a reader that loads the entry
// first, and finds one, then sees the whole key that it belongs to. It may see
// half a key when there is no entry yet: lo alone, which is no key of a unicast
// IPv6 address, and all of an IPv4 one.
type slot struct{ hi, lo, entry atomic.Uint64 }

func (s *slot) key() key { return key{s.hi.Load(), s.lo.Load()} }

func (s *slot) setKey(k key) {
	s.lo.Store(k.lo)
	s.hi.Store(k.hi)
}

// slots is a power of two of slots with linear probing, at most 3/4 of them
// used, so that every search ends.
type slots []slot

// minSlots is the size of an empty index.
const minSlots = 16

// startIndex returns where k is looked for first: the halves of the seeded key,
// multiplied and folded, as in wyhash, twice. With once, an IPv4 address only
// meets one random factor, and some factors gather keys that are a step apart.
func (t slots) startIndex(k, seed key) int {
	hi, lo := bits.Mul64(k.hi^seed.hi, k.lo^seed.lo)
	hi, lo = bits.Mul64(hi^lo, 0x9e3779b97f4a7c15) // 2^64 / golden ratio, odd
	return int((hi ^ lo) & uint64(len(t)-1))
}

// slotFor returns the slot of k, or the unused one where it would go. It is for
// writers.
func (t slots) slotFor(k, seed key) *slot {
	for i := t.startIndex(k, seed); ; i = (i + 1) & (len(t) - 1) {
		if s := &t[i]; s.key() == k || s.key() == (key{}) {
			return s
		}
	}
}

// index is the hash table of one family. Readers call lookup and all; the rest
// is for one writer at a time.
type index struct {
	slots   atomic.Pointer[slots]
	seed    key // so that nobody who picks addresses can make long searches
	entries int // slots with an entry
	used    int // slots with a key
}

// init empties the index.
func (x *index) init() {
	if x.seed == (key{}) {
		x.seed = key{rand.Uint64(), rand.Uint64()}
	}
	t := make(slots, minSlots)
	x.slots.Store(&t)
	x.entries, x.used = 0, 0
}

func (x *index) lookup(k key) (Entry, bool) {
	t := *x.slots.Load()
	for i := t.startIndex(k, x.seed); ; i = (i + 1) & (len(t) - 1) {
		s := &t[i]
		w := s.entry.Load()
		switch found := s.key(); {
		case found == k && w != 0:
			return unpack(w), true
		case found == k || found == key{}:
			return Entry{}, false
		}
	}
}

// setEntry enters k or replaces its entry. It reports false if k has none and room
// says that there is no more room.
func (x *index) setEntry(k key, e Entry, room bool) bool {
	t := *x.slots.Load()
	s := t.slotFor(k, x.seed)
	if s.entry.Load() != 0 {
		s.entry.Store(e.pack())
		return true
	}
	if !room {
		return false
	}
	if s.key() != k {
		if 4*(x.used+1) > 3*len(t) {
			t = x.rebuild()
			s = t.slotFor(k, x.seed)
		}
		s.setKey(k)
		x.used++
	}
	s.entry.Store(e.pack())
	x.entries++
	return true
}

// removeKey takes k out and returns how many entries that were, 0 or 1.
func (x *index) removeKey(k key) int {
	s := (*x.slots.Load()).slotFor(k, x.seed)
	if s.entry.Load() == 0 {
		return 0
	}
	s.entry.Store(0)
	x.entries--
	return 1
}

// rebuild replaces the slots by others without the removed keys, of which at
// most 3/8 are used. Readers that are on the old ones find what was there.
func (x *index) rebuild() slots {
	size := minSlots
	for 8*(x.entries+1) > 3*size {
		size *= 2
	}
	t := make(slots, size)
	for k, w := range x.eachEntry {
		s := t.slotFor(k, x.seed)
		s.setKey(k)
		s.entry.Store(w)
	}
	x.used = x.entries
	x.slots.Store(&t)
	return t
}

// eachEntry yields the entries.
func (x *index) eachEntry(yield func(key, uint64) bool) {
	t := *x.slots.Load()
	for i := range t {
		if w := t[i].entry.Load(); w != 0 && !yield(t[i].key(), w) {
			return
		}
	}
}
