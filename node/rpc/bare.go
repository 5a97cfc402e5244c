package rpc

import "golang.org/x/sys/unix"

// mostLooked is how many messages bare reads until it takes the next one for one with
// descriptors.
const mostLooked = 16

// Bare reports, after Abort, whether nothing waits on either side that has descriptors: Close
// takes no time then. It reads messages that have none.
func (o *Outbox) Bare() bool {
	o.mu.Lock()
	idle := len(o.queue) == 0 && !o.writing
	o.mu.Unlock()
	empty := false
	err := o.raw.Control(func(fd uintptr) { empty = idle && holdsNothing(int(fd)) })
	return err == nil && empty
}

// holdsNothing reports whether nothing waits in a SOCK_SEQPACKET socket that has descriptors, so
// that to close it takes no time. It is shut down: nothing more comes to it. It reads messages
// that have none.
func holdsNothing(fd int) bool {
	// next is the next message's length, and whether something came with it that was not asked
	// for.
	next := func(flags int) (n int, more bool, err error) {
		n, _, got, _, err := unix.Recvmsg(fd, make([]byte, 1), nil, flags|unix.MSG_DONTWAIT)
		return n, got&unix.MSG_CTRUNC != 0, err
	}
	for range mostLooked {
		n, descriptors, err := next(unix.MSG_PEEK)
		if err == unix.ECONNRESET { // told once, and there may be messages
			continue
		}
		if err != nil || descriptors {
			return false
		}
		if n == 0 { // the end, or a message of no bytes, with which its sender's number would come
			if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1) != nil {
				return false
			}
			_, message, err := next(unix.MSG_PEEK)
			if err != nil || unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 0) != nil {
				return false
			}
			if !message {
				return true
			}
		}
		if _, _, err := next(0); err != nil {
			return false
		}
	}
	return false
}
