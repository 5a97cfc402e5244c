package stream

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// conn is one connection of a link. The first carries messages, the others the data of
// transfers; a connection that is alone carries both.
type conn struct {
	messages, data bool
	fd             int    // the socket; -1: there is none
	engine         Engine // in place of a socket
	crypt          *crypt // over the socket; or nil

	wmu     sync.Mutex        // of who writes
	batch   batch             // guarded by wmu
	iov     [][]byte          // guarded by wmu
	ends    [batchChunks]sent // guarded by wmu
	partial atomic.Bool       // batch is not empty
	blocked atomic.Bool       // the socket took no more: its driver looks when it does again
	armed   atomic.Bool       // and waits for that; written by the holder of wmu
	carried atomic.Uint64     // bytes sent
	queued  int               // guarded by wmu: bytes in the socket at the last beat

	rx receiver // the pump's
}

// notSent is how much the kernel takes before it is sent: messages wait behind it.
const notSent = 256 << 10

// retryMillis is how often TCP tries again while nothing gets through, at least: it waits twice as
// long each time otherwise (RFC 6298, 5.5), and a link whose way is there again after 3 s would be
// given up before the attempt after 6 s. 1 s is the least that Linux takes (6.15 and later).
const retryMillis = 1000

// takeSocket takes the socket from the Go runtime, and has events wait for it.
func (c *conn) takeSocket(t *net.TCPConn, events int) error {
	raw, err := t.SyscallConn()
	if err != nil {
		return fmt.Errorf("stream: connect: %w", err)
	}
	cerr := raw.Control(func(fd uintptr) { c.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(cerr, err); err != nil {
		c.fd = -1
		return fmt.Errorf("stream: connect: %w", err)
	}
	// Where a kernel does not have these, messages wait longer, also after a way was interrupted.
	_ = unix.SetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	_ = unix.SetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSent)
	_ = unix.SetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, retryMillis)
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(c.fd)}
	if err := unix.EpollCtl(events, unix.EPOLL_CTL_ADD, c.fd, &ev); err != nil {
		return fmt.Errorf("stream: connect: %w", err)
	}
	return t.Close() // the duplicate stays, and the runtime's poller forgets it
}

// send is rawSend, or the engine's. more: a packet that is not full may wait for what follows.
func (c *conn) send(parts [][]byte, more bool) (int, syscall.Errno) {
	if c.engine != nil {
		return c.engine.Send(parts)
	}
	if c.crypt != nil {
		return c.crypt.send(parts)
	}
	return rawSend(c.fd, parts, more)
}

// receive is rawReceive into place and more, or the engine's.
func (c *conn) receive(place, more []byte) (int, syscall.Errno) {
	if c.engine != nil {
		return c.engine.Receive(place, more)
	}
	if c.crypt != nil {
		return c.crypt.receive(place, more)
	}
	return rawReceive(c.fd, [][]byte{place, more})
}

// hasBuffers reports whether what has come may wait elsewhere than in the socket.
func (c *conn) hasBuffers() bool { return c.engine != nil || c.crypt != nil }

// hasUnsent reports whether the socket has not taken all that was handed over.
func (c *conn) hasUnsent() bool { return c.crypt != nil && c.crypt.under.Pending() > 0 }

// endError is why the connection has ended.
func (c *conn) endError() error {
	if c.engine != nil {
		return fmt.Errorf("%w: %w", ErrGone, c.engine.Err())
	}
	return ErrGone
}

// hasUnread reports whether something has come that was not received.
func (c *conn) hasUnread() bool {
	if c.engine != nil {
		return !c.engine.Arm()
	}
	if c.crypt != nil && c.crypt.more.Load() {
		return true
	}
	n, err := unix.IoctlGetInt(c.fd, unix.TIOCINQ)
	return err == nil && n > 0
}

// armWritable has the driver wait until the socket takes more, or with false not any longer. It
// belongs to the holder of wmu.
func (c *conn) armWritable(events int, on bool) {
	if c.engine != nil && on {
		c.engine.Want() // once: it is asked again each time
	}
	if c.armed.Swap(on) == on || c.engine != nil {
		return
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(c.fd)}
	if on {
		ev.Events |= unix.EPOLLOUT
	}
	// It cannot fail: the socket is there, and open.
	_ = unix.EpollCtl(events, unix.EPOLL_CTL_MOD, c.fd, &ev)
}

// close closes the connection. What was not sent is thrown away.
func (c *conn) close() {
	if c.fd >= 0 {
		_ = unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		_ = unix.Close(c.fd)
		c.fd = -1
	}
	if c.engine != nil {
		c.engine.Close()
	}
}
