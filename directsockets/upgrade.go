package directsockets

import (
	"errors"
	"math"
	"net"
	"sync/atomic"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/directsockets/segment"

	"golang.org/x/sys/unix"
)

// Times between offers that nobody claimed, and how many there are.
const (
	firstRetry = time.Second
	maxTries   = 5
)

// upgrade is a segment that waits for the lock of rx.
type upgrade struct {
	end      *segment.End
	nonce    [16]byte
	peerBell int // side 1's doorbell, to be handed over; -1: this is side 1
}

// releaseUnused releases a segment that was never used.
func (u *upgrade) releaseUnused() {
	if u.peerBell >= 0 {
		_ = unix.Close(u.peerBell)
	}
	if u.end.Side() == segment.Client {
		u.end.Withdraw()
	}
	_ = u.end.Close(false) // the descriptor's error concerns nobody
	u.end.Segment().Retire()
}

// startSetup is called when bytes are about to move on the shadow, sends of them by a send: it
// starts the set-up of a segment, without waiting for it.
func (c *Conn) startSetup(sends int) {
	if c.lifeIs() != lifeEarly {
		return
	}
	if c.side == segment.Server {
		c.reannounceListener()
		word, may := c.broker.MayHaveOffer(c.bucket, c.none.Load())
		if may && c.onLife(lifeClaim) {
			c.claimSegment(word)
		}
		return
	}
	if !c.worthOffering(sends) {
		return
	}
	if !c.broker.Listener(c.key.Server.Port()) {
		if c.broker.Connected() {
			c.setReason(ReasonNoListener)
		} else {
			c.setReason(Reason(c.broker.Absent()))
		}
		return
	}
	if at := c.retry.Load(); at != 0 && time.Now().UnixNano() < at {
		return
	}
	if c.onLife(lifeMake) {
		go c.prepareOffer()
	}
}

// worthOffering reports whether a client that is about to send so often is to offer a segment.
func (c *Conn) worthOffering(sends int) bool {
	steps := 0
	if !c.cfg.fixed {
		steps = c.broker.Habit().Steps()
	}
	return c.cfg.Eager || int(c.sends.Load())+sends >= c.cfg.UpgradeSends<<steps ||
		c.count[segment.SentShadow].Load()+c.count[segment.ReceivedShadow].Load() >= uint64(c.cfg.UpgradeBytes)<<steps
}

// learnHabit has those to come learn from the end of a client that had a segment.
func (c *Conn) learnHabit() {
	n := func(word int) uint64 { return c.count[word].Load() }
	c.broker.Habit().Ended(uint64(c.sends.Load())+n(segment.SentVELOLast)+n(segment.SentRMAInfo),
		n(segment.SentDirect)+n(segment.ReceivedDirect)+n(segment.SentShadow)+n(segment.ReceivedShadow))
}

// settlePause is how long awaitSettled waits between two looks.
const settlePause = 100 * time.Microsecond

// awaitSettled waits until the connection has a segment that both ends look at, or will have
// none, and no longer than limit.
func (c *Conn) awaitSettled(limit time.Duration) {
	if limit <= 0 {
		return
	}
	for end := time.Now().Add(limit); c.lifeIs() != lifePlain && time.Now().Before(end); time.Sleep(settlePause) {
		if e := c.end.Load(); e != nil && (c.side == segment.Server || e.Attached()) {
			return
		}
		c.startSetup(0)
	}
}

// releaseListener releases the closed listener that accepted the connection.
func (c *Conn) releaseListener() {
	if c.from.Load() == nil { // a client's, most often
		return
	}
	if l := c.from.Swap(nil); l != nil {
		l.endAnnouncement()
	}
}

// stayOnShadow keeps the connection on the shadow for good.
func (c *Conn) stayOnShadow(why Reason) {
	c.onLife(lifeGiveUp)
	c.releaseListener()
	c.setReason(why)
}

// scheduleRetry schedules another offer or claim.
func (c *Conn) scheduleRetry(why Reason) {
	c.setReason(why)
	c.mu.Lock()
	switch why {
	case ReasonNoBroker, ReasonVersion, ReasonSilent, ReasonUnreachable, ReasonSwitchedOff: // these say nothing of this connection
	default:
		c.tries++
	}
	tries := max(int(c.tries), 1)
	c.mu.Unlock()
	if tries > maxTries {
		c.onLife(lifeGiveUp)
		c.releaseListener()
		return
	}
	c.retry.Store(time.Now().Add(firstRetry << (tries - 1)).UnixNano())
	c.onLife(lifeNone)
}

// socketProof is the proof that the broker wants.
func (c *Conn) socketProof() client.Socket {
	return client.Socket{Conn: c.raw, Local: addrPort(c.LocalAddr()), Remote: addrPort(c.RemoteAddr())}
}

// prepareOffer makes the segment that side 0 offers.
func (c *Conn) prepareOffer() {
	u, err := c.createSegment()
	if err != nil {
		c.scheduleRetry(ReasonNoMemory)
		return
	}
	c.installSegment(u)
}

func (c *Conn) createSegment() (*upgrade, error) {
	u := &upgrade{nonce: segment.NewNonce()}
	size := segment.Config{Slots: c.cfg.Slots, Ring: c.cfg.Ring}
	if c.broker.Deep(c.key.Server.Port()) {
		size.Slots = max(size.Slots, wire.DeepSlots)
		size.Ring = max(size.Ring, wire.DeepRing)
	}
	seg, err := segment.Create(segment.Info{Nonce: u.nonce, Client: c.key.Client, Server: c.key.Server}, size)
	if err != nil {
		return nil, err
	}
	bells, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		seg.Retire()
		return nil, err
	}
	u.peerBell = bells[1]
	if u.end, err = c.newEnd(seg, bells[0]); err != nil {
		_ = unix.Close(bells[1])
		seg.Retire()
		return nil, err
	}
	return u, nil
}

func (c *Conn) newEnd(seg *segment.Segment, bell int) (*segment.End, error) {
	e, err := segment.NewEnd(seg, c.side, bell, c.count)
	if err != nil {
		return nil, err
	}
	c.tellNode(e)
	c.entry.SetNonce(seg.Info().Nonce)
	e.HeedSwitch(c.entry.Switch())
	e.Tune(segment.Tuning{Threshold: c.cfg.Threshold, Chunk: c.cfg.Chunk})
	e.OnHeard(func() {
		if c.tx.bell.sleeping.Load() {
			c.wakeHalf(&c.tx.half)
		}
	})
	return e, nil
}

// claimSegment asks for a segment that side 0 may have offered.
func (c *Conn) claimSegment(word uint32) {
	err := c.broker.Claim(c.socketProof(), func(g client.Granted, err error) {
		if err != nil {
			c.none.Store(word)
			c.onLife(lifeNone)
			return
		}
		c.onLife(lifeGrant)
		go c.onGranted(g)
	})
	if err != nil { // the broker has died, or does not keep up
		c.onLife(lifeNone)
	}
}

// onGranted takes a segment that the broker has given for the connection.
func (c *Conn) onGranted(g client.Granted) {
	defer func() { _ = unix.Close(g.Segment) }()
	seg, err := segment.Map(g.Segment)
	if err != nil {
		_ = unix.Close(g.Bell)
		c.scheduleRetry(ReasonNoMemory)
		return
	}
	// The ends are the client's socket's: a translation on the way may have given this one others.
	if i := seg.Info(); i.Nonce != g.Nonce || i.Client != g.Key.Client || i.Server != g.Key.Server {
		_ = unix.Close(g.Bell)
		seg.Retire()
		c.scheduleRetry(ReasonRefused)
		return
	}
	end, err := c.newEnd(seg, g.Bell)
	if err != nil {
		seg.Retire()
		c.scheduleRetry(ReasonNoMemory)
		return
	}
	u := &upgrade{end: end, nonce: g.Nonce, peerBell: -1}
	if !c.cfg.acceptsSizes(seg.Config()) { // the next offer will be no smaller
		end.Withdraw()
		u.releaseUnused()
		c.stayOnShadow(ReasonRefused)
		return
	}
	c.installSegment(u)
}

// installSegment has whoever has the lock of rx look at a segment from now on.
func (c *Conn) installSegment(u *upgrade) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		u.releaseUnused()
		return
	}
	c.pending = u
	c.mu.Unlock()
	c.askRX(wantInstall)
}

// askRX leaves work to the holder of the lock of rx, and wakes it.
func (c *Conn) askRX(work uint32) {
	if !c.rx.leaveWork(work) {
		c.wakeHalf(&c.rx.half)
		return
	}
	c.workRX()
	if c.rx.free() {
		c.leaveRX()
	}
}

// askTX leaves work to the holder of the lock of tx, and wakes it if wake is set.
func (c *Conn) askTX(work uint32, wake bool) {
	if !c.tx.leaveWork(work) {
		if wake {
			c.wakeHalf(&c.tx.half)
		}
		return
	}
	c.workTX()
	if c.tx.free() {
		c.leaveTX()
	}
}

// workRX does what others have left to the lock holder. It does not wait.
func (c *Conn) workRX() {
	r := &c.rx
	if r.takeWork(wantInstall) {
		c.mu.Lock()
		u := c.pending
		c.pending = nil
		c.mu.Unlock()
		if u != nil {
			c.beginSegment(u)
		}
	}
	if r.takeWork(wantFallBack) {
		c.fallBackRX()
	}
	if r.takeWork(wantLook) && r.phase == rxShadow {
		c.advanceInbound()
	}
	if r.takeWork(wantHand) {
		r.hand.Store(uint32(c.handRX(time.Duration(c.waited.Load()))))
	}
}

// beginSegment is where a connection gets its segment. No thread waits in the shadow
// alone: the caller has the lock of rx.
func (c *Conn) beginSegment(u *upgrade) {
	r := &c.rx
	if r.phase != rxTCP || r.flags.Load()&(flagClosed|flagShut) != 0 {
		u.releaseUnused() // demoted meanwhile, or about to be closed
		return
	}
	if c.side == segment.Server {
		if err := u.end.Attach(); err != nil {
			u.releaseUnused()
			c.scheduleRetry(ReasonRefused)
			return
		}
		r.end = u.end
		c.onRX(rxSegment)
		c.onLife(lifeSegment)
		c.onLife(lifeAttached)
		c.end.Store(u.end)
		c.releaseListener()
		c.setReason(ReasonIdle)
		c.askTX(wantInstall, false) // a writer to the shadow finds it soon
		_ = c.watchRX()
		return
	}
	r.end = u.end
	c.onRX(rxSegment)
	c.onLife(lifeSegment)
	c.end.Store(u.end)
	_ = c.watchRX()
	told := new(refusal)
	c.refusal.Store(told)
	err := c.broker.Offer(c.socketProof(), u.nonce, u.end.Segment().Fd(), u.peerBell, func(why wire.Reason) {
		if told.Swap(uint32(why)) == refusalLate && c.refusal.Load() == told {
			c.setReason(reasonOf(why))
		}
	})
	_ = unix.Close(u.peerBell)
	u.peerBell = -1
	u.end.Segment().CloseFd()
	switch {
	case err == nil:
		c.setReason(ReasonOffered)
	case errors.Is(err, wire.ErrBusy):
		c.returnInbound(ReasonSilent)
	case errors.Is(err, client.ErrNoBroker), errors.Is(err, net.ErrClosed):
		c.returnInbound(ReasonNoBroker)
	default:
		c.returnInbound(ReasonRefused)
	}
}

// returnInbound takes the inbound direction back to the shadow when side 1 has never
// looked at the segment, and cannot any more.
func (c *Conn) returnInbound(why Reason) {
	r := &c.rx
	c.unwatchRX()
	u := &upgrade{end: r.end, peerBell: -1}
	c.onRX(rxRefused)
	r.end = nil
	c.end.Store(nil)
	c.closeBell(&r.half)
	u.releaseUnused()
	c.scheduleRetry(why)
}

// refusal is the wire.Reason by which an offer was refused; 0: it was not. Its doorbell ends at
// about the same time, which another goroutine finds: if that is first, it is refusalLate.
type refusal struct{ atomic.Uint32 }

const refusalLate = math.MaxUint32

// whyRefused is what the broker said of the last offer, or says soon.
func (c *Conn) whyRefused() Reason {
	told := c.refusal.Load()
	if told.CompareAndSwap(0, refusalLate) {
		if !c.broker.Connected() { // the offer ended with it
			return Reason(c.broker.Absent())
		}
		return ReasonRefused
	}
	return reasonOf(wire.Reason(told.Load()))
}

// reasonOf is the reason that a connection gives for a refusal.
func reasonOf(why wire.Reason) Reason {
	switch why {
	case wire.NoListener:
		return ReasonNoListener
	case wire.Expired:
		return ReasonExpired
	case wire.Unreachable:
		return ReasonUnreachable
	case wire.TooMany:
		return ReasonNoMemory
	case wire.NoRule:
		return ReasonNoRule
	case wire.NoPair:
		return ReasonNoPair
	case wire.SwitchedOff:
		return ReasonSwitchedOff
	}
	return ReasonRefused
}

// onOrphaned is called when the peer has gone before it promoted its direction.
func (c *Conn) onOrphaned() {
	if c.side == segment.Client && !c.rx.end.Attached() {
		final := c.rx.end.PeerState() == segment.StateWithdrawn
		c.returnInbound(c.whyRefused())
		if final {
			c.stayOnShadow(ReasonRefused)
		}
		return
	}
	if c.rx.end.Lost() {
		c.onRX(rxReset)
		c.endInbound(c.resetError("read", c.rx.end))
	} else {
		c.onRX(rxGone)
	}
	c.setMode(&c.rx.half, ModeDemoted)
	c.heedFallBack()
}
