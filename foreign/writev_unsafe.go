package foreign

import (
	"syscall"
	"unsafe"

	"exnet/internal/readhook"
)

// RawWritev writes prefix, which is not empty, and the frame to fd in one writev(2),
// without the runtime's entersyscall and exitsyscall: fd must be one that never
// blocks. The kernel reads each byte of the frame once.
func (f Frame) RawWritev(fd int, prefix []byte) syscall.Errno {
	var iov [3]syscall.Iovec
	n := 0
	for _, b := range [...][]byte{prefix, f.head, f.rest.mem} {
		if len(b) > 0 {
			iov[n].Base = unsafe.SliceData(b)
			iov[n].SetLen(len(b))
			n++
		}
	}
	for {
		_, _, errno := syscall.RawSyscall(syscall.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&iov[0])), uintptr(n))
		if errno == syscall.EINTR {
			continue
		}
		if errno == 0 && readhook.On() {
			readhook.Read(f.rest.mem, len(f.rest.mem))
		}
		return errno
	}
}
