package directsockets

import (
	"io"
	"runtime"
	"time"

	"exnet/directsockets/segment"
	"exnet/internal/shm"

	"golang.org/x/sys/unix"
)

// spinLook is how many looks are taken between two looks at everything else.
const spinLook = 32

// awaitRX waits until the segment may have something, or something interrupts. The holder of rx
// calls it after Recv has returned ErrAgain. io.EOF: CloseRead was called, and there is nothing to
// wait for.
func (c *Conn) awaitRX() error {
	r := &c.rx
	if r.flags.Load()&flagShut != 0 {
		return io.EOF
	}
	if until := r.endFlags(); !c.spin(&r.half, true, until) {
		c.sleepOnBell(&r.half, until)
	}
	c.heedFallBack()
	return nil
}

// awaitTX waits until the segment may have room, or something interrupts, as the flags of until do.
// The holder of tx calls it after Send has returned ErrAgain.
func (c *Conn) awaitTX(until uint32) {
	if t := &c.tx; !c.spin(&t.half, false, until) {
		c.sleepOnBell(&t.half, until)
	}
}

// spin looks for as long as spinning pays, and reports whether to try again. If the
// peer is on the same CPU it yields instead.
func (c *Conn) spin(h *half, rx bool, until uint32) (again bool) {
	limit := h.spin.nextSpin(c.cfg.Spin)
	if limit == 0 {
		return false
	}
	if rx && shm.Scheduled() {
		if shm.Crowded() { // they run first, and the scheduler looks when they wait, too
			return false
		}
		limit = min(limit, spinScheduled)
	} else if h.end.SameCPU() {
		return c.yield(h, rx, until)
	}
	if spinning.Add(1) > maxSpinning {
		spinning.Add(-1)
		return false
	}
	again = c.spinFor(h, rx, until, limit)
	spinning.Add(-1)
	return again
}

// spinFor looks for limit, unless other goroutines want the thread.
func (c *Conn) spinFor(h *half, rx bool, until uint32, limit time.Duration) bool {
	start := shm.Nanotime()
	for i := 1; ; i++ {
		if c.glance(h, rx) {
			h.spin.noteFound(c.cfg.Spin)
			c.count.Add(segment.SpinsFound, 1)
			return true
		}
		if s := h.loadSignals(); s.interrupted(until) {
			return s.wanted(until) // sleep clears it
		}
		now := time.Duration(shm.Nanotime() - start)
		if now < limit && i%yieldEvery == 0 {
			// Other goroutines get their turn; if they need it, spinning is over.
			runtime.Gosched()
			if time.Duration(shm.Nanotime()-start)-now > spinMin {
				now = limit
			}
		}
		if now >= limit {
			h.spin.noteVain()
			c.count.Add(segment.SpinsVain, 1)
			return false
		}
	}
}

// yield is spin for a peer on the same CPU. If others want the CPU, too, a yield serves them, and
// takes as long as they like: after slow yields it sleeps instead.
func (c *Conn) yield(h *half, rx bool, until uint32) bool {
	start := shm.Nanotime()
	if !yielding.mayYield(start) {
		return false
	}
	for range yields {
		schedYield()
		slow := yielding.wasSlow(start, shm.Nanotime())
		if c.glance(h, rx) {
			h.spin.noteFound(c.cfg.Spin)
			c.count.Add(segment.SpinsFound, 1)
			return true
		}
		if h.loadSignals().wanted(until) {
			return true
		}
		if slow {
			break
		}
	}
	h.spin.noteVain()
	c.count.Add(segment.SpinsVain, 1)
	return false
}

// glance looks a few times.
func (c *Conn) glance(h *half, rx bool) bool {
	if rx {
		return h.end.SpinRX(spinLook) || h.end.Err() != nil
	}
	for range spinLook / 4 {
		if c.tx.taking {
			if ok, err := h.end.Taken(c.tx.ticket); ok || err != nil {
				return true
			}
		} else if h.end.Room() {
			return true
		}
		shm.Pause(1)
	}
	return false
}

// schedYield lets another thread of this CPU run.
func schedYield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// sleepOnBell blocks until the peer rings or something interrupts, as the flags of until do. The
// caller, which holds h, then looks again.
func (c *Conn) sleepOnBell(h *half, until uint32) {
	if h.woken.Load() {
		c.clearWake(h)
	}
	if h.loadSignals().wanted(until) {
		return
	}
	b := &h.bell
	b.until = until
	if b.raw == nil && c.openBell(h) != nil {
		time.Sleep(bellPause)
		return
	}
	if h == &c.rx.half && !c.rx.shadowWatched {
		c.watchShadow()
	}
	c.count.Add(segment.Sleeps, 1)
	b.awake = false
	b.sleeping.Store(true)
	_ = b.raw.Read(b.look) // an error: woken, or the end of the connection
	b.sleeping.Store(false)
	// What has rung is read when somebody looks again. To tell the other direction's sleeper
	// of a wake-up would have it tell this one, for ever.
	if h == &c.rx.half {
		h.end.DisarmRX()
	} else {
		h.end.DisarmTX()
	}
}

// bellPause is how often a caller that has no doorbell to sleep on, for lack of descriptors, looks
// at the segment.
const bellPause = time.Millisecond

// shouldWake is called by the runtime's poller before it sleeps, and whenever it wakes. True: stop
// sleeping. If what it waits for is there, the doorbell stays as it is.
func (c *Conn) shouldWake(h *half) bool {
	b := &h.bell
	if h == &c.rx.half && shm.Scheduled() {
		return c.lookScheduled()
	}
	switch {
	case b.awake && h == &c.rx.half && h.end.ReadyRX():
		return true
	case b.awake && h == &c.rx.half && !c.tx.bell.sleeping.Load() && !h.end.Due():
		// What has rung was seen before the last arming. That has rung, perhaps, and is over.
	case b.awake || h.end.Due():
		c.drainBell(h)
	}
	b.awake = true
	var ready bool
	switch {
	case h == &c.rx.half:
		ready = h.end.ArmRX()
	case c.tx.taking:
		ready = h.end.ArmTaken(c.tx.ticket)
	default:
		ready = h.end.ArmTX()
	}
	return ready || h.loadSignals().interrupted(b.until) || !c.fallenBackSeen.Load() && h.end.PeerFallenBack()
}

// lookScheduled is look for a reader in a program whose scheduler looks for messages, and asks
// whether peers have gone.
func (c *Conn) lookScheduled() bool {
	b, e := &c.rx.bell, c.rx.end
	switch {
	case b.awake && e.ReadyRX():
		return true
	case b.awake && (c.tx.bell.sleeping.Load() || e.Due()), e.Full():
		c.drainBell(&c.rx.half)
	}
	b.awake = true
	ready, armed := e.WatchRX()
	if !armed {
		if e.Due() {
			c.drainBell(&c.rx.half)
		}
		ready = e.ArmRX()
	}
	return ready || c.rx.loadSignals().interrupted(b.until) || !c.fallenBackSeen.Load() && e.PeerFallenBack()
}

// drainBell empties the doorbell and has the other direction's sleeper look, too: the byte may have
// been for that one.
func (c *Conn) drainBell(h *half) {
	h.end.Awake()
	other := &c.tx.half
	if h == other {
		other = &c.rx.half
	}
	if other.bell.sleeping.Load() || other == &c.rx.half && c.rx.watch.armed.Swap(false) {
		c.wakeHalf(other)
	}
}
