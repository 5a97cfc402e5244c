package directsockets

import (
	"runtime"
	"time"

	"exnet/directsockets/segment"
	"exnet/internal/shm"

	"golang.org/x/sys/unix"
)

// spinLook is how many looks are taken between two looks at the clock.
const spinLook = 32

// maySpin begins a wait, and says how long it may spin. On the CPU of the peer it
// yields instead: yielding.
func (c *Conn) maySpin(h *half) (limit time.Duration, yielding bool) {
	if h.end.SameCPU() {
		return 0, true
	}
	return h.spin.next(c.cfg.Spin), false
}

// spinRecv is Recv, trying again for as long as spinning pays. segment.ErrAgain:
// sleep.
func (c *Conn) spinRecv(p []byte) (n int, err error) {
	r := &c.rx
	limit, yielding := c.maySpin(&r.half)
	if yielding {
		for range yields {
			schedYield()
			if n, err = r.end.Recv(p); err != segment.ErrAgain || r.interrupted() {
				return n, err
			}
		}
		return 0, segment.ErrAgain
	}
	if limit == 0 {
		return 0, segment.ErrAgain
	}
	start := time.Now()
	for i := 1; ; i++ {
		if n, err = r.end.Recv(p); err != segment.ErrAgain {
			c.spun(&r.half, true)
			return n, err
		}
		if i%spinLook == 0 && !c.goOn(&r.half, start, limit) {
			return 0, segment.ErrAgain
		}
		shm.Pause(1)
	}
}

// spinSend is Send, trying again for as long as spinning pays.
func (c *Conn) spinSend(p []byte) (n int, err error) {
	t := &c.tx
	limit, yielding := c.maySpin(&t.half)
	if yielding {
		for range yields {
			schedYield()
			if n, err = t.end.Send(p); err != segment.ErrAgain || t.interrupted() {
				return n, err
			}
		}
		return 0, segment.ErrAgain
	}
	if limit == 0 {
		return 0, segment.ErrAgain
	}
	start := time.Now()
	for i := 1; ; i++ {
		if n, err = t.end.Send(p); err != segment.ErrAgain {
			c.spun(&t.half, true)
			return n, err
		}
		if i%spinLook == 0 && !c.goOn(&t.half, start, limit) {
			return 0, segment.ErrAgain
		}
		shm.Pause(1)
	}
}

// goOn reports whether to spin on. Other goroutines get their turn meanwhile; if
// they need it, spinning is over.
func (c *Conn) goOn(h *half, start time.Time, limit time.Duration) bool {
	if h.interrupted() {
		return false
	}
	before := time.Since(start)
	if before > limit {
		c.spun(h, false)
		return false
	}
	runtime.Gosched()
	if time.Since(start)-before > spinMin {
		c.spun(h, false)
		return false
	}
	return true
}

func (c *Conn) spun(h *half, found bool) {
	if found {
		h.spin.found(c.cfg.Spin)
		c.count.Add(segment.SpinsFound, 1)
	} else {
		h.spin.vain()
		c.count.Add(segment.SpinsVain, 1)
	}
}

// schedYield lets another thread of this CPU run.
func schedYield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// maxArms is how often a direction may arm without reading the doorbell empty: the
// socket has room for the bytes of some hundred armings.
const maxArms = 64

// sleep blocks until the peer rings or something interrupts. It has to be looked
// again then. The holder of h calls it.
func (c *Conn) sleep(h *half) {
	if h.kicked.Load() {
		c.calm(h)
	}
	if h.interrupted() {
		return
	}
	b := &h.bell
	if b.raw == nil && c.openBell(h) != nil {
		// Out of descriptors: look again and again, as slowly as one hears of nothing.
		time.Sleep(time.Millisecond)
		return
	}
	c.count.Add(segment.Sleeps, 1)
	b.awake = false
	b.sleeping.Store(true)
	_ = b.raw.Read(b.look) // an error: a kick, or the end of the connection
	b.sleeping.Store(false)
	if b.awake {
		c.awake(h)
	}
}

// look is called by the runtime's poller before it sleeps, and whenever it wakes.
// True: do not sleep on.
func (c *Conn) look(h *half) bool {
	b := &h.bell
	if b.awake {
		c.awake(h)
	} else if b.arms++; b.arms%maxArms == 0 {
		c.awake(h)
	}
	b.awake = true
	var ready bool
	if h == &c.rx.half {
		ready = h.end.ArmRX()
	} else {
		ready = h.end.ArmTX()
	}
	return ready || h.interrupted() || !c.frozenSeen.Load() && h.end.PeerFrozen()
}

// awake reads the doorbell empty and has the other direction's sleeper look, too:
// the byte may have been for that one.
func (c *Conn) awake(h *half) {
	h.end.Awake()
	other := &c.tx.half
	if h == other {
		other = &c.rx.half
	}
	if other.bell.sleeping.Load() || other == &c.rx.half && c.rx.watch.on.Swap(false) {
		c.kick(other)
	}
}
