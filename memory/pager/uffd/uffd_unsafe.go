package uffd

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/foreign"
	_ "exnet/internal/linux"
)

// FD is a userfaultfd, of this process or another.
type FD int

// PageSize is the size of the pages that this package knows.
const PageSize = 4096

// The requests of userfaultfd and of pagemap, as linux/userfaultfd.h and linux/fs.h have them.
const (
	ioNew          = 0xaa00 // of /dev/userfaultfd
	ioAPI          = 0xc018aa3f
	ioRegister     = 0xc020aa00
	ioWake         = 0x8010aa02
	ioCopy         = 0xc028aa03
	ioWriteProtect = 0xc018aa06
	ioPoison       = 0xc020aa08
	ioPagemapScan  = 0xc0606610

	apiVersion = 0xaa

	modeMissing = 1
	modeProtect = 2

	copyProtected = 2 // UFFDIO_COPY_MODE_WP
)

// Features that Handshake asks for.
const (
	featureProtect  = 1 << 0
	featureFork     = 1 << 1
	featureRemap    = 1 << 2
	featureRemove   = 1 << 3
	featureUnmap    = 1 << 6
	featureThread   = 1 << 8
	featurePoison   = 1 << 14
	featureMove     = 1 << 16
	featureRequired = featureProtect | featureFork | featureRemap | featureRemove | featureUnmap | featureThread | featurePoison | featureMove
)

// ioctl does a request whose argument is at p.
func (f FD) ioctl(request uintptr, p unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(f), request, uintptr(p)); errno != 0 {
		return errno
	}
	return nil
}

// Is reports whether a descriptor is a userfaultfd: anything else could block its reader for ever.
func Is(fd int) bool {
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return err == nil && strings.HasPrefix(name, "anon_inode:[userfaultfd]")
}

// New makes a userfaultfd of this process.
func New() (FD, error) {
	f, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno == 0 {
		return FD(f), nil
	}
	device, err := unix.Open("/dev/userfaultfd", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, errno
	}
	defer unix.Close(device)
	if f, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(device), ioNew, unix.O_CLOEXEC|unix.O_NONBLOCK); errno != 0 {
		return -1, errno
	}
	return FD(f), nil
}

// Handshake turns a new userfaultfd on, with all that this package needs. It fails with EPERM for a
// process without CAP_SYS_PTRACE, which may not follow a fork, and with EINVAL if the kernel is too
// old, or if it has been done.
func (f FD) Handshake() error {
	api := struct{ api, features, ioctls uint64 }{apiVersion, featureRequired, 0}
	return f.ioctl(ioAPI, unsafe.Pointer(&api))
}

// Register has the faults of missing pages of a range reported, and writes to protected ones.
func (f FD) Register(start, length uint64) error {
	r := struct{ start, length, mode, ioctls uint64 }{start, length, modeMissing | modeProtect, 0}
	return f.ioctl(ioRegister, unsafe.Pointer(&r))
}

// Copy fills missing pages at to with data, whole pages, and wakes who waits for them. It returns
// how many bytes it has filled: with EAGAIN fewer than all, while the process's memory changes.
func (f FD) Copy(to uint64, data []byte, protected bool) (int, error) {
	n, err := f.copy(to, uintptr(unsafe.Pointer(unsafe.SliceData(data))), len(data), protected)
	runtime.KeepAlive(data)
	return n, err
}

// CopyForeign is Copy of memory that others can write. If it has been cut, the error is EFAULT.
func (f FD) CopyForeign(to uint64, data foreign.Memory, protected bool) (int, error) {
	return f.copy(to, data.Addr(), data.Len(), protected)
}

// copy copies n bytes at from.
func (f FD) copy(to uint64, from uintptr, n int, protected bool) (int, error) {
	c := struct {
		dst, src, length, mode uint64
		copied                 int64
	}{to, uint64(from), uint64(n), 0, 0}
	if protected {
		c.mode = copyProtected
	}
	err := f.ioctl(ioCopy, unsafe.Pointer(&c))
	if err == nil {
		return n, nil
	}
	return max(int(c.copied), 0), err
}

// WriteProtect protects a range from writes, or ends that and wakes who waits for it.
func (f FD) WriteProtect(start, length uint64, on bool) error {
	w := struct{ start, length, mode uint64 }{start, length, 0}
	if on {
		w.mode = 1
	}
	return f.ioctl(ioWriteProtect, unsafe.Pointer(&w))
}

// Wake wakes who waits in a fault of the range: it looks again.
func (f FD) Wake(start, length uint64) error {
	r := struct{ start, length uint64 }{start, length}
	return f.ioctl(ioWake, unsafe.Pointer(&r))
}

// Poison has a missing page end with SIGBUS whoever touches it.
func (f FD) Poison(start, length uint64) error {
	p := struct {
		start, length, mode uint64
		updated             int64
	}{start, length, 0, 0}
	return f.ioctl(ioPoison, unsafe.Pointer(&p))
}

// messageSize is the size of struct uffd_msg.
const messageSize = 32

// Read reads the next message. Without one it returns EAGAIN.
func (f FD) Read() (Message, error) {
	var raw [messageSize]byte
	if n, err := unix.Read(int(f), raw[:]); n != messageSize || err != nil {
		return Message{}, err
	}
	return parse(raw[:]), nil
}

// parse reads a struct uffd_msg.
func parse(raw []byte) Message {
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(raw[8+8*i:]) }
	m := Message{Event: Event(raw[0])}
	switch m.Event {
	case Fault:
		flags := word(0)
		m.Start, m.Write, m.Protected = word(1), flags&1 != 0, flags&2 != 0
		m.Thread = int(binary.NativeEndian.Uint32(raw[24:]))
	case Fork:
		m.Child = FD(binary.NativeEndian.Uint32(raw[8:]))
	case Remap:
		m.Start, m.To, m.End = word(0), word(1), word(0)+word(2)
	case Remove, Unmap:
		m.Start, m.End = word(0), word(1)
	}
	return m
}

// ThreadID returns where the C library (glibc) has the ID of a thread of another process, which the
// kernel clears when the thread ends; 0 if it is not known. It is 16 bytes before the list of the
// thread's robust mutexes, of which the kernel tells.
func ThreadID(tid int) uint64 {
	var head, length uint64
	_, _, errno := unix.Syscall(unix.SYS_GET_ROBUST_LIST, uintptr(tid), uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&length)))
	if errno != 0 || head < 16 {
		return 0
	}
	return head - 16
}

// Span is a range of addresses.
type Span struct{ Start, End uint64 }

// Categories of pages in a pagemap.
const (
	isFile    = 1 << 2
	isPresent = 1 << 3
	isZero    = 1 << 5
	isGuard   = 1 << 8 // Linux 6.16
)

// Present returns up to len(to) spans of pages of a range that are in memory and have content of
// their own, and where it stopped. pagemap is the open /proc/PID/pagemap.
func Present(pagemap int, start, end uint64, to []Span) (int, uint64, error) {
	return scan(pagemap, start, end, to, isPresent|isFile|isZero, isFile|isZero)
}

// Guard returns the first span of a range behind a guard (MADV_GUARD_INSTALL). It reports false if
// there is none, or the kernel is older than 6.16 and cannot tell. Copy takes guards away.
func Guard(pagemap int, start, end uint64) (Span, bool) {
	var found [1]Span
	n, _, err := scan(pagemap, start, end, found[:], isGuard, 0)
	return found[0], err == nil && n == 1
}

// scan finds pages of all categories of a mask, of the inverted ones those that are not of it.
func scan(pagemap int, start, end uint64, to []Span, mask, inverted uint64) (int, uint64, error) {
	type region struct{ start, end, categories uint64 }
	regions := make([]region, len(to))
	arg := struct {
		size, flags, start, end, walkEnd, vec, vecLen, most, inverted, mask, anyOf, give uint64
	}{
		size: 96, start: start, end: end,
		vec: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(regions)))), vecLen: uint64(len(regions)),
		inverted: inverted, mask: mask, give: mask &^ inverted,
	}
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(pagemap), ioPagemapScan, uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		return 0, start, errno
	}
	for i := range int(n) {
		to[i] = Span{regions[i].start, regions[i].end}
	}
	return int(n), arg.walkEnd, nil
}
