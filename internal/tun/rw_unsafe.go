package tun

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawRead and rawWritev are read(2) and writev(2) without the runtime's
// entersyscall and exitsyscall. That is right only for a call that never sleeps:
// fd must be a TUN descriptor in non-blocking mode (package documentation). Both
// slices must not be empty.

func rawRead(fd int, b []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

func rawWritev(fd int, hdr, packet []byte) syscall.Errno {
	var iov [2]unix.Iovec
	iov[0].Base = unsafe.SliceData(hdr)
	iov[0].SetLen(len(hdr))
	iov[1].Base = unsafe.SliceData(packet)
	iov[1].SetLen(len(packet))
	for {
		_, _, errno := syscall.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&iov[0])), uintptr(len(iov)))
		if errno != unix.EINTR {
			return errno
		}
	}
}
