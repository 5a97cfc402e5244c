package tun

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawRead is read(2) without the runtime's entersyscall and exitsyscall. That is
// right only for a call that never sleeps: fd must be a TUN descriptor in non-blocking
// mode (package documentation). b must not be empty.
func rawRead(fd int, b []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}
