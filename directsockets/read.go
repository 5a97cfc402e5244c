package directsockets

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"exnet/directsockets/segment"
	"exnet/internal/shm"
)

// rxPhase is where the inbound direction takes its bytes from.
//
//	tcp ──▶ shadow ──▶ catch-up ──▶ direct ──┬─ SHUTDOWN ─▶ over
//	 ▲  └─────┘ │         │            ▲      ├─ DEMOTE, peer gone ─▶ back
//	 └─ refused │         │     resumed │      ▼
//	            └─────────┴─────────── fallen back ──▶ returning ──▶ back ─▶ over
//	                                                 └──▶ rest ──▲
//
// states.go has every step. The C library has the same states by the same names (SPEC.md,
// section 9).
type rxPhase uint8

const (
	rxTCP        rxPhase = iota // the shadow; there is no segment
	rxShadow                    // the shadow, until PROMOTE comes
	rxCatchUp                   // the shadow, up to what PROMOTE said
	rxDirect                    // the segment
	rxFallenBack                // the shadow, unless the peer had ended the direction before it saw FALLEN_BACK
	rxReturning                 // the shadow; the peer has still to write some of what it left in the segment
	rxRest                      // the segment: what the shadow did not give before it ended
	rxBack                      // the shadow, for good
	rxOver                      // rxHalf.err, for good
)

// rxHalf is the inbound direction.
type rxHalf struct {
	half

	// Of the lock holder.
	phase      rxPhase
	resumed    rxPhase // what phase was before rxFallenBack
	shadow     uint64  // bytes that the shadow gave and that belong before the segment's
	promoted   uint64  // bytes that it gives before those of the segment
	due        uint64  // in rxReturning: bytes that it gives before all that the peer left has come
	surplus    []byte  // what the shadow gave too early: it comes after the segment's
	surplusErr error   // and then this
	err        error   // of rxOver

	had   uint64        // what the shadow had given or held when handRX last saw more
	hadAt time.Duration // and when that was, since handOver began

	watch watch

	shadowWatched bool         // or it cannot be: asked for once, in whatever state the direction is
	shadowFD      atomic.Int32 // the descriptor of the shadow that the watcher has, plus 1
}

// errWoken says that a call of the shadow was ended by wakeHalf.
var errWoken = errors.New("directsockets: woken")

// Read implements net.Conn. It borrows p until return.
func (c *Conn) Read(p []byte) (int, error) {
	r := &c.rx
	if r.try() {
		if r.direct && r.flags.Load() == 0 {
			n, err := r.end.Recv(p)
			if err == segment.ErrAgain && r.spin.isHot() && !shm.Crowded() && r.end.SpinRX(hotLooks) {
				n, err = r.end.Recv(p)
			}
			if err == nil {
				if r.free() {
					c.leaveRX()
				}
				return n, nil
			}
		}
	} else if !r.takeSlow(false, false) {
		return c.readAway(p)
	}
	var n int
	var err error
	if len(p) > 0 {
		n, err = c.readLocked(p)
	} else if r.flags.Load()&flagClosed != 0 { // as package net: no deadline holds for nothing
		err = c.opError("read", net.ErrClosed)
	}
	c.releaseRX()
	if err == errAway {
		return c.readAway(p)
	}
	return n, c.toldRead(err)
}

// releaseRX gives the lock back.
func (c *Conn) releaseRX() {
	if c.rx.free() {
		c.leaveRX()
	}
}

// leaveRX does what others want, after free.
func (c *Conn) leaveRX() {
	r := &c.rx
	for r.want.Load()&wantWork != 0 && r.try() {
		c.workRX()
		if !r.free() {
			return
		}
	}
	if r.want.Load()&wantLock != 0 {
		r.wakeNext()
	}
}

// readLocked is Read for the lock holder.
func (c *Conn) readLocked(p []byte) (int, error) {
	r := &c.rx
	for {
		if err := c.stopError(&r.half, "read"); err != nil {
			return 0, err
		}
		if r.want.Load()&wantWork != 0 {
			c.workRX()
		}
		if len(p) == 0 {
			return 0, nil
		}
		var n int
		var err error
		switch r.phase {
		case rxTCP:
			n, err = c.readTCP(p)
		case rxShadow:
			n, err = c.readBoth(p)
		case rxCatchUp:
			n, err = c.readDrain(p)
		case rxDirect:
			n, err = c.readDirect(p)
		case rxFallenBack:
			n, err = c.readFallenBack(p)
		case rxReturning:
			n, err = c.readReturning(p)
		case rxRest:
			n, err = c.readRest(p)
		case rxBack:
			n, err = c.readBack(p)
		case rxOver:
			return 0, r.err
		}
		if n > 0 || err != nil && err != errWoken {
			return n, err
		}
	}
}

// readShadow reads the shadow. errWoken: look at everything again.
func (c *Conn) readShadow(p []byte) (int, error) {
	r := &c.rx
	if r.woken.Load() {
		// Whatever the caller has looked at, it looks again: the other direction's sleeper
		// may have taken an arming of watchRX back, which leaves no work behind.
		c.clearWake(&r.half)
		return 0, errWoken
	}
	if n := copy(p, r.surplus); n > 0 {
		if r.surplus = r.surplus[n:]; len(r.surplus) == 0 {
			r.surplus = nil
		}
		r.shadow += uint64(n)
		return n, nil
	}
	if r.surplusErr != nil {
		return 0, r.surplusErr
	}
	n, err := c.shadow.Read(p)
	r.shadow += uint64(n)
	c.count.Add(segment.ReceivedShadow, uint64(n))
	return n, c.shadowError(&r.half, "read", err)
}

// shadowError returns the error of a call on the shadow as the program is to see it.
func (c *Conn) shadowError(h *half, op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if h.woken.Load() && isTimeout(err) {
		return errWoken
	}
	if c.tcp != nil {
		return err
	}
	return c.foreignError(op, err)
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout() && !errors.Is(err, syscall.ETIMEDOUT)
}

func (c *Conn) readTCP(p []byte) (int, error) {
	c.startSetup(0)
	n, err := c.readShadow(p)
	if n > 0 {
		c.startSetup(0)
	}
	return n, err
}

// readBoth reads the shadow while the segment is watched.
func (c *Conn) readBoth(p []byte) (int, error) {
	r := &c.rx
	if !c.advanceInbound() {
		return 0, nil
	}
	n, err := c.readShadow(p)
	at, ok := r.end.PromotedAt()
	if ok {
		r.promoted = at
		c.onRX(rxPromote)
		c.unwatchRX()
		return c.splitAtPromotion(p, n, err)
	}
	if err != nil && err != errWoken {
		c.endInbound(err)
	}
	return n, err
}

// splitAtPromotion is for what a read of the shadow brought, when it has turned out that the
// segment comes after r.promoted bytes of the shadow: what is beyond those was sent
// after a DEMOTE, and is kept until the segment has been read up to there.
func (c *Conn) splitAtPromotion(p []byte, n int, err error) (int, error) {
	r := &c.rx
	if r.shadow < r.promoted {
		return n, err
	}
	over := r.shadow - r.promoted
	if over > uint64(n) {
		c.endOnBreach()
		return 0, nil
	}
	n -= int(over)
	r.surplus = append(r.surplus, p[n:n+int(over)]...)
	if err != errWoken {
		r.surplusErr = err
	}
	r.shadow = r.promoted
	return n, nil
}

// advanceInbound moves the inbound direction on from rxShadow as far as it can, and reports whether
// the shadow is to be read now; then the segment is watched. The caller holds the lock of rx.
func (c *Conn) advanceInbound() bool {
	r := &c.rx
	for {
		at, ok, err := readPromotion(r.end)
		if ok {
			if at < r.shadow {
				c.endOnBreach()
				return false
			}
			r.promoted = at
			c.onRX(rxPromote)
			c.unwatchRX()
			return false
		}
		switch {
		case err == nil:
			c.heedSwitch()
		case errors.Is(err, segment.ErrCorrupt):
			c.endOnBreach()
			return false
		default:
			c.unwatchRX()
			c.onOrphaned()
			return false
		}
		if r.watch.armed.Load() || c.watchRX() {
			return true
		}
		if r.loadSignals().wanted(flagsStop) {
			return false
		}
	}
}

// readPromotion says whether the peer has promoted its direction, and if not, whether it
// has gone. That is looked at first: what it did before it went is seen then.
func readPromotion(e interface {
	Err() error
	PromotedAt() (tcpBytes uint64, ok bool)
}) (at uint64, ok bool, err error) {
	err = e.Err()
	at, ok = e.PromotedAt()
	return at, ok, err
}

// readDrain reads what the shadow still has to give before the segment.
func (c *Conn) readDrain(p []byte) (int, error) {
	r := &c.rx
	left := r.promoted - r.shadow
	if left == 0 {
		c.onRX(rxReached)
		r.plain.Store(shm.Expedited())
		c.setMode(&r.half, ModeDirect)
		return 0, nil
	}
	if uint64(len(p)) > left {
		p = p[:left]
	}
	n, err := c.readShadow(p)
	if n == 0 && err != nil && err != errWoken { // it said that there is more
		return 0, c.cutInbound(err)
	}
	return n, err
}

// cutInbound ends the inbound direction, whose shadow has ended with err before the bytes that come
// before those of the segment.
func (c *Conn) cutInbound(err error) error {
	if err == io.EOF && c.rx.flags.Load()&flagShut == 0 {
		err = c.opError("read", os.NewSyscallError("read", syscall.ECONNRESET))
	}
	c.onRX(rxCut)
	c.endInbound(err)
	return err
}

// readDirect receives from the segment, and waits for it.
func (c *Conn) readDirect(p []byte) (int, error) {
	r := &c.rx
	n, err := r.end.Recv(p)
	if err == segment.ErrAgain {
		if ended := r.surplusErr; ended != nil && ended != io.EOF { // the shadow has failed, and the peer does not answer
			c.endInbound(ended)
			return 0, ended
		}
		return 0, c.awaitRX()
	}
	if err != nil {
		return 0, c.leaveDirect(err)
	}
	return n, nil
}

// leaveDirect takes the inbound direction on when Recv has said that the segment
// has no more. A nil error: read on.
func (c *Conn) leaveDirect(err error) error {
	switch {
	case err == io.EOF:
		c.onRX(rxShutdown)
		c.endInbound(io.EOF)
		c.heedFallBack()
		return nil
	case errors.Is(err, segment.ErrDemoted):
		c.onRX(rxDemote)
		c.setReason(whyBack(c.rx.end.Back()))
	case errors.Is(err, segment.ErrPaused):
		c.onRX(rxPause)
		c.setReason(whyBack(c.rx.end.Back()))
	case errors.Is(err, segment.ErrReset):
		c.onRX(rxReset)
		c.endInbound(c.resetError("read", c.rx.end))
	case errors.Is(err, segment.ErrClosed): // without SHUTDOWN: the shadow says what follows
		c.onRX(rxGone)
	default:
		c.endOnBreach()
		return nil
	}
	c.setMode(&c.rx.half, ModeDemoted)
	c.heedFallBack()
	return nil
}

// heedSwitch has the outbound direction pause, of a program that only reads, too, if the connection
// is switched off.
func (c *Conn) heedSwitch() {
	if e := c.rx.end; e.Back() == segment.BackSwitch && e.Relayed() && e.MayPause() {
		c.askTX(wantInstall, false)
	}
}

// heedFallBack has the outbound direction returned to TCP if the peer has fallen back.
func (c *Conn) heedFallBack() {
	if !c.fallenBackSeen.Load() && c.rx.end.PeerFallenBack() && c.fallenBackSeen.CompareAndSwap(false, true) {
		c.askTX(wantReturn, true)
	}
}

// readBack reads the shadow for good.
func (c *Conn) readBack(p []byte) (int, error) {
	n, err := c.readShadow(p)
	if n == 0 && err != nil && err == c.rx.surplusErr {
		c.endInbound(err)
	}
	return n, err
}
