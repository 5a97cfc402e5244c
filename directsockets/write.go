package directsockets

import (
	"errors"
	"os"
	"syscall"
	"time"

	"exnet/directsockets/segment"
	"exnet/internal/shm"
)

// txPhase is where the outbound direction puts its bytes.
//
//	shadow ──PROMOTE──▶ direct ──┬─ DEMOTE, peer gone ────────▶ back ─▶ over
//	 │                           ├─ peer fell back ─▶ returning ─────▲         ▲
//	 │                           │                   └─ ended ───────────┤
//	 │  ◀─ consumed ─ paused ◀───┼─ PAUSE                                │
//	 │                           └─ SHUTDOWN ────────────────────────────┘
//	 └─ demoted before it was promoted ────────────────────────▲
//
// states.go has every step. The C library has the same states by the same names (SPEC.md,
// section 9).
type txPhase uint8

const (
	txShadow    txPhase = iota // the shadow
	txPaused                   // the shadow; it may be promoted when PAUSE is consumed
	txDirect                   // the segment
	txReturning                // the shadow, after what the peer did not take from the segment
	txBack                     // the shadow, for good
	txOver                     // txHalf.err, for good: nothing is sent any more
)

// txHalf is the outbound direction.
type txHalf struct {
	half

	// Of the lock holder.
	phase  txPhase
	shadow uint64 // bytes that the shadow took before the segment
	err    error  // of txOver

	// What the program or the switch wants, and the queue has had no room for. They are no states:
	// the peer knows nothing of them, and may have the direction return meanwhile.
	shutdown bool // CloseWrite has still to be done, on the shadow at least
	demote   bool // DEMOTE has still to be sent, and nothing else on the segment,
	pause    bool // or PAUSE
	finisher bool // a goroutine sees to those, and to returning

	guard  guard
	taking bool // of one wait: it is for the peer to take message ticket, not for room
	ticket uint64
}

// shadowChunk is how much goes to the shadow at a time, before another look whether the segment can
// be used.
const shadowChunk = 256 << 10

// Write implements net.Conn. It borrows p until return.
func (c *Conn) Write(p []byte) (int, error) {
	t := &c.tx
	n := 0
	if t.try() {
		if t.direct && t.flags.Load() == 0 {
			if len(p) > sinkLeast && t.end.SinkUnknown() {
				c.learnRegion()
			}
			var err error
			if n, err = t.end.Send(p); n == len(p) && err == nil {
				if t.free() {
					c.leaveTX()
				}
				return n, nil
			}
		}
	} else if !t.takeSlow(false, false) {
		return c.writeAway(p)
	}
	n, err := c.writeLocked(p, n)
	c.releaseTX()
	if err == errAway {
		m, err := c.writeAway(p[n:])
		return n + m, err
	}
	return n, c.toldWrite(err)
}

// releaseTX gives the lock back.
func (c *Conn) releaseTX() {
	if c.tx.free() {
		c.leaveTX()
	}
}

// sinkLeast is the size from which on writes may go to a sink of the peer's.
const sinkLeast = 480

// learnRegion makes the inbound direction learn of a region in which the peer has a sink. A reader,
// if there is one, does so itself.
func (c *Conn) learnRegion() {
	r := &c.rx
	if !r.try() {
		return
	}
	if r.phase == rxDirect {
		_, _ = r.end.Next() // what it says it says again
	}
	if r.free() {
		c.leaveRX()
	}
}

// leaveTX does what others want, after free.
func (c *Conn) leaveTX() {
	t := &c.tx
	for t.want.Load()&wantWork != 0 && t.try() {
		c.workTX()
		if !t.free() {
			return
		}
	}
	if t.want.Load()&wantLock != 0 {
		t.wakeNext()
	}
}

// writeLocked is Write for the lock holder, after n bytes of p have been sent.
func (c *Conn) writeLocked(p []byte, n int) (int, error) {
	t := &c.tx
	for {
		if err := c.stopError(&t.half, "write"); err != nil {
			return n, err
		}
		if t.want.Load()&wantWork != 0 {
			c.workTX()
		}
		if t.flags.Load()&flagShut != 0 {
			return n, c.opError("write", os.NewSyscallError("write", syscall.EPIPE))
		}
		if n == len(p) {
			return n, nil
		}
		m, err := c.writeSome(p[n:])
		if n += m; n == len(p) { // what ends calls since does not end this one
			return n, nil
		}
		if err != nil && err != errWoken {
			return n, err
		}
	}
}

// writeSome writes a part of p, or takes the direction to where it can.
func (c *Conn) writeSome(p []byte) (int, error) {
	t := &c.tx
	switch t.phase {
	case txShadow, txPaused:
		c.startSetup(1)
		if c.promote() {
			return 0, nil
		}
		n, err := c.writeShadow(p[:min(len(p), shadowChunk)])
		if n > 0 {
			t.shadow += uint64(n)
			c.sends.Add(1)
		}
		return n, err
	case txDirect:
		if t.demote {
			if c.sendDemote(); t.demote { // no room in the queue
				c.sleepOnBell(&t.half, t.endFlags())
			}
			return 0, nil
		}
		n, err := t.end.Send(p)
		if err == segment.ErrAgain {
			if c.spin(&t.half, false, t.endFlags()) {
				return 0, nil
			}
			// Before it sleeps for want of room in the ring, the queue is filled.
			n, err = t.end.SendVELO(p)
		}
		switch err {
		case nil:
		case segment.ErrAgain:
			c.sleepOnBell(&t.half, t.endFlags())
		default:
			c.leaveDirectTX(err)
		}
		return n, nil
	case txReturning:
		return 0, c.returnToTCP()
	case txBack:
		return c.writeShadow(p)
	default:
		return 0, t.err
	}
}

// writeShadow writes to the shadow. errWoken: look at everything again.
func (c *Conn) writeShadow(p []byte) (int, error) {
	t := &c.tx
	if t.woken.Load() {
		c.clearWake(&t.half)
		return 0, errWoken // before woken was cleared the caller has looked at what may have changed
	}
	n, err := c.shadow.Write(p)
	c.count.Add(segment.SentShadow, uint64(n))
	return n, c.shadowError(&t.half, "write", err)
}

// promote moves the outbound direction to the segment, if there is one that the
// peer looks at. It belongs to the lock holder.
func (c *Conn) promote() bool {
	t := &c.tx
	e := c.end.Load()
	if t.phase > txPaused || e == nil || !e.Attached() {
		return false
	}
	if c.lifeIs() == lifeOffered {
		c.onLife(lifeAttached)
	}
	var err error
	if t.phase == txPaused {
		if err = e.Resumed(); err == nil {
			c.onTX(txResume)
		}
	}
	if err == nil {
		err = e.Promote(t.shadow)
	}
	switch {
	case err == nil:
		t.end = e
		c.onTX(txPromote)
		t.plain.Store(shm.Expedited())
		c.setMode(&t.half, ModeDirect)
		return true
	case err == segment.ErrAgain:
		return false
	case err == segment.ErrCut && e.MayPause():
		c.setReason(ReasonSwitchedOff)
		if e.PromoteToPause(t.shadow) != nil {
			return false
		}
		t.end, t.pause = e, true
		c.onTX(txPromote)
		c.demoteTX()
	case errors.Is(err, segment.ErrCorrupt):
		t.end = e
		c.leaveDirectTX(err)
	default: // fallen back or gone before it began
		t.end = e
		if err == segment.ErrFellBack {
			c.fallenBackSeen.Store(true)
			_ = e.ReturnToTCP(nil) // there is nothing to write; a breach is found by the next call
			c.onTX(txFallenBack)
		} else {
			c.onTX(txLeave)
		}
		c.setMode(&t.half, ModeDemoted)
	}
	return true
}

// leaveDirectTX takes the outbound direction on when Send has said that the segment
// takes no more.
func (c *Conn) leaveDirectTX(err error) {
	t := &c.tx
	t.direct, t.demote = false, false
	switch {
	case err == segment.ErrCut:
		t.pause = t.end.MayPause()
		c.setReason(whyBack(t.end.Back()))
		c.demoteTX()
		return
	case errors.Is(err, segment.ErrCorrupt):
		c.endOnBreach()
	case t.end.PeerFallenBack(): // also if it has gone since
		c.fallenBackSeen.Store(true)
		c.setReason(ReasonPeerDemoted)
		c.beginReturning()
	case errors.Is(err, segment.ErrReset):
		c.onTX(txReset)
		t.err = c.resetError("write", t.end)
	default: // the shadow answers
		c.onTX(txGone)
	}
	c.setMode(&t.half, ModeDemoted)
}

// workTX does what others have left to the lock holder. It does not wait:
// what has to is left to a goroutine.
func (c *Conn) workTX() {
	t := &c.tx
	if t.takeWork(wantInstall) || t.phase <= txPaused && t.want.Load()&wantReturn != 0 {
		_ = c.promote() // the peer may look at the segment now, or never
		if t.phase == txDirect && !t.demote && t.end.Relayed() && t.end.Back() == segment.BackSwitch && t.end.MayPause() {
			c.leaveDirectTX(segment.ErrCut) // also of a program that only reads
		}
	}
	if t.takeWork(wantFallBack) {
		t.pause = false
		c.demoteTX()
	}
	if t.takeWork(wantReturn) && t.phase == txDirect && t.end.PeerFallenBack() {
		c.leaveDirectTX(segment.ErrFellBack)
	}
	if t.takeWork(wantShutdown) {
		c.shutdownTX()
	}
	if t.takeWork(wantHand) {
		t.hand.Store(uint32(c.handTX(time.Duration(c.waited.Load()))))
	}
	if (t.phase == txReturning || t.demote || t.shutdown) && !t.finisher && t.flags.Load()&flagClosed == 0 {
		t.finisher = true
		go c.finishOutbound()
	}
}

// demoteTX continues the outbound direction on the shadow.
func (c *Conn) demoteTX() {
	t := &c.tx
	switch t.phase {
	case txShadow, txPaused:
		c.onTX(txLeave)
	case txDirect:
		t.direct, t.demote = false, true
		c.sendDemote()
	}
	c.setMode(&t.half, ModeDemoted)
}

// sendDemote sends DEMOTE, or PAUSE, if there is room for it.
func (c *Conn) sendDemote() {
	t := &c.tx
	send, sent := t.end.Demote, txDemote
	if t.pause {
		send, sent = t.end.Pause, txPause
	}
	switch err := send(); err {
	case segment.ErrAgain:
	case nil:
		t.demote = false
		c.onTX(sent)
	default:
		c.leaveDirectTX(err)
	}
}

// shutdownTX ends the outbound direction: the segment's, if it is there, and the
// shadow's.
func (c *Conn) shutdownTX() {
	t := &c.tx
	t.shutdown = true
	if t.phase == txDirect {
		switch err := t.end.Shutdown(); err {
		case segment.ErrAgain:
			return
		case nil:
			t.demote = false
			c.onTX(txShutdown)
			t.err = c.opError("write", os.NewSyscallError("write", syscall.EPIPE))
		default:
			c.leaveDirectTX(err)
		}
	}
	if t.phase == txReturning && !c.cutReturning() {
		return
	}
	t.shutdown = false
	if t.phase <= txPaused { // a direction that has ended is not promoted
		c.onTX(txLeave)
	}
	if s, ok := c.shadow.(interface{ CloseWrite() error }); ok {
		if err := s.CloseWrite(); c.tcp != nil && err != nil { // it has ended already
			c.mu.Lock()
			c.shutError = err
			c.mu.Unlock()
		}
	}
}

// finishPause is how long finishOutbound leaves the lock to others who want it.
const finishPause = time.Millisecond

// finishOutbound returns to TCP, sends DEMOTE and shuts down as soon as the peer lets it.
func (c *Conn) finishOutbound() {
	t := &c.tx
	for {
		if !t.takeInner() {
			return
		}
		done := t.flags.Load()&flagsGone != 0
		if !done {
			done = c.finishSome()
		}
		if done {
			t.finisher = false
		}
		if t.free() {
			c.leaveTX()
		}
		if done {
			return
		}
		time.Sleep(finishPause)
	}
}

// finishSome does so until it is done, somebody else wants the lock, or nothing can be
// done now. The deadline is that of calls: once it has passed nobody waits here, since a
// call may want the lock at any time, to return.
func (c *Conn) finishSome() (done bool) {
	t := &c.tx
	for {
		c.workTX()
		flags := t.flags.Load()
		if flags&flagsGone != 0 || t.want.Load()&wantLock != 0 {
			return false
		}
		expired := flags&flagExpired != 0
		switch {
		case t.phase == txReturning && expired:
			return false
		case t.phase == txReturning:
			_ = c.returnToTCP() // the next call tells of an error
		case t.demote:
			if c.sendDemote(); t.demote {
				if expired {
					return false
				}
				c.sleepOnBell(&t.half, flagsStop)
			}
		case t.shutdown:
			if c.shutdownTX(); t.shutdown && t.phase == txDirect {
				if expired {
					return false
				}
				c.sleepOnBell(&t.half, flagsStop)
			}
		default:
			return true
		}
	}
}

// whyBack is the reason that a connection gives when it goes back to TCP.
func whyBack(why segment.Back) Reason {
	switch why {
	case segment.BackSwitch:
		return ReasonSwitchedOff
	case segment.BackNetwork:
		return ReasonNetwork
	}
	return ReasonPeerDemoted
}
