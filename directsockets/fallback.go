package directsockets

import (
	"errors"
	"io"
	"net"

	"exnet/directsockets/segment"
)

// The inbound direction falls back to TCP (SPEC.md, 5.5).

// fallBackRX moves the inbound direction to the shadow. The caller holds its lock.
func (c *Conn) fallBackRX() {
	r := &c.rx
	if r.phase == rxShadow {
		c.advanceInbound() // PROMOTE may have come, or the peer may have gone
	}
	switch r.phase {
	case rxTCP:
		c.onRX(rxFallBack)
	case rxShadow, rxCatchUp, rxDirect:
		// An error: the direction ends by itself, and the queue comes first. There is no sink, as
		// ReadBuffer holds the lock while there is one.
		if r.end.FallBack() == nil {
			c.unwatchRX()
			c.onRX(rxFallBack)
		}
	}
	c.setMode(&r.half, ModeDemoted)
}

// decideFallback moves a direction that has fallen back on, if it can. ended says that the shadow
// has ended.
func (c *Conn) decideFallback(ended bool) (decided bool) {
	r := &c.rx
	switch {
	case r.end.PeerReturned():
		from, until, err := r.end.Left()
		if err != nil {
			c.endOnBreach()
			return true
		}
		r.promoted, r.due = from, until
		c.onRX(rxReturned)
	case r.end.Resume(ended):
		c.onRX(rxQueue)
	default:
		return false
	}
	c.unwatchRX()
	return true
}

// readFallenBack reads the shadow after it fell back. What it gives comes after what is left in the
// queue if the peer had ended the direction before it looked.
func (c *Conn) readFallenBack(p []byte) (int, error) {
	r := &c.rx
	if c.decideFallback(false) {
		return 0, nil
	}
	// Something is there: what the peer has said since, or else the shadow decides what it means.
	if !r.watch.armed.Load() && !c.watchRX() && c.decideFallback(false) {
		return 0, nil
	}
	n, err := c.readShadow(p)
	// Bytes after a DEMOTE come with STANDS; after a SHUTDOWN there are none.
	if !c.decideFallback(n == 0 && c.isShadowEnd(err)) {
		return n, err
	}
	switch r.phase {
	case rxReturning:
		return c.noteReturning(n, err)
	case rxShadow:
		at, ok := r.end.PromotedAt()
		if !ok { // it had not been promoted
			return n, err
		}
		r.promoted = at
		c.onRX(rxPromote)
	}
	return c.splitAtPromotion(p, n, err)
}

// readReturning reads the shadow while the peer may still have to write to it what it left in the
// segment.
func (c *Conn) readReturning(p []byte) (int, error) {
	if r := &c.rx; r.shadow >= r.due {
		c.onRX(rxHeld)
		return 0, nil
	}
	n, err := c.readShadow(p)
	return c.noteReturning(n, err)
}

// noteReturning notes what a read of the shadow has brought in the state rxReturning.
func (c *Conn) noteReturning(n int, err error) (int, error) {
	r := &c.rx
	switch {
	case r.shadow >= r.due:
		c.onRX(rxHeld)
	case n > 0 || !c.isShadowEnd(err):
	case r.shadow < r.promoted:
		err = c.cutInbound(err)
	default:
		if r.end.Rest(r.shadow-r.promoted, err != io.EOF) != nil {
			c.endOnBreach()
			return 0, nil
		}
		r.surplusErr = err
		c.onRX(rxEnded)
		return 0, nil
	}
	return n, err
}

// isShadowEnd reports whether an error of the shadow says that it has ended.
func (c *Conn) isShadowEnd(err error) bool {
	byCloseRead := err == io.EOF && c.rx.flags.Load()&flagShut != 0
	return err != nil && err != errWoken && !errors.Is(err, net.ErrClosed) && !byCloseRead
}

// readRest reads from the segment what the shadow did not give before it ended.
func (c *Conn) readRest(p []byte) (int, error) {
	r := &c.rx
	n, err := r.end.RecvRest(p)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF:
		c.onRX(rxRead)
	case errors.Is(err, segment.ErrReset):
		c.endInbound(r.surplusErr)
	default:
		c.endOnBreach()
	}
	return 0, nil
}

// hasUnread reports whether bytes have come that the program has not read, so that to close resets
// the connection, and the peer shall not read an end of file from the segment before that. The
// shadow's the kernel looks at itself.
func (c *Conn) hasUnread() bool {
	r := &c.rx
	switch r.phase {
	case rxShadow, rxCatchUp:
		r.end.PromotedAt() // PROMOTE may have come, and bytes after it, and nobody has looked
		n, err := c.shadowHas()
		return len(r.surplus) > 0 || r.end.Readable() > 0 || c.tx.phase == txDirect && err == nil && n > 0
	case rxDirect, rxFallenBack:
		return r.end.Readable() > 0
	case rxReturning:
		return r.shadow < r.due
	case rxRest:
		return true
	}
	return len(r.surplus) > 0
}
