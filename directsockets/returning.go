package directsockets

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"exnet/directsockets/segment"
	"exnet/internal/shm"

	"golang.org/x/sys/unix"
)

// The outbound direction returns to TCP, as the peer has fallen back (SPEC.md, 5.5).

// errFull says that the shadow takes nothing without waiting.
var errFull = errors.New("directsockets: the shadow is full")

// guard waits for the end of the peer's doorbell while the outbound direction is txReturning. Its
// flags are no states of that: they say who waits, and what the shadow's SO_LINGER is, to a
// goroutine without the lock of tx.
type guard struct {
	file       *os.File // a duplicate of the doorbell; nil: nobody waits
	active     bool     // guarded by Conn.mu
	zeroLinger bool     // guarded by Conn.mu; the shadow's SO_LINGER is 0 because the peer's end is gone
}

// beginReturning is for a peer that has fallen back.
func (c *Conn) beginReturning() {
	t := &c.tx
	c.onTX(txFallenBack)
	raw, err := t.end.Bell().SyscallConn()
	if err != nil {
		return
	}
	fd := -1
	if ctlErr := raw.Control(func(d uintptr) { fd, err = dup(int(d)) }); ctlErr != nil || err != nil {
		return // no descriptors
	}
	file := os.NewFile(uintptr(fd), "doorbell")
	if raw, err = file.SyscallConn(); err != nil {
		_ = file.Close()
		return
	}
	t.guard.file = file
	c.mu.Lock()
	t.guard.active = true
	c.mu.Unlock()
	go func() {
		// An error: endReturning has closed it.
		if raw.Read(func(d uintptr) bool { return shm.HungUp(int(d)) }) == nil {
			c.armReset()
		}
	}()
}

// armReset has the shadow be reset if it ends now: whoever is left at its other end cannot take
// from the segment what it has not got.
func (c *Conn) armReset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := &c.tx.guard; g.active && !c.closed {
		g.zeroLinger = true
		c.lingerShadow(0)
	}
}

// endReturning ends txReturning. The caller holds the lock of tx.
func (c *Conn) endReturning(what txEvent) {
	c.disarmReset()
	c.onTX(what)
}

// disarmReset undoes what beginReturning and armReset have done.
func (c *Conn) disarmReset() {
	g := &c.tx.guard
	if g.file != nil {
		_ = g.file.Close() // a duplicate has nothing to lose
		g.file = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.zeroLinger { // also where Close has just written the rest: the shadow is to deliver it
		c.lingerShadow(c.linger)
	}
	g.active, g.zeroLinger = false, false
}

// lingerShadow is SetLinger of the shadow.
func (c *Conn) lingerShadow(sec int) {
	if s, ok := c.shadow.(interface{ SetLinger(int) error }); ok {
		_ = s.SetLinger(sec) // or it has ended already
	}
}

// returnToTCP writes to the shadow what the peer did not take from the segment.
func (c *Conn) returnToTCP() error {
	t := &c.tx
	switch err := t.end.ReturnToTCP(c.writeShadow); {
	case err == nil:
		c.endReturning(txWritten)
	case errors.Is(err, segment.ErrCorrupt), err == segment.ErrAgain:
		c.endOnBreach()
	case err == errWoken:
		return err
	default:
		c.endReturning(txEnded)
		t.err = err
		return err
	}
	if t.shutdown {
		c.shutdownTX()
	}
	return nil
}

// cutReturning ends txReturning now: it writes what the shadow takes without waiting, and the peer
// takes the rest from the segment. False: the peer has no segment, so all must be written.
func (c *Conn) cutReturning() bool {
	t := &c.tx
	switch err := t.end.ReturnToTCP(c.writeNow); {
	case err == nil:
		c.endReturning(txWritten)
		return true
	case errors.Is(err, segment.ErrCorrupt), err == segment.ErrAgain:
		c.endOnBreach()
		return true
	case err == errFull && t.end.Abandoned():
		return false
	}
	c.endReturning(txEnded)
	t.err = c.opError("write", os.NewSyscallError("write", syscall.EPIPE))
	return true
}

// takeRest ends txReturning for a peer that has no segment any more. The caller writes rest, which
// the shadow has not taken, there. Until then the shadow's SO_LINGER is 0: if the process ends, the
// peer must not read an end of file.
func (c *Conn) takeRest() (rest []byte) {
	if err := c.tx.end.ReturnToTCP(func(p []byte) (int, error) {
		rest = append(rest, p...)
		return len(p), nil
	}); err != nil {
		c.endOnBreach()
		return nil
	}
	c.count.Add(segment.SentShadow, uint64(len(rest)))
	c.mu.Lock()
	c.lingerShadow(0)
	c.tx.guard.zeroLinger = false // so that disarmReset leaves it
	c.mu.Unlock()
	c.endReturning(txWritten)
	return rest
}

// orphanTime is how long Linux keeps a closed connection whose peer says that it has no room: it
// asks after 200 ms, then after twice that each time, until the time would be 120 s
// (tcp_probe_timer in net/ipv4/tcp_timer.c).
const orphanTime = 204600 * time.Millisecond

// orphanBytes counts what connections have left that a goroutine writes after Close.
type orphanBytes struct{ n atomic.Int64 }

const (
	// maxOrphans bounds what peers that read nothing have a process keep, in bytes.
	maxOrphans = 64 << 20
	// minOrphan is what a connection counts at least, in bytes, for its descriptor and goroutine.
	minOrphan = 64 << 10
)

// orphans are those of this process.
var orphans orphanBytes

// add counts a connection with n bytes. False: it is one too many.
func (o *orphanBytes) add(n int) bool {
	if o.n.Add(int64(max(n, minOrphan))) <= maxOrphans {
		return true
	}
	o.sub(n)
	return false
}

// sub undoes add.
func (o *orphanBytes) sub(n int) { o.n.Add(-int64(max(n, minOrphan))) }

// flushAfterClose writes rest to the shadow, whose SO_LINGER is 0, sets that to linger, and closes
// it: Close has returned, and TCP delivers what was written before. If the shadow takes nothing for
// patience, or the process ends, the connection is reset. TCP_USER_TIMEOUT is the kernel's to keep.
func (c *Conn) flushAfterClose(rest []byte, linger int, patience time.Duration) {
	defer c.shadow.Close() // there is nobody to tell
	due := past            // so the first Write waits only for a raw one to end
	for last := time.Now(); len(rest) > 0; due = last.Add(patience) {
		_ = c.shadow.SetWriteDeadline(due) // Write tells of an error
		n, err := c.shadow.Write(rest[:min(len(rest), shadowChunk)])
		rest = rest[n:]
		switch {
		case n > 0:
			last = time.Now()
		case !isTimeout(err) || time.Since(last) >= patience: // else it is a leftover wake-up
			return
		}
	}
	c.lingerShadow(linger)
}

// writeNow writes to the shadow what it takes without waiting. errFull: nothing.
func (c *Conn) writeNow(p []byte) (n int, err error) {
	if c.raw == nil {
		return 0, errFull
	}
	ctlErr := c.raw.Control(func(fd uintptr) {
		for {
			if n, err = unix.SendmsgN(int(fd), p, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err != unix.EINTR {
				break
			}
		}
	})
	switch {
	case ctlErr != nil:
		return 0, ctlErr
	case err == unix.EAGAIN:
		return 0, errFull
	case err != nil:
		return 0, err
	}
	c.count.Add(segment.SentShadow, uint64(n))
	return n, nil
}

// shadowHas is how many bytes the shadow has that nobody has read.
func (c *Conn) shadowHas() (n int, err error) {
	if c.raw == nil {
		return 0, errors.ErrUnsupported
	}
	if ctlErr := c.raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }); ctlErr != nil {
		err = ctlErr
	}
	return n, err
}
