package directsockets

import (
	"net"
	"os"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/segment"
)

// openBell makes the file that h sleeps on. tx has a descriptor of its own, so that
// both directions can sleep at the same time.
func (c *Conn) openBell(h *half) error {
	file := h.end.Bell()
	if h == &c.tx.half {
		raw, err := file.SyscallConn()
		if err != nil {
			return err
		}
		var fd int
		if ctlErr := raw.Control(func(d uintptr) { fd, err = dup(int(d)) }); ctlErr != nil {
			err = ctlErr
		}
		if err != nil {
			return err
		}
		file = os.NewFile(uintptr(fd), "doorbell")
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h.file = file
	h.bell.raw = raw
	h.bell.look = func(uintptr) bool { return c.shouldWake(h) }
	return nil
}

// closeBell undoes openBell. The End closes its own file.
func (c *Conn) closeBell(h *half) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.file != nil && h == &c.tx.half {
		_ = h.file.Close() // a duplicate has nothing to lose
	}
	h.file, h.bell.raw = nil, nil
}

// Close implements net.Conn. Blocked calls return net.ErrClosed. What was written is delivered. If
// data that has arrived was not read, or after SetLinger(0), the peer's calls fail with ECONNRESET,
// as with TCP. So they do if this process ends just after Close, where TCP has no room for what was
// written and the peer has gone to a program without direct sockets.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return &net.OpError{Op: "close", Net: c.networkName(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: net.ErrClosed}
	}
	c.closed = true
	if s := c.sub.Load(); s != nil { // others may have its descriptor
		c.mu.Unlock()
		return c.awayError("close", s.conn.Close())
	}
	c.mu.Unlock()
	return c.finalize()
}

// finalize ends the connection, which is closed.
func (c *Conn) finalize() error {
	c.mu.Lock()
	pending := c.pending
	c.pending = nil
	for _, h := range []*half{&c.rx.half, &c.tx.half} {
		h.flags.Or(flagClosed)
		if h.timer != nil {
			h.timer.Stop()
		}
	}
	c.mu.Unlock()
	c.onLife(lifeEnd)
	c.releaseListener()
	if pending != nil {
		pending.releaseUnused()
	}
	rxStolen, txStolen := c.seizeHalf(&c.rx.half), c.seizeHalf(&c.tx.half)
	err := c.tearDown(rxStolen || txStolen)
	if !rxStolen {
		c.releaseRX()
	}
	if !txStolen {
		c.releaseTX()
	}
	return err
}

// seizeHalf takes the lock of h for Close.
func (c *Conn) seizeHalf(h *half) (stolen bool) {
	if h.try() {
		return false
	}
	c.wakeHalf(h)
	return h.lock.seizeForClose()
}

// tearDown ends the connection; the caller has both locks. lent: somebody still looks at the
// segment's memory.
func (c *Conn) tearDown(lent bool) error {
	c.unwatchRX()
	e := c.end.Load()
	c.mu.Lock()
	linger := c.linger // resetOnClose may come later
	c.mu.Unlock()
	reset := linger == 0 || c.rx.flags.Load()&flagBroken != 0
	c.closeBell(&c.rx.half)
	c.closeBell(&c.tx.half)
	var rest []byte
	if e != nil {
		if reset = reset || c.hasUnread(); !reset {
			rest = c.leaveOutbound()
		}
		c.disarmReset()
		_ = e.Close(reset) // the descriptor's error concerns nobody
	}
	if reset {
		c.lingerShadow(0) // or it is reset already
	}
	c.unwatchShadow()
	err := c.closeShadow(rest, linger)
	c.retireEnd(e, lent)
	return err
}

// leaveOutbound ends the outbound direction without waiting: the peer takes from the segment what
// is there. If it cannot, as it has none any more, rest is what the shadow has still to take.
func (c *Conn) leaveOutbound() (rest []byte) {
	t := &c.tx
	switch {
	case t.phase == txDirect && t.demote: // others may have the shadow, too
		c.sendDemote()
	case t.phase == txDirect:
		switch err := t.end.Shutdown(); err {
		case nil, segment.ErrAgain: // no room: the peer reads the shadow's end after the queue
		default:
			c.leaveDirectTX(err)
		}
	}
	if t.phase == txReturning && !c.cutReturning() {
		rest = c.takeRest()
	}
	return rest
}

// closeShadow closes the shadow after it has taken rest. It waits for that for linger seconds, and
// not at all if linger is negative. If too much outlives Close already, the shadow is reset: its
// SO_LINGER is 0 while there is a rest.
func (c *Conn) closeShadow(rest []byte, linger int) error {
	if len(rest) == 0 || !orphans.add(len(rest)) {
		return c.shadow.Close()
	}
	_ = c.shadow.SetReadDeadline(past) // a raw Read ends here
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer orphans.sub(len(rest))
		c.flushAfterClose(rest, linger, orphanTime)
	}()
	if linger > 0 {
		late := time.NewTimer(time.Duration(linger) * time.Second)
		defer late.Stop()
		select {
		case <-done:
		case <-late.C:
		}
	}
	return nil
}

// retireEnd releases what the connection had. The counters are kept for Stats.
func (c *Conn) retireEnd(e *segment.End, lent bool) {
	if e != nil && c.side == segment.Client {
		c.learnHabit()
	}
	c.mu.Lock()
	c.modes = [2]Mode{ModeClosed, ModeClosed}
	c.keepStatsLocked()
	c.entry.Set(connstats.ModeClosed, connstats.Why(c.why))
	c.mu.Unlock()
	if lent { // the memory goes when nobody has it any more
		return
	}
	if e != nil {
		e.Segment().Retire()
	}
	c.entry.Free()
}
