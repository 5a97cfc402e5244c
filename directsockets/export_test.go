package directsockets

import (
	"fmt"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Debug describes the inner state of a connection, for tests that fail.
func (c *Conn) Debug() string {
	s := fmt.Sprintf("rx: phase %d word %d want %b flags %b woken %v sleeping %v watch %v shadow %d promoted %d surplus %d\n",
		c.rx.phase, c.rx.word.Load(), c.rx.want.Load(), c.rx.flags.Load(), c.rx.woken.Load(), c.rx.bell.sleeping.Load(), c.rx.watch.armed.Load(), c.rx.shadow, c.rx.promoted, len(c.rx.surplus))
	s += fmt.Sprintf("tx: phase %d word %d want %b flags %b woken %v sleeping %v up %d\n",
		c.tx.phase, c.tx.word.Load(), c.tx.want.Load(), c.tx.flags.Load(), c.tx.woken.Load(), c.tx.bell.sleeping.Load(), c.life.Load())
	if e := c.end.Load(); e != nil {
		s += fmt.Sprintf("err %v attached %v peer fallen back %v", e.Err(), e.Attached(), e.PeerFallenBack())
	}
	return s
}

// CloseProcess closes the process's own client of the broker.
func CloseProcess() {
	if client := process(); client != nil {
		client.Close()
	}
}

// SleepRX sleeps as Read does, with the lock, after before has run since the last look.
func (c *Conn) SleepRX(before func()) {
	c.rx.take()
	before()
	c.sleepOnBell(&c.rx.half, flagsCall)
	if c.rx.free() {
		c.leaveRX()
	}
}

// SleepTX sleeps as Write does, or if finishing as finishOutbound does, with the lock, after
// before has run since the last look.
func (c *Conn) SleepTX(finishing bool, before func()) {
	until := uint32(flagsCall)
	if finishing {
		until = flagsStop
	}
	c.tx.take()
	before()
	c.sleepOnBell(&c.tx.half, until)
	if c.tx.free() {
		c.leaveTX()
	}
}

// SleepsTX reports whether Write sleeps.
func (c *Conn) SleepsTX() bool { return c.tx.bell.sleeping.Load() }

// Reading reports whether somebody reads, or waits to.
func (c *Conn) Reading() bool { return c.rx.word.Load() == lockHeld }

// Unread is how many bytes are in the segment.
func (c *Conn) Unread() int {
	c.rx.takeInner()
	defer c.releaseRX()
	return c.rx.end.Readable()
}

// Returning reports whether the outbound direction returns to TCP.
func (c *Conn) Returning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tx.guard.active
}

// Deafen has nobody look at what comes on the segment until a call of the program's does.
func (c *Conn) Deafen() {
	c.rx.takeInner()
	c.unwatchRX()
	c.releaseRX()
}

// Retire has this side leave the segment as a program does that is replaced by one without it.
func (c *Conn) Retire() { _ = c.rx.end.Close(false) }

// Abort is resetOnClose.
func (c *Conn) Abort() { c.resetOnClose() }

// LeaveOrphans has n bytes more outlive Close, and no more, until the test ends.
func LeaveOrphans(t *testing.T, n int64) {
	orphans.n.Add(maxOrphans - n)
	t.Cleanup(func() { orphans.n.Add(n - maxOrphans) })
}

// Orphans is how many bytes outlive Close.
func Orphans() int64 { return orphans.n.Load() }

// Resets reports whether the end of a socket resets its connection.
func Resets(t *testing.T, s syscall.Conn) bool {
	t.Helper()
	raw, err := s.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var l *unix.Linger
	if ctlErr := raw.Control(func(fd uintptr) { l, err = unix.GetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER) }); ctlErr != nil || err != nil {
		t.Fatal(ctlErr, err)
	}
	return l.Onoff != 0 && l.Linger == 0
}
