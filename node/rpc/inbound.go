package rpc

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNoDescriptors says that the descriptors of a message could not be received,
// for want of room in this process's table. They are lost; the message is good.
var ErrNoDescriptors = errors.New("no room for more descriptors: raise the limit of open files (ulimit -n, LimitNOFILE)")

// Inbound receives packets from a socket.
//
// Concurrency: none.
type Inbound struct {
	raw syscall.RawConn
	buf []byte
	oob []byte
	max int // descriptors of a message
	// reset: the peer closed the connection before it had read everything.
	reset bool
}

// mostRights is how many descriptors a packet has at most (SCM_MAX_FD).
const mostRights = 253

// NewInbound receives packets of at most size bytes and max descriptors.
func NewInbound(conn *net.UnixConn, size, max int) (*Inbound, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	// One byte more than a message may have, so that a longer one is seen to be. And room for
	// all descriptors that a packet can have: what does not fit the kernel closes, in this
	// thread.
	return &Inbound{raw: raw, buf: make([]byte, size+1), oob: make([]byte, unix.CmsgSpace(4*mostRights)), max: max}, nil
}

// Next waits for a packet and lends its bytes until the next call. The descriptors
// belong to the caller, whatever the error is.
func (in *Inbound) Next() (b []byte, fds Descriptors, err error) {
	var n, oobn, flags int
	var recvErr error
	err = in.raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, recvErr = unix.Recvmsg(int(fd), in.buf, in.oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
			switch {
			case recvErr == unix.EINTR:
			case recvErr == unix.ECONNRESET && !in.reset: // unix(7) says so before what the peer has sent
				in.reset = true
			default:
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
		fds = receivedDescriptors(in.oob[:oobn])
	}
	switch {
	case n == 0 && in.reset:
		return nil, fds, unix.ECONNRESET
	case n == 0:
		return nil, fds, io.EOF
	case flags&unix.MSG_TRUNC != 0:
		return nil, fds, fmt.Errorf("%w: more than %d bytes", ErrRule, len(in.buf)-1)
	case len(fds) > in.max:
		return nil, fds, fmt.Errorf("%w: more than %d descriptors", ErrRule, in.max)
	case flags&unix.MSG_CTRUNC != 0:
		return in.buf[:n], fds, ErrNoDescriptors
	}
	return in.buf[:n], fds, nil
}

// receivedDescriptors returns the descriptors in control messages.
func receivedDescriptors(oob []byte) (fds Descriptors) {
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

// HungUp reports whether err is what a connection that was closed, here or there, leads to.
func HungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) || errors.Is(err, net.ErrClosed)
}
