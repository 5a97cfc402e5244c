//go:build linux

// Package unix has what direct sockets use of golang.org/x/sys/unix and package
// syscall lacks. A program that exn-go builds has it in place of golang.org/x/sys,
// so that its own version of that module stays what it is.
//
// Concurrency: all functions may be called from many goroutines.
package unix

import (
	"syscall"
	"unsafe"
)

// Values of Linux, the same on all architectures that exn-go builds for.
const (
	F_ADD_SEALS         = 1033
	F_GET_SEALS         = 1034
	F_SEAL_SEAL         = 1
	F_SEAL_SHRINK       = 2
	F_SEAL_GROW         = 4
	F_SEAL_WRITE        = 8
	F_SEAL_FUTURE_WRITE = 16

	MFD_CLOEXEC       = 1
	MFD_ALLOW_SEALING = 2
	MFD_HUGETLB       = 4
	MFD_HUGE_2MB      = 21 << 26

	MADV_DONTDUMP       = 16
	MADV_POPULATE_WRITE = 23

	MREMAP_MAYMOVE   = 1
	MREMAP_FIXED     = 2
	SEEK_DATA        = 3
	W_OK             = 2
	ST_RDONLY        = 1
	TMPFS_MAGIC      = 0x01021994
	IPPROTO_MPTCP    = 262
	SO_NETNS_COOKIE  = 71
	SO_BINDTOIFINDEX = 62
	SO_REUSEPORT     = 15
	SIOCINQ          = 0x541b
	TCP_USER_TIMEOUT = 0x12

	SO_TIMESTAMP_OLD    = 29
	SO_TIMESTAMPNS_OLD  = 35
	SO_TIMESTAMPING_OLD = 37
	SO_TIMESTAMP_NEW    = 63
	SO_TIMESTAMPNS_NEW  = 64
	SO_TIMESTAMPING_NEW = 65
	UDP_CORK            = 1
	UDP_ENCAP           = 100
	UDP_SEGMENT         = 103
	UDP_GRO             = 104

	O_PATH            = 0x200000
	AT_EMPTY_PATH     = 0x1000
	OPEN_TREE_CLOEXEC = syscall.O_CLOEXEC

	POLLIN  = 1
	POLLERR = 8

	NETLINK_SOCK_DIAG   = 4
	SOCK_DIAG_BY_FAMILY = 20

	NS_GET_PARENT    = 0xb702
	NS_GET_OWNER_UID = 0xb704

	sysOpenTree = 428
)

// FcntlInt is fcntl with a number as its argument.
func FcntlInt(fd uintptr, cmd, arg int) (int, error) {
	r, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, uintptr(cmd), uintptr(arg))
	return int(r), errOf(errno)
}

// IoctlGetInt is an ioctl that gives a number.
func IoctlGetInt(fd int, req uint) (int, error) {
	var value int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(unsafe.Pointer(&value)))
	return int(value), errOf(errno)
}

// IoctlGetUint32 is an ioctl that gives a number of 32 bits.
func IoctlGetUint32(fd int, req uint) (value uint32, err error) {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(unsafe.Pointer(&value)))
	return value, errOf(errno)
}

// IoctlRetInt is an ioctl that returns a number.
func IoctlRetInt(fd int, req uint) (int, error) {
	r, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), uintptr(req), 0)
	return int(r), errOf(errno)
}

// MemfdCreate makes a file in memory.
func MemfdCreate(name string, flags int) (fd int, err error) {
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return -1, err
	}
	r, _, errno := syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(p)), uintptr(flags), 0)
	return int(r), errOf(errno)
}

// Getrandom fills p with random bytes.
func Getrandom(p []byte, flags int) (n int, err error) {
	r, _, errno := syscall.Syscall(sysGetrandom, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(flags))
	return int(r), errOf(errno)
}

// OpenTree opens a descriptor that stands for a file (open_tree).
func OpenTree(dir int, name string, flags uint) (fd int, err error) {
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return -1, err
	}
	r, _, errno := syscall.Syscall(sysOpenTree, uintptr(dir), uintptr(unsafe.Pointer(p)), uintptr(flags))
	return int(r), errOf(errno)
}

// GetsockoptUint64 reads an option of 8 bytes.
func GetsockoptUint64(fd, level, opt int) (value uint64, err error) {
	size := uint32(unsafe.Sizeof(value))
	_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt),
		uintptr(unsafe.Pointer(&value)), uintptr(unsafe.Pointer(&size)), 0)
	return value, errOf(errno)
}

// PollFd is struct pollfd.
type PollFd struct {
	Fd              int32
	Events, Revents int16
}

// Poll is poll. A negative timeout, of milliseconds, is none.
func Poll(fds []PollFd, timeout int) (n int, err error) {
	var limit *syscall.Timespec
	if timeout >= 0 {
		t := syscall.NsecToTimespec(int64(timeout) * 1e6)
		limit = &t
	}
	r, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)),
		uintptr(unsafe.Pointer(limit)), 0, 0, 0)
	return int(r), errOf(errno)
}

// MmapPtr is mmap. With MAP_FIXED addr is memory that is mapped already.
func MmapPtr(fd int, offset int64, addr unsafe.Pointer, length uintptr, prot, flags int) (unsafe.Pointer, error) {
	r, _, errno := syscall.Syscall6(syscall.SYS_MMAP, uintptr(addr), length, uintptr(prot), uintptr(flags), uintptr(fd), uintptr(offset))
	if errno != 0 {
		return nil, errno
	}
	// Not unsafe.Pointer(r): vet cannot know that it is no memory of Go's.
	return *(*unsafe.Pointer)(unsafe.Pointer(&r)), nil
}

// MremapPtr is mremap(2).
func MremapPtr(old unsafe.Pointer, oldSize uintptr, to unsafe.Pointer, size uintptr, flags int) (unsafe.Pointer, error) {
	r, _, errno := syscall.Syscall6(syscall.SYS_MREMAP, uintptr(old), oldSize, size, uintptr(flags), uintptr(to), 0)
	if errno != 0 {
		return nil, errno
	}
	return *(*unsafe.Pointer)(unsafe.Pointer(&r)), nil
}

// MunmapPtr is munmap.
func MunmapPtr(addr unsafe.Pointer, length uintptr) error {
	_, _, errno := syscall.Syscall(syscall.SYS_MUNMAP, uintptr(addr), length, 0)
	return errOf(errno)
}

func errOf(errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}
