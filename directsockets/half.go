package directsockets

import (
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"exnet/directsockets/segment"
)

// Flags of a half: why its calls end. They are set under Conn.mu.
const (
	flagExpired = 1 << 0 // the deadline has passed
	flagClosed  = 1 << 1 // Close was called
	flagBroken  = 1 << 2 // the peer has broken the rules
	flagShut    = 1 << 3 // CloseRead or CloseWrite was called
	flagAway    = 1 << 4 // the program's calls are for the substitute

	flagsStop = flagExpired | flagClosed | flagBroken
	flagsPass = flagsStop | flagShut    // those that end a wait of what passes on
	flagsCall = flagsPass | flagAway    // those that end a wait of Read or Write
	flagsGone = flagClosed | flagBroken // those that end what is done without a call
)

// half is what both directions of a connection have in common.
type half struct {
	lock
	flags atomic.Uint32

	// Of the lock holder.
	// direct: bytes go through end, and nothing else has to be looked at. It repeats phase, so that
	// the fast path of both directions has one word to look at.
	direct bool
	// passing: the holder is no call of the program's, but passes on for the substitute. It is
	// about who holds the lock, in whatever state the direction is.
	passing bool
	end     *segment.End // nil until the direction has moved to the segment
	spin    spinner
	bell    bell

	woken atomic.Bool   // set by wakeHalf, and the shadow's deadline has passed; cleared by clearWake
	hand  atomic.Uint32 // see handOver

	// Guarded by Conn.mu.
	deadline time.Time
	timer    *time.Timer
	file     *os.File // what bell sleeps on; nil before that
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// wakeHalf wakes whoever sleeps in h, or is about to: in the shadow, or on the bell.
func (c *Conn) wakeHalf(h *half) {
	c.mu.Lock()
	c.wakeLocked(h)
	c.mu.Unlock()
}

func (c *Conn) wakeLocked(h *half) {
	h.woken.Store(true)
	c.setShadowDeadline(h, past)
	if h.file != nil {
		_ = h.file.SetReadDeadline(past)
	}
}

// setShadowDeadline sets the shadow's deadline for the direction of h. It ignores errors: a closed
// shadow reports that to its calls.
func (c *Conn) setShadowDeadline(h *half, t time.Time) {
	if h == &c.rx.half {
		_ = c.shadow.SetReadDeadline(t)
	} else {
		_ = c.shadow.SetWriteDeadline(t)
	}
}

// clearWake undoes wake. The holder calls it before it looks whether it may sleep. After Close the
// shadow's deadline is closeShadow's.
func (c *Conn) clearWake(h *half) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.woken.Store(false)
	if h.flags.Load()&flagClosed == 0 {
		c.setShadowDeadline(h, time.Time{})
	}
	if h.file != nil {
		_ = h.file.SetReadDeadline(time.Time{})
	}
}

// setDeadline is SetReadDeadline or SetWriteDeadline. The deadlines of the shadow
// and of the bell's file are not the program's: they serve wake.
func (c *Conn) setDeadline(h *half, t time.Time) {
	h.deadline = t
	d := time.Duration(1)
	if !t.IsZero() {
		d = time.Until(t)
	}
	switch {
	case d <= 0:
		if h.timer != nil {
			h.timer.Stop()
		}
		h.flags.Or(flagExpired)
		c.wakeLocked(h)
		return
	case t.IsZero():
		if h.timer != nil {
			h.timer.Stop()
		}
	case h.timer == nil:
		h.timer = time.AfterFunc(d, func() { c.expireHalf(h) })
	default:
		h.timer.Reset(d)
	}
	h.flags.And(^uint32(flagExpired))
}

// expireHalf is what a timer runs.
func (c *Conn) expireHalf(h *half) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.deadline.IsZero() || c.closed {
		return
	}
	if d := time.Until(h.deadline); d > 0 { // it was moved meanwhile
		h.timer.Reset(d)
		return
	}
	h.flags.Or(flagExpired)
	c.wakeLocked(h)
}

// bell is a sleeper's view of the doorbell.
type bell struct {
	raw      syscall.RawConn
	look     func(fd uintptr) bool // made once, so that sleeping does not allocate
	awake    bool                  // shouldWake is called after a sleep, not before
	until    uint32                // flags that end the sleep
	sleeping atomic.Bool
}

// stopError returns why calls of h end.
func (c *Conn) stopError(h *half, op string) error {
	switch f := h.flags.Load(); {
	case f&flagClosed != 0:
		return c.opError(op, net.ErrClosed)
	case f&flagBroken != 0:
		return c.opError(op, os.NewSyscallError(op, syscall.ECONNRESET))
	case f&flagAway != 0 && !h.passing:
		return errAway
	case f&flagExpired != 0:
		return c.opError(op, os.ErrDeadlineExceeded)
	}
	return nil
}

// endFlags are the flags that end a wait of the holder's.
func (h *half) endFlags() uint32 {
	if h.passing {
		return flagsPass
	}
	return flagsCall
}

// signals is what the holder of a lock looks at to decide whether it may wait. model_test.go
// explores these decisions in every order.
type signals struct {
	flags, want uint32
	woken       bool
}

// loadSignals looks at what others have told the holder.
func (h *half) loadSignals() signals {
	return signals{flags: h.flags.Load(), want: h.want.Load(), woken: h.woken.Load()}
}

// wanted reports whether the holder has something else to do than to wait in a call
// that the flags of until end.
func (s signals) wanted(until uint32) bool { return s.flags&until != 0 || s.want&wantWork != 0 }

// interrupted reports whether the holder has to stop waiting.
func (s signals) interrupted(until uint32) bool { return s.wanted(until) || s.woken }
