package foreign

import (
	"sync/atomic"
	"unsafe"
)

// Words is the view of n words at off, which is a multiple of 8 in memory. A Load of
// one is a value that stays; a second Load may give another.
func (m Memory) Words(off, n int) []atomic.Uint64 {
	p := m.at(off, 8*n, 8)
	return unsafe.Slice((*atomic.Uint64)(p), n)
}

// Words32 is Words of 32 bits, at a multiple of 4.
func (m Memory) Words32(off, n int) []atomic.Uint32 {
	p := m.at(off, 4*n, 4)
	return unsafe.Slice((*atomic.Uint32)(p), n)
}

// SlotSize is the size of a Slot: two cache lines, which the hardware fetches as a
// pair.
const SlotSize = 128

// Slot is a slot of a ring: a status word, written last, and a payload.
type Slot struct {
	Status  atomic.Uint64
	payload [SlotSize - 8]byte
}

// Payload is what follows the status word.
func (s *Slot) Payload() Memory { return Memory{s.payload[:]} }

// Slots is the view of n slots at off, which is a multiple of 8 in memory.
func (m Memory) Slots(off, n int) []Slot {
	p := m.at(off, SlotSize*n, 8)
	return unsafe.Slice((*Slot)(p), n)
}

// at is where n bytes at off begin; it panics if they are not within m, or do not
// begin at a multiple of align.
func (m Memory) at(off, n, align int) unsafe.Pointer {
	p := unsafe.Pointer(unsafe.SliceData(m.mem[off : off+n]))
	if uintptr(p)%uintptr(align) != 0 {
		panic("foreign: words are not aligned")
	}
	return p
}

// Addr is where m begins, for instructions that fetch a cache line and read nothing.
func (m Memory) Addr() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(m.mem))) }
