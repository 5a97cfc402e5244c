package shm

import (
	"sync/atomic"

	"exnet/foreign"
)

func pause(n uint32)
func rdtscp() uint32

// Ticks reads the counter that all CPUs of the host share, of unknown frequency;
// 0 if there is none that can be read.
func Ticks() uint64

//go:noescape
func prefetchSlot(status *atomic.Uint64)
func cpuid(leaf uint32) (eax, edx uint32)

var hasRDTSCP = func() bool {
	if top, _ := cpuid(0x80000000); top < 0x80000001 {
		return false
	}
	_, edx := cpuid(0x80000001)
	return edx&(1<<27) != 0
}()

// CPU is the number of the CPU that the caller runs on, or ran on a moment ago;
// -1 if that cannot be told. It is cheap: Linux keeps the number where RDTSCP
// finds it, with that of the NUMA node from bit 12 on.
func CPU() int {
	if !hasRDTSCP {
		return getcpu()
	}
	return int(rdtscp() & 0xfff)
}

// Pause waits for n times the few dozen cycles that PAUSE takes, as a loop that
// looks at a word repeatedly should between two looks.
func Pause(n uint32) { pause(max(n, 1)) }

// PrefetchSlot asks for the two cache lines of the slot that begins with status, which the caller
// is going to write soon. The line is with whoever read it last; without this each store would wait
// in turn for it to come back.
func PrefetchSlot(status *atomic.Uint64) { prefetchSlot(status) }

func prefetchW(addr uintptr, n int)

// PrefetchW is PrefetchSlot for the cache lines of m.
func PrefetchW(m foreign.Memory) {
	if m.Len() > 0 {
		prefetchW(m.Addr(), m.Len())
	}
}

//go:noescape
func spinSlot(status *atomic.Uint64, lap, n uint32) bool

// SpinSlot looks up to n times whether the lower half of a slot's status word is lap. It has the
// second cache line of the slot come with the first.
func SpinSlot(status *atomic.Uint64, lap, n uint32) bool { return spinSlot(status, lap, max(n, 1)) }

// past copies whole cache lines past the caches. to is a multiple of 16, and not in Go's memory.
//
//go:noescape
func past(to uintptr, from []byte)

// FillPast is m.Fill past the caches: for memory, mapped and not Go's, whose lines are in the cache
// of a CPU so far away that to fetch each one before it is written takes longer than main memory.
func FillPast(m foreign.Memory, p []byte) int {
	n := min(m.Len(), len(p))
	lines := n &^ 63
	if m.Addr()%16 != 0 {
		return m.Fill(p)
	}
	past(m.Addr(), p[:lines])
	return lines + m.Part(lines, n-lines).Fill(p[lines:n])
}
