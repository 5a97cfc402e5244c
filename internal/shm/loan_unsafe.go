package shm

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/foreign"
)

// ErrCut says that the file of a Loan has been cut: its owner has taken the memory back.
var ErrCut = errors.New("shm: the memory has been taken back")

// LoanSeals are those of memory whose owner cuts it to take it back: nobody makes it longer, and
// nobody adds a seal that would keep it from being cut.
const LoanSeals = unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Loan is a mapped memfd that its owner may cut at any time. An access to what is cut is an error
// here, where an access to other mappings raises SIGBUS.
//
// Concurrency: all methods may be called from many goroutines.
type Loan struct {
	mem []byte

	mu   sync.RWMutex // held to read by accesses, to write by Close
	done bool         // +checklocks:mu
}

// CreateLoan makes a memfd of size bytes that can be cut, of huge pages if huge is set, and
// returns its descriptor.
func CreateLoan(name string, size int64, huge bool) (fd int, err error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if huge {
		flags |= unix.MFD_HUGETLB | unix.MFD_HUGE_2MB
	}
	if fd, err = unix.MemfdCreate(name, flags); err != nil {
		return -1, fmt.Errorf("shm: memfd_create: %w", err)
	}
	if err = unix.Ftruncate(fd, size); err == nil && huge {
		err = unix.Fallocate(fd, 0, 0, size) // what is not there is an error now, and SIGBUS later
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, LoanSeals)
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("shm: a loan of %d bytes: %w", size, err), unix.Close(fd))
	}
	return fd, nil
}

// MapLoan maps the memfd of a loan of size bytes. It borrows fd. The error wraps ErrSegment if the
// descriptor is not such a memfd.
func MapLoan(fd int, size int64) (*Loan, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("shm: fstat: %w", err)
	}
	if st.Size == 0 && size > 0 {
		return nil, ErrCut
	}
	if st.Size != size || size <= 0 {
		return nil, fmt.Errorf("%w: %d bytes, %d expected", ErrSegment, st.Size, size)
	}
	// Of a file of its own, who lends could have an access never end.
	if seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || seals&LoanSeals != LoanSeals {
		return nil, fmt.Errorf("%w: a descriptor with seals %#x, %v", ErrSegment, seals, err)
	}
	p, err := unix.MmapPtr(fd, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("shm: mmap %d bytes: %w", size, err)
	}
	return &Loan{mem: unsafe.Slice((*byte)(p), size)}, nil
}

// Close unmaps the memory, once the accesses that run have ended.
func (l *Loan) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		return
	}
	l.done = true
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(l.mem)), uintptr(len(l.mem)))
	l.mem = nil
}

// ReadAt copies from off on to p. All of it must be within the memory. The error is ErrCut after
// the owner has cut it, or Close was called.
func (l *Loan) ReadAt(p []byte, off int64) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.done {
		return ErrCut
	}
	return l.copyTolerant(p, l.mem[off:off+int64(len(p))])
}

// View calls f with n bytes from off on, which are mapped until it returns. They are for the kernel
// to read: an access to what has been cut raises SIGBUS.
func (l *Loan) View(off, n int64, f func(foreign.Memory)) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.done {
		return ErrCut
	}
	f(foreign.Of(l.mem[off : off+n]))
	return nil
}

// WriteAt copies p to off, as ReadAt.
func (l *Loan) WriteAt(p []byte, off int64) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.done {
		return ErrCut
	}
	return l.copyTolerant(l.mem[off:off+int64(len(p))], p)
}

// copyTolerant runs a copy from or to the memory, and turns the fault of an access to what has been
// cut into ErrCut. Other panics go on.
func (l *Loan) copyTolerant(to, from []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			begin := uintptr(unsafe.Pointer(unsafe.SliceData(l.mem)))
			if a := r.Addr(); a < begin || a-begin >= uintptr(len(l.mem)) {
				panic(r) // the caller's own memory
			}
			err = ErrCut
		default:
			panic(r)
		}
	}()
	copy(to, from)
	return nil
}

// Discard makes n bytes from off on, whole pages, zeros, and gives the pages back.
func (l *Loan) Discard(off, n int64) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.done {
		return ErrCut
	}
	if n == 0 {
		return nil
	}
	err := unix.Madvise(l.mem[off:off+n], unix.MADV_REMOVE)
	if errors.Is(err, unix.EFAULT) {
		return ErrCut
	}
	return err
}

// Own lends the memory of a loan whose descriptor nobody else has, so that nobody cuts it, until
// Close.
func (l *Loan) Own() []byte { return l.mem }
