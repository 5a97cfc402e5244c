package directsockets

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"exnet/directsockets/segment"
)

// The program gets the shadow's descriptor, on which every byte shall be that it has not read, and
// those that follow (SPEC.md, 5.5).

const (
	// silence is how long a peer may take that does not look at FALLEN_BACK.
	silence = 20 * time.Millisecond
	// returning is how long one may take that does, and stall how long without progress: the
	// shadow may not have as much room.
	returning = time.Second
	stall     = 100 * time.Millisecond
	// handPause is how long handOver waits between two looks, and handLate how much of the time
	// between two of them counts: on a busy machine the peer is as late as this process.
	handPause = 500 * time.Microsecond
	handLate  = 4 * handPause
)

// hand says whether the shadow can be handed over.
type hand uint32

const (
	handLater hand = iota // look again
	handHeld              // the shadow has all
	handNever             // bytes are in the segment, and stay there
)

// handRX takes the inbound direction to the shadow so that nothing stays in the segment. waited is
// for how long that has been tried. The caller holds its lock.
func (c *Conn) handRX(waited time.Duration) hand {
	r := &c.rx
	if r.phase == rxShadow {
		c.advanceInbound() // PROMOTE may have come, or the peer may have gone
	}
	if r.phase == rxDirect {
		if _, err := r.end.Next(); err != nil && err != segment.ErrAgain {
			_ = c.leaveDirect(err) // the end of the direction comes next
		}
	}
	if r.phase != rxDirect && r.phase != rxOver && (len(r.surplus) > 0 || r.surplusErr != nil) {
		return handNever
	}
	if direct := r.phase == rxCatchUp || r.phase == rxDirect; direct || r.phase == rxTCP || r.phase == rxShadow {
		if direct && r.end.Readable() > 0 && (r.end.Ending() || !r.end.Hears()) {
			if r.end.Ending() || waited > silence {
				return handNever
			}
			return handLater
		}
		if c.fallBackRX(); r.phase == rxCatchUp || r.phase == rxDirect {
			return handNever
		}
	}
	if r.phase == rxFallenBack {
		c.decideFallback(false)
	}
	h := c.handFallenBack(waited)
	if h == handLater && waited > returning {
		return handNever
	}
	return h
}

// handFallenBack is handRX, where the direction has fallen back, or is on the shadow.
func (c *Conn) handFallenBack(waited time.Duration) hand {
	switch r := &c.rx; r.phase {
	case rxFallenBack:
		if r.end.Readable() == 0 && waited > silence {
			c.unwatchRX()
			c.onRX(rxHeld)
			return handHeld
		}
		return handLater
	case rxReturning:
		return c.handReturning(waited)
	case rxBack, rxOver:
		return handHeld
	}
	return handNever
}

// handReturning is handRX, where the sender repeats on the shadow what was in the segment.
func (c *Conn) handReturning(waited time.Duration) hand {
	r := &c.rx
	n, err := c.shadowHas()
	switch has := r.shadow + uint64(n); {
	case err != nil:
		return handNever
	case has >= r.due:
		c.onRX(rxHeld)
		return handHeld
	case has != r.had:
		r.had, r.hadAt = has, waited
	case waited-r.hadAt > stall:
		return handNever
	}
	return handLater
}

// handTX is handRX for the outbound direction.
func (c *Conn) handTX(waited time.Duration) hand {
	switch t := &c.tx; {
	case t.phase != txReturning:
		return handHeld
	case waited > returning:
		return handNever
	}
	return handLater
}

// handOver has the shadow's descriptor be one that can be handed over. substitute: it cannot, and
// this is in its place.
func (c *Conn) handOver(why Reason) (*substitute, error) {
	c.handing.Lock()
	defer c.handing.Unlock()
	if s := c.sub.Load(); s != nil {
		return s, nil
	}
	c.stayOnShadow(why)
	var waited time.Duration
	for last := time.Now(); ; time.Sleep(handPause) {
		c.mu.Lock()
		closed := c.closed
		c.mu.Unlock()
		if closed {
			return nil, net.ErrClosed
		}
		now := time.Now()
		waited, last = waited+min(now.Sub(last), handLate), now
		c.waited.Store(int64(waited))
		c.askRX(wantHand)
		rx, tx := hand(c.rx.hand.Load()), handLater
		if rx == handHeld { // not before: a peer that reads DEMOTE does not look at FALLEN_BACK then
			c.askTX(wantFallBack|wantHand, true)
			tx = hand(c.tx.hand.Load())
		}
		switch {
		case rx == handNever || tx == handNever || waited > 2*returning && rx != handHeld:
			return c.makeSubstitute()
		case rx == handHeld && tx == handHeld,
			// Its holder lends it to WriteTo or ReadFrom, which goes on with what there is.
			waited > silence && (c.rx.word.Load() == lockLent || c.tx.word.Load() == lockLent):
			c.setReason(why)
			return nil, nil
		}
	}
}

// File returns a duplicate of the shadow's descriptor, as net.TCPConn's does. The connection is
// demoted first: whoever has only a descriptor can only use TCP. Every byte that has not been read
// can be read there. If the peer does not write to the shadow what is in memory, as it has ended or
// does not look, the file is one end of a socket pair instead, and this process passes on what
// comes and goes as long as it runs.
func (c *Conn) File() (*os.File, error) {
	if c.tcp == nil {
		return nil, c.opError("file", errors.ErrUnsupported)
	}
	s, err := c.handOver(ReasonProgram)
	switch {
	case err != nil:
		return nil, c.opError("file", err)
	case s != nil:
		f, err := s.dupFile("tcp:" + c.local.String() + "->" + c.remote.String())
		if err != nil {
			return nil, c.opError("file", err)
		}
		return f, nil
	}
	return c.tcp.File()
}

// SyscallConn gives access to the shadow's descriptor, for options. Its Read and
// Write demote the connection first, and have the descriptor be what File returns.
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

func (r rawConn) Control(f func(fd uintptr)) error {
	err := r.RawConn.Control(f)
	if e := r.c.end.Load(); e != nil { // f may have set an option
		r.c.tellNode(e)
	}
	return err
}

func (r rawConn) Read(f func(fd uintptr) (done bool)) error {
	c := r.c
	if s, err := c.handOver(ReasonUnsupported); err == nil && s != nil { // closed: the call says so
		return c.awayError("raw-read", s.raw.Read(f))
	}
	return c.rawCall(&c.rx.half, "raw-read", func() error { return r.RawConn.Read(f) })
}

func (r rawConn) Write(f func(fd uintptr) (done bool)) error {
	c := r.c
	c.stayOnShadow(ReasonUnsupported)
	c.waited.Store(0)
	c.askRX(wantHand)
	c.askTX(wantFallBack, true)
	if c.tx.take() { // closed: the call says so
		for c.tx.phase == txReturning && c.stopError(&c.tx.half, "") == nil {
			_ = c.returnToTCP() // the call tells of an error
		}
		c.releaseTX()
	}
	if s := c.sub.Load(); s != nil {
		return c.awayError("raw-write", s.raw.Write(f))
	}
	return c.rawCall(&c.tx.half, "raw-write", func() error { return r.RawConn.Write(f) })
}

// rawCall calls call, which waits on the shadow for the direction of h, on TCP alone. If the
// program's deadline has not passed, a timeout is a leftover wake-up.
func (c *Conn) rawCall(h *half, op string, call func() error) error {
	for {
		switch f := h.flags.Load(); {
		case f&flagClosed != 0: // the shadow may outlive Close
			return c.opError(op, net.ErrClosed)
		case f&flagExpired != 0:
			return c.opError(op, os.ErrDeadlineExceeded)
		}
		err := call()
		if err == nil || !isTimeout(err) {
			return err
		}
		if h.try() {
			c.clearWake(h)
			if h == &c.rx.half {
				c.releaseRX()
			} else {
				c.releaseTX()
			}
		}
		time.Sleep(demotePause)
	}
}
