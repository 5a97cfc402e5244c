package stream

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/internal/shm"
)

// maxParts is how many pieces of memory one call sends or receives: the messages, and for
// each chunk its head and its data.
const maxParts = 1 + 2*batchChunks

// rawSend and rawReceive are sendmsg(2) and recvmsg(2) without the runtime's entersyscall
// and exitsyscall. They do not wait: with MSG_DONTWAIT the kernel copies what fits, and
// that is all.

// rawSend sends parts, at most maxParts, and returns how many bytes it has sent. more: the last
// packet may wait for the next call (MSG_MORE).
func rawSend(fd int, parts [][]byte, more bool) (int, syscall.Errno) {
	flags := uintptr(unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL)
	if more {
		flags |= unix.MSG_MORE
	}
	shm.Publish() // before what is read here is written on the other side
	return rawMsg(unix.SYS_SENDMSG, fd, parts, flags)
}

// rawReceive fills parts, at most maxParts, and returns how many bytes it has received; 0
// without an error: the peer has hung up.
func rawReceive(fd int, parts [][]byte) (int, syscall.Errno) {
	n, errno := rawMsg(unix.SYS_RECVMSG, fd, parts, unix.MSG_DONTWAIT)
	shm.Observe()
	return n, errno
}

func rawMsg(trap uintptr, fd int, parts [][]byte, flags uintptr) (int, syscall.Errno) {
	var iov [maxParts]unix.Iovec
	k := 0
	for _, b := range parts {
		if len(b) > 0 {
			iov[k].Base = unsafe.SliceData(b)
			iov[k].SetLen(len(b))
			k++
		}
	}
	msg := unix.Msghdr{Iov: &iov[0]}
	msg.SetIovlen(k)
	for {
		n, _, errno := syscall.RawSyscall(trap, uintptr(fd), uintptr(unsafe.Pointer(&msg)), flags)
		if errno == syscall.EINTR {
			continue
		}
		return int(n), errno
	}
}
