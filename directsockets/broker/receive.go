package broker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxFDs is the most descriptors that a message has. Room is made for one more, so
// that a message with too many is seen to have them.
const maxFDs = 3

// errNoDescriptors says that the descriptors of a message could not be received,
// for want of room in this process's table. They are lost; the message is good.
var errNoDescriptors = errors.New("broker: no room for more descriptors: raise the limit of open files (ulimit -n, LimitNOFILE)")

// descriptors are those of a message that were not taken yet.
type descriptors []int

// take moves the i-th descriptor to the caller, who closes it.
func (d descriptors) take(i int) int {
	fd := d[i]
	d[i] = -1
	return fd
}

// drop closes the i-th descriptor.
func (d descriptors) drop(i int) { _ = unix.Close(d.take(i)) }

// close closes those that nobody took.
func (d descriptors) close() {
	for i, fd := range d {
		if fd >= 0 {
			_ = unix.Close(fd)
			d[i] = -1
		}
	}
}

// inbound receives packets from a socket.
//
// Concurrency: none.
type inbound struct {
	raw syscall.RawConn
	buf []byte
	oob []byte
}

func newInbound(conn *net.UnixConn, size int) (*inbound, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	// One byte more than a message may have, so that a longer one is seen to be.
	return &inbound{raw: raw, buf: make([]byte, size+1), oob: make([]byte, unix.CmsgSpace(4*(maxFDs+1)))}, nil
}

// next waits for a packet and lends its bytes until the next call. The descriptors
// belong to the caller, whatever the error is.
func (in *inbound) next() (b []byte, fds descriptors, err error) {
	var n, oobn, flags int
	var recvErr error
	err = in.raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, recvErr = unix.Recvmsg(int(fd), in.buf, in.oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
			if recvErr != unix.EINTR {
				return recvErr != unix.EAGAIN
			}
		}
	})
	if err == nil {
		err = recvErr
	}
	if err != nil {
		return nil, nil, err
	}
	if oobn > 0 {
		fds = received(in.oob[:oobn])
	}
	switch {
	case n == 0:
		return nil, fds, io.EOF
	case flags&unix.MSG_TRUNC != 0:
		return nil, fds, fmt.Errorf("%w: more than %d bytes", ErrMessage, len(in.buf)-1)
	case flags&unix.MSG_CTRUNC != 0 && len(fds) > maxFDs:
		return nil, fds, fmt.Errorf("%w: more than %d descriptors", ErrRule, maxFDs)
	case flags&unix.MSG_CTRUNC != 0:
		return in.buf[:n], fds, errNoDescriptors
	}
	return in.buf[:n], fds, nil
}

// received returns the descriptors in control messages.
func received(oob []byte) (fds descriptors) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range msgs {
		if got, err := unix.ParseUnixRights(&msgs[i]); err == nil { // else other ancillary data
			fds = append(fds, got...)
		}
	}
	return fds
}
