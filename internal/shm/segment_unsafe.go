package shm

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrSegment says that a descriptor is no segment that can be mapped safely: it
// is not sealed, or of another size. Refuse the peer that sent it.
var ErrSegment = errors.New("shm: descriptor is not a sealed segment")

// seals of an owner: nobody resizes the file, nobody but the owner writes.
const (
	seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	// needed of a segment of a peer, so that an access cannot raise SIGBUS.
	needed = unix.F_SEAL_SHRINK
)

// Segment is a mapped memfd.
//
// Concurrency: Bytes may be used from many goroutines; Retire may be called at
// any time.
type Segment struct {
	mem []byte

	mu      sync.Mutex
	fd      int  // guarded by mu; -1 when closed, or of a peer's segment
	retired bool // guarded by mu
}

// Create makes a segment of size bytes, a multiple of the page size. The
// descriptor is for handing over; the mapping stays the only one that can write.
func Create(name string, size int) (*Segment, error) {
	s, err := createLazy(name, size, seals)
	if err != nil {
		return nil, err
	}
	return s, s.reserveAll()
}

// CreateWritable is Create of a segment in which who has its descriptor may write, too.
func CreateWritable(name string, size int) (*Segment, error) {
	s, err := createLazy(name, size, SharedSeals)
	if err != nil {
		return nil, err
	}
	return s, s.reserveAll()
}

// createLazy is Create of a segment with other seals, whose user reserves what is touched.
func createLazy(name string, size, seals int) (*Segment, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("shm: memfd_create: %w", err)
	}
	s, err := createSegment(fd, size, seals)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return s, nil
}

func createSegment(fd, size, seals int) (*Segment, error) {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("shm: ftruncate to %d bytes: %w", size, err)
	}
	s, err := mapSegment(fd, size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, err
	}
	s.fd = fd
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		s.fd = -1 // the caller closes it
		return nil, fmt.Errorf("shm: seal: %w", err)
	}
	return s, nil
}

// Map maps a peer's segment of size bytes for reading. It borrows fd. The error
// wraps ErrSegment if the descriptor cannot be trusted.
func Map(fd, size int) (*Foreign, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("shm: fstat: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, fmt.Errorf("shm: fstatfs: %w", err)
	}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: no memfd: %v", ErrSegment, err)
	case fs.Type != unix.TMPFS_MAGIC: // huge pages, of which there may be none: SIGBUS
		return nil, fmt.Errorf("%w: file system %#x", ErrSegment, fs.Type)
	case got&needed != needed:
		return nil, fmt.Errorf("%w: seals %#x", ErrSegment, got)
	case size <= 0 || st.Size != int64(size):
		return nil, fmt.Errorf("%w: %d bytes, %d expected", ErrSegment, st.Size, size)
	}
	s, err := mapSegment(fd, size, unix.PROT_READ)
	if err != nil {
		return nil, err
	}
	return &Foreign{s}, nil
}

func mapSegment(fd, size, prot int) (*Segment, error) {
	p, err := unix.MmapPtr(fd, 0, nil, uintptr(size), prot, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("shm: mmap %d bytes: %w", size, err)
	}
	s := &Segment{mem: unsafe.Slice((*byte)(p), size), fd: -1}
	// A core dump would have all pages of it, also those that are not there yet. A kernel without
	// core dumps does not know of it.
	_ = unix.Madvise(s.mem, unix.MADV_DONTDUMP)
	runtime.AddCleanup(s, unmap, s.mem)
	return s, nil
}

// unmap gives back the addresses when nobody can have a pointer to them.
func unmap(mem []byte) {
	quiet()
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)))
}

// Bytes lends the memory as long as the Segment can be reached. Only the creator of the segment may
// write it.
func (s *Segment) Bytes() []byte { return s.mem }

// Fd lends the descriptor of an own segment until CloseFd or Retire; -1 if it is
// closed.
func (s *Segment) Fd() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fd
}

// CloseFd closes the descriptor of an own segment; the mapping stays.
func (s *Segment) CloseFd() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeFdLocked()
}

func (s *Segment) closeFdLocked() {
	if s.fd >= 0 {
		_ = unix.Close(s.fd) // a memfd has nothing to write back
		s.fd = -1
	}
}

// Retire returns the shared memory, now. The addresses stay valid, with private
// zeros behind them, until the Segment cannot be reached any more: so a goroutine
// that still looks at a word of it does not fault. Whoever reads more than words
// must keep Retire away until it has done.
func (s *Segment) Retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeFdLocked()
	if s.retired {
		return
	}
	s.retired = true
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(s.mem)), uintptr(len(s.mem)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil { // out of mappings: the memory goes when the Segment does
		s.retired = false
	}
}

// Words is the view of n words at off, which is a multiple of 8.
func Words(mem []byte, off, n int) []atomic.Uint64 {
	p := &mem[off : off+8*n : off+8*n][0]
	if uintptr(unsafe.Pointer(p))%8 != 0 {
		panic("shm: words are not aligned")
	}
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(p)), n)
}

// SlotSize is the size of a Slot: two cache lines, which the hardware fetches as
// a pair.
const SlotSize = 128

// Slot is a slot of a ring: a status word, written last, and a payload.
type Slot struct {
	Status  atomic.Uint64
	Payload [SlotSize - 8]byte
}

// Slots is the view of n slots at off, which is a multiple of 8.
func Slots(mem []byte, off, n int) []Slot {
	p := &mem[off : off+SlotSize*n : off+SlotSize*n][0]
	if uintptr(unsafe.Pointer(p))%8 != 0 {
		panic("shm: slots are not aligned")
	}
	return unsafe.Slice((*Slot)(unsafe.Pointer(p)), n)
}

// offsetIn is where b begins in mem; false unless all of b is in mem.
func offsetIn(mem, b []byte) (int, bool) {
	if len(b) == 0 || len(b) > len(mem) {
		return 0, false
	}
	off := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	if off > uintptr(len(mem)-len(b)) || off > math.MaxInt {
		return 0, false
	}
	return int(off), true
}
