package coredist

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// coldSize is more than any cache of the project's machines has for one CPU.
	coldSize = 64 << 20

	hotCopies  = 400
	coldCopies = 2
)

// measureCopy measures a copy of HandOverSize within the cache, and of 64 MB through
// memory, in GB/s: 10^9 bytes read and as many written. The best of several counts,
// as others may use the same memory; that is the host's state.
func measureCopy() (hot, cold float64) {
	// Not of Go's heap, which would keep it.
	mem, err := unix.Mmap(-1, 0, 2*coldSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, 0
	}
	defer unix.Munmap(mem)
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // without it takes longer
	from, to := mem[:coldSize], mem[coldSize:]
	for i := 0; i < len(mem); i += 4096 {
		mem[i] = 1
	}
	return copyRate(to[:HandOverSize], from[:HandOverSize], hotCopies), copyRate(to, from, coldCopies)
}

func copyRate(to, from []byte, times int) float64 {
	best := time.Duration(1<<63 - 1)
	for range times {
		start := time.Now()
		copy(to, from)
		best = min(best, time.Since(start))
	}
	return float64(len(to)) / float64(max(best, 1))
}
