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
	// Room for all that a message can have (SCM_MAX_FD is 253): what does not fit the kernel closes
	// in this thread, which may take long.
	var oob [16 + 4*254]byte
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
			fds = parseRights(append([]byte(nil), oob[:msg.Controllen]...), fds) // a copy, which may escape
		}
		// Read on, even after a short read: the end may follow the last byte, and a waiter
		// for edges (epoll) is not told about it twice.
	}
	return fds, false
}

func parseRights(oob []byte, fds []int) []int {
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

// pollFd is what ppoll(2) takes.
type pollFd struct {
	fd              int32
	events, revents int16
}

// HungUp reports whether the other end of the connected socket fd is not there any more, or
// will write nothing. What is to be read is left.
func HungUp(fd int) bool { return pollTells(fd, unix.EPOLLRDHUP) } // the same number as POLLRDHUP

// Over reports whether both directions of the connected socket fd have ended, or its other end is
// not there any more. It asks the kernel.
func Over(fd int) bool { return pollTells(fd, 0) }

// pollTells reports whether poll has something to tell of fd, one of the events or an end.
func pollTells(fd int, events int16) bool {
	p := pollFd{fd: int32(fd), events: events}
	var now unix.Timespec
	n, _, _ := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return n == 1
}

// RingWith is Ring, and hands a descriptor over with the byte. It borrows both. It
// returns false if it did not go, since the other end has too many bytes to read,
// or is not there.
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
