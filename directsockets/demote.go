package directsockets

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// demotePause is how long Demote waits between two looks.
const demotePause = 20 * time.Microsecond

// Demote moves both directions to the shadow, for good, wherever they are. Nothing is lost or
// reordered. It does not wait for the peer.
func (c *Conn) Demote() error { return c.demote(ReasonProgram) }

func (c *Conn) demote(why Reason) error {
	c.up.Store(upNever)
	c.decided()
	c.askRX(wantFreeze)
	c.askTX(wantFreeze, true)
	for {
		c.mu.Lock()
		closed := c.closed
		done := c.modes[0] != ModeDirect && c.modes[1] != ModeDirect
		c.mu.Unlock()
		if closed {
			return c.opError("demote", net.ErrClosed)
		}
		// A holder that has lent its lock does it when it takes it back.
		work := (c.rx.want.Load() | c.tx.want.Load()) & wantFreeze
		if done && work == 0 || c.rx.word.Load() == lockLent || c.tx.word.Load() == lockLent {
			c.reason(why)
			return nil
		}
		time.Sleep(demotePause)
	}
}

// freezeRX moves the inbound direction to the shadow. The caller holds its lock.
func (c *Conn) freezeRX() {
	r := &c.rx
	switch r.phase {
	case rxTCP:
		r.phase = rxBack
	case rxShadow, rxCatchUp, rxDirect:
		if r.phase == rxShadow && !c.transit() && r.phase != rxCatchUp {
			if r.phase == rxTCP {
				r.phase = rxBack
			}
			break
		}
		if err := r.end.Freeze(); err != nil {
			break // it ends by itself, the queue comes first
		}
		c.unwatch()
		r.thawed, r.phase, r.direct = r.phase, rxFrozen, false
	}
	c.setMode(&r.half, ModeDemoted)
}

// File returns a duplicate of the shadow's descriptor, as net.TCPConn's does. The connection is
// demoted first: whoever has only a descriptor can only use TCP.
func (c *Conn) File() (*os.File, error) {
	if c.tcp == nil {
		return nil, c.opError("file", errors.ErrUnsupported)
	}
	if err := c.Demote(); err != nil {
		return nil, err
	}
	return c.tcp.File()
}

// SyscallConn gives access to the shadow's descriptor, for options. Its Read and
// Write demote the connection first.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if c.tcp == nil {
		return nil, c.opError("raw-control", errors.ErrUnsupported)
	}
	raw, err := c.tcp.SyscallConn()
	return rawConn{raw, c}, err
}

type rawConn struct {
	syscall.RawConn
	c *Conn
}

func (r rawConn) Read(f func(fd uintptr) (done bool)) error {
	return r.c.rawCall(&r.c.rx.half, "raw-read", func() error { return r.RawConn.Read(f) })
}

func (r rawConn) Write(f func(fd uintptr) (done bool)) error {
	return r.c.rawCall(&r.c.tx.half, "raw-write", func() error { return r.RawConn.Write(f) })
}

// rawCall calls call, which waits on the shadow for the direction of h, on TCP alone. If the
// program's deadline has not passed, a timeout is a leftover wake-up.
func (c *Conn) rawCall(h *half, op string, call func() error) error {
	_ = c.demote(ReasonUnsupported) // closed: the call says so
	for {
		if h.flags.Load()&(flagExpired|flagClosed) == flagExpired {
			return c.opError(op, os.ErrDeadlineExceeded)
		}
		err := call()
		if err == nil || !isTimeout(err) {
			return err
		}
		if h.try() {
			c.clearWake(h)
			if h.free() {
				c.leave(h)
			}
		}
		time.Sleep(demotePause)
	}
}

// leave does what others want of the direction of h, after free.
func (c *Conn) leave(h *half) {
	if h == &c.rx.half {
		c.leaveRX()
	} else {
		c.leaveTX()
	}
}

func dup(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }
