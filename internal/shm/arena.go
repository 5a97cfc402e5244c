package shm

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// PageSize is the unit in which an Arena hands out memory.
const PageSize = 4096

// ErrFull says that an Arena has no run of free pages of the size asked for. Free
// something, or do with less.
var ErrFull = errors.New("shm: arena is full")

// Arena hands out pieces of a segment.
//
// Concurrency: all methods may be called from many goroutines.
type Arena struct {
	*Segment
	mu   sync.Mutex
	free []extent // guarded by mu; sorted and merged
}

// extent is a run of bytes, of whole pages.
type extent struct{ off, n int }

// NewArena returns an arena of size bytes, a multiple of PageSize. A page costs
// memory from its first use on.
func NewArena(name string, size int) (*Arena, error) {
	s, err := createLazy(name, size, seals)
	if err != nil {
		return nil, err
	}
	return &Arena{Segment: s, free: []extent{{0, size}}}, nil
}

// NewSharedArena is NewArena of memory that whoever gets the descriptor may write, too. The first
// bytes, a multiple of PageSize, are not handed out.
func NewSharedArena(name string, size, first int) (*Arena, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("shm: memfd_create: %w", err)
	}
	s, err := createSegment(fd, size, SharedSeals)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &Arena{Segment: s, free: []extent{{first, size - first}}}, nil
}

func pageCount(n int) int { return (n + PageSize - 1) &^ (PageSize - 1) }

// Alloc lends n bytes at a page boundary until Free; their content is whatever
// was there. First fit, so that the pages in use are those that were used before.
func (a *Arena) Alloc(n int) ([]byte, error) {
	if n < 1 || n > len(a.mem) {
		return nil, fmt.Errorf("%w: %d bytes of %d", ErrFull, n, len(a.mem))
	}
	need := pageCount(n)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.free {
		e := &a.free[i]
		if e.n < need {
			continue
		}
		off := e.off
		if err := reserveMemory(a.mem[off : off+need]); err != nil {
			return nil, err
		}
		if e.off, e.n = e.off+need, e.n-need; e.n == 0 {
			a.free = slices.Delete(a.free, i, i+1)
		}
		return a.mem[off : off+n : off+n], nil
	}
	return nil, ErrFull
}

// Free takes back what Alloc lent. It panics if b is something else.
func (a *Arena) Free(b []byte) {
	off, ok := offsetIn(a.mem, b)
	if !ok || off%PageSize != 0 {
		panic("shm: memory is not of the arena")
	}
	e := extent{off, pageCount(len(b))}
	a.mu.Lock()
	defer a.mu.Unlock()
	i, found := slices.BinarySearchFunc(a.free, off, func(x extent, off int) int { return x.off - off })
	if found || i > 0 && a.free[i-1].off+a.free[i-1].n > off || i < len(a.free) && off+e.n > a.free[i].off {
		panic("shm: memory freed twice")
	}
	if i < len(a.free) && e.off+e.n == a.free[i].off {
		a.free[i].off, a.free[i].n = e.off, a.free[i].n+e.n
		e = a.free[i]
		if i > 0 && a.free[i-1].off+a.free[i-1].n == e.off {
			a.free[i-1].n += e.n
			a.free = slices.Delete(a.free, i, i+1)
		}
		return
	}
	if i > 0 && a.free[i-1].off+a.free[i-1].n == e.off {
		a.free[i-1].n += e.n
		return
	}
	a.free = slices.Insert(a.free, i, e)
}

// Offset is where b begins in the arena; false unless all of b is in it.
func (a *Arena) Offset(b []byte) (int, bool) { return offsetIn(a.mem, b) }
