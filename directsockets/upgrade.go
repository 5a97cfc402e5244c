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

// drop releases a segment that was never used.
func (u *upgrade) drop() {
	if u.peerBell >= 0 {
		_ = unix.Close(u.peerBell)
	}
	if u.end.Side() == segment.Client {
		u.end.Withdraw()
	}
	_ = u.end.Close(false) // the descriptor's error concerns nobody
	u.end.Segment().Retire()
}

// moved is called when bytes are about to move on the shadow, sends of them by a send: it starts
// the set-up of a segment, without waiting for it.
func (c *Conn) moved(sends int) {
	if c.lifeIs() != lifeEarly {
		return
	}
	if c.side == segment.Server {
		c.missed()
		word, may := c.broker.MayHaveOffer(c.bucket, c.none.Load())
		if may && c.onLife(lifeClaim) {
			c.claim(word)
		}
		return
	}
	if !c.worth(sends) {
		return
	}
	if !c.broker.Listener(c.key.Server.Port()) {
		if c.broker.Connected() {
			c.reason(ReasonNoListener)
		} else {
			c.reason(Reason(c.broker.Absent()))
		}
		return
	}
	if at := c.retry.Load(); at != 0 && time.Now().UnixNano() < at {
		return
	}
	if c.onLife(lifeMake) {
		go c.prepare()
	}
}

// worth reports whether a client that is about to send so often is to offer a segment.
func (c *Conn) worth(sends int) bool {
	steps := 0
	if !c.cfg.fixed {
		steps = c.broker.Habit().Steps()
	}
	return c.cfg.Eager || int(c.sends.Load())+sends >= c.cfg.UpgradeSends<<steps ||
		c.count[segment.SentShadow].Load()+c.count[segment.ReceivedShadow].Load() >= uint64(c.cfg.UpgradeBytes)<<steps
}

// habit has those to come learn from the end of a client that had a segment.
func (c *Conn) habit() {
	n := func(word int) uint64 { return c.count[word].Load() }
	c.broker.Habit().Ended(uint64(c.sends.Load())+n(segment.SentVELOLast)+n(segment.SentRMAInfo),
		n(segment.SentDirect)+n(segment.ReceivedDirect)+n(segment.SentShadow)+n(segment.ReceivedShadow))
}

// settlePause is how long settle waits between two looks.
const settlePause = 100 * time.Microsecond

// settle waits until the connection has a segment that both ends look at, or will have
// none, and no longer than limit.
func (c *Conn) settle(limit time.Duration) {
	if limit <= 0 {
		return
	}
	for end := time.Now().Add(limit); c.lifeIs() != lifePlain && time.Now().Before(end); time.Sleep(settlePause) {
		if e := c.end.Load(); e != nil && (c.side == segment.Server || e.Attached()) {
			return
		}
		c.moved(0)
	}
}

// decided releases the closed listener that accepted the connection.
func (c *Conn) decided() {
	if c.from.Load() == nil { // a client's, most often
		return
	}
	if l := c.from.Swap(nil); l != nil {
		l.release()
	}
}

// never keeps the connection on the shadow for good.
func (c *Conn) never(why Reason) {
	c.onLife(lifeGiveUp)
	c.decided()
	c.reason(why)
}

// failed schedules another offer or claim.
func (c *Conn) failed(why Reason) {
	c.reason(why)
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
		c.decided()
		return
	}
	c.retry.Store(time.Now().Add(firstRetry << (tries - 1)).UnixNano())
	c.onLife(lifeNone)
}

// socket is the proof that the broker wants.
func (c *Conn) socket() client.Socket {
	return client.Socket{Conn: c.raw, Local: addrPort(c.LocalAddr()), Remote: addrPort(c.RemoteAddr())}
}

// prepare makes the segment that side 0 offers.
func (c *Conn) prepare() {
	u, err := c.create()
	if err != nil {
		c.failed(ReasonNoMemory)
		return
	}
	c.install(u)
}

func (c *Conn) create() (*upgrade, error) {
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
			c.wake(&c.tx.half)
		}
	})
	return e, nil
}

// claim asks for a segment that side 0 may have offered.
func (c *Conn) claim(word uint32) {
	err := c.broker.Claim(c.socket(), func(g client.Granted, err error) {
		if err != nil {
			c.none.Store(word)
			c.onLife(lifeNone)
			return
		}
		c.onLife(lifeGrant)
		go c.granted(g)
	})
	if err != nil { // the broker has died, or does not keep up
		c.onLife(lifeNone)
	}
}

// granted takes a segment that the broker has given for the connection.
func (c *Conn) granted(g client.Granted) {
	defer func() { _ = unix.Close(g.Segment) }()
	seg, err := segment.Map(g.Segment)
	if err != nil {
		_ = unix.Close(g.Bell)
		c.failed(ReasonNoMemory)
		return
	}
	// The ends are the client's socket's: a translation on the way may have given this one others.
	if i := seg.Info(); i.Nonce != g.Nonce || i.Client != g.Key.Client || i.Server != g.Key.Server {
		_ = unix.Close(g.Bell)
		seg.Retire()
		c.failed(ReasonRefused)
		return
	}
	end, err := c.newEnd(seg, g.Bell)
	if err != nil {
		seg.Retire()
		c.failed(ReasonNoMemory)
		return
	}
	u := &upgrade{end: end, nonce: g.Nonce, peerBell: -1}
	if !c.cfg.takes(seg.Config()) { // the next offer will be no smaller
		end.Withdraw()
		u.drop()
		c.never(ReasonRefused)
		return
	}
	c.install(u)
}

// install has whoever has the lock of rx look at a segment from now on.
func (c *Conn) install(u *upgrade) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		u.drop()
		return
	}
	c.pending = u
	c.mu.Unlock()
	c.askRX(wantInstall)
}

// askRX leaves work to the holder of the lock of rx, and wakes it.
func (c *Conn) askRX(work uint32) {
	if !c.rx.ask(work) {
		c.wake(&c.rx.half)
		return
	}
	c.workRX()
	if c.rx.free() {
		c.leaveRX()
	}
}

// askTX leaves work to the holder of the lock of tx, and wakes it if wake is set.
func (c *Conn) askTX(work uint32, wake bool) {
	if !c.tx.ask(work) {
		if wake {
			c.wake(&c.tx.half)
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
	if r.asked(wantInstall) {
		c.mu.Lock()
		u := c.pending
		c.pending = nil
		c.mu.Unlock()
		if u != nil {
			c.begin(u)
		}
	}
	if r.asked(wantFallBack) {
		c.fallBackRX()
	}
	if r.asked(wantLook) && r.phase == rxShadow {
		c.transit()
	}
	if r.asked(wantHand) {
		r.hand.Store(uint32(c.handRX(time.Duration(c.waited.Load()))))
	}
}

// begin is where a connection gets its segment. No thread waits in the shadow
// alone: the caller has the lock of rx.
func (c *Conn) begin(u *upgrade) {
	r := &c.rx
	if r.phase != rxTCP || r.flags.Load()&(flagClosed|flagShut) != 0 {
		u.drop() // demoted meanwhile, or about to be closed
		return
	}
	if c.side == segment.Server {
		if err := u.end.Attach(); err != nil {
			u.drop()
			c.failed(ReasonRefused)
			return
		}
		r.end = u.end
		c.onRX(rxSegment)
		c.onLife(lifeSegment)
		c.onLife(lifeAttached)
		c.end.Store(u.end)
		c.decided()
		c.reason(ReasonIdle)
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
	err := c.broker.Offer(c.socket(), u.nonce, u.end.Segment().Fd(), u.peerBell, func(why wire.Reason) {
		if told.Swap(uint32(why)) == refusalLate && c.refusal.Load() == told {
			c.reason(reasonOf(why))
		}
	})
	_ = unix.Close(u.peerBell)
	u.peerBell = -1
	u.end.Segment().CloseFd()
	switch {
	case err == nil:
		c.reason(ReasonOffered)
	case errors.Is(err, wire.ErrBusy):
		c.refused(ReasonSilent)
	case errors.Is(err, client.ErrNoBroker), errors.Is(err, net.ErrClosed):
		c.refused(ReasonNoBroker)
	default:
		c.refused(ReasonRefused)
	}
}

// refused takes the inbound direction back to the shadow when side 1 has never
// looked at the segment, and cannot any more.
func (c *Conn) refused(why Reason) {
	r := &c.rx
	c.unwatch()
	u := &upgrade{end: r.end, peerBell: -1}
	c.onRX(rxRefused)
	r.end = nil
	c.end.Store(nil)
	c.closeBell(&r.half)
	u.drop()
	c.failed(why)
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

// orphaned is called when the peer has gone before it promoted its direction.
func (c *Conn) orphaned() {
	if c.side == segment.Client && !c.rx.end.Attached() {
		final := c.rx.end.PeerState() == segment.StateWithdrawn
		c.refused(c.whyRefused())
		if final {
			c.never(ReasonRefused)
		}
		return
	}
	if c.rx.end.Lost() {
		c.onRX(rxReset)
		c.over(c.resetError("read", c.rx.end))
	} else {
		c.onRX(rxGone)
	}
	c.setMode(&c.rx.half, ModeDemoted)
	c.heedFallBack()
}
