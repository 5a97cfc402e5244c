package shm

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Gather maps pages of the arena, anywhere in it, one after the other a second time. Each of them
// is PageSize bytes at a page boundary of what Alloc has lent. The memory is there until Scatter.
func (a *Arena) Gather(pages [][]byte) ([]byte, error) {
	var offsets []int
	for _, p := range pages {
		off, ok := a.Offset(p)
		if !ok || off%PageSize != 0 || len(p) != PageSize {
			return nil, fmt.Errorf("shm: gather: no page of the arena: %w", unix.EINVAL)
		}
		offsets = append(offsets, off)
	}
	size := len(pages) * PageSize
	at, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("shm: gather: %w", err)
	}
	mem := unsafe.Slice((*byte)(at), size)
	for i := 0; i < len(offsets); {
		n := 1
		for i+n < len(offsets) && offsets[i+n] == offsets[i]+n*PageSize {
			n++
		}
		// Of shared memory an old size of 0 makes a second mapping. By its descriptor there is none
		// that can be written: it is sealed.
		_, err := unix.MremapPtr(unsafe.Pointer(&a.mem[offsets[i]]), 0, unsafe.Add(at, i*PageSize), uintptr(n*PageSize),
			unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("shm: gather: %w", err), Scatter(mem))
		}
		i += n
	}
	return mem, nil
}

// Scatter takes away what Gather has returned.
func Scatter(mem []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)))
}
