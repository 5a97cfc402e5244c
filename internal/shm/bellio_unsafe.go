package shm

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Hush reads a bell's socket without sleeping. gone: the other end is not there
// any more. Descriptors that came with the bytes are appended to fds; the caller
// owns them. More than len(buf) bytes are left for the next time.
func Hush(fd int, fds []int) (_ []int, gone bool) {
	var buf [512]byte
	var oob [64]byte
	for range 8 {
		iov := unix.Iovec{Base: &buf[0]}
		iov.SetLen(len(buf))
		msg := unix.Msghdr{Iov: &iov, Iovlen: 1, Control: &oob[0]}
		msg.SetControllen(len(oob))
		n, _, errno := syscall.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)),
			unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			return fds, false
		case errno != 0 || n == 0:
			return fds, true
		}
		if msg.Controllen > 0 {
			fds = rights(append([]byte(nil), oob[:msg.Controllen]...), fds) // a copy, which may escape
		}
		// Read on, also after a short read: the end may stand behind the last byte, and
		// who waits for edges (epoll) is not told of it twice.
	}
	return fds, false
}

func rights(oob []byte, fds []int) []int {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fds
	}
	for i := range msgs {
		if got, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

// Rung reports whether Hush would find something: bytes, or that the other end is
// not there any more.
func Rung(fd int) bool {
	var b byte
	_, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b)), 1,
		unix.MSG_DONTWAIT|unix.MSG_PEEK, 0, 0)
	return errno != unix.EAGAIN
}

// RingWith is Ring, and hands a descriptor over with the byte. It borrows both.
// False: it did not go, since the other end has too many bytes to read, or is not
// there.
func RingWith(fd, pass int) bool {
	oob := unix.UnixRights(pass)
	iov := unix.Iovec{Base: &bell}
	iov.SetLen(1)
	msg := unix.Msghdr{Iov: &iov, Iovlen: 1, Control: &oob[0]}
	msg.SetControllen(len(oob))
	n, _, errno := syscall.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return errno == 0 && n == 1
}
