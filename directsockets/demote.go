package directsockets

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// demotePause is how long Demote waits between two looks.
const demotePause = 20 * time.Microsecond

// Demote moves both directions to the shadow, for good, wherever they are. Nothing is lost or
// reordered. It does not wait for the peer.
func (c *Conn) Demote() error { return c.demote(ReasonProgram) }

func (c *Conn) demote(why Reason) error {
	c.stayOnShadow(why)
	c.askRX(wantFallBack)
	c.askTX(wantFallBack, true)
	for {
		c.mu.Lock()
		closed := c.closed
		done := c.modes[0] != ModeDirect && c.modes[1] != ModeDirect
		c.mu.Unlock()
		if closed {
			return c.opError("demote", net.ErrClosed)
		}
		// A holder that has lent its lock does it when it takes it back.
		work := (c.rx.want.Load() | c.tx.want.Load()) & wantFallBack
		if done && work == 0 || c.rx.word.Load() == lockLent || c.tx.word.Load() == lockLent {
			c.setReason(why)
			return nil
		}
		time.Sleep(demotePause)
	}
}

func dup(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }
