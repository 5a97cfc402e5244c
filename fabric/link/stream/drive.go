package stream

import (
	"encoding/binary"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/internal/shm"
)

const (
	// readBudget is how much is read from a connection before others have their turn.
	readBudget = 512 << 10
	// flushTurns is how many batches are sent over a connection before others have their
	// turn.
	flushTurns = 8
)

// events is what a driver of raw sockets waits for: a set of descriptors, which is one
// itself, and an eventfd in it.
type events struct {
	set, event int
}

func (e *events) open() (err error) {
	e.set, e.event = -1, -1
	if e.set, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		e.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		err = unix.EpollCtl(e.set, unix.EPOLL_CTL_ADD, e.event, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	return err
}

func (e *events) close() {
	for _, fd := range []*int{&e.event, &e.set} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}

// wakeServer has whoever serves the link look at it.
func (l *Link) wakeServer() {
	if l.woken.Swap(true) {
		return
	}
	l.eventMu.RLock()
	defer l.eventMu.RUnlock()
	if l.events.event >= 0 {
		_, _ = unix.Write(l.events.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // full: it is awake anyway
	}
}

// takeWakes takes note of wakes, and reads the eventfd until all that they write has come. Who
// has set woken may not have written yet: what came afterwards and was never read would keep the
// descriptor readable, and the driver from waiting.
func (l *Link) takeWakes() {
	l.countWake()
	if l.unheard > 0 {
		l.readWakes()
	}
}

// countWake counts a wake.
func (l *Link) countWake() {
	if l.woken.Load() {
		l.woken.Store(false)
		l.unheard++
	}
}

// readWakes reads the eventfd, also what a wake has written that note does not know of yet.
func (l *Link) readWakes() {
	var count [8]byte
	if _, err := unix.Read(l.events.event, count[:]); err == nil {
		l.unheard -= int64(binary.NativeEndian.Uint64(count[:]))
	}
}

// served is the Link as its driver sees it.
type served struct{ *Link }

// Fd implements link.Served.
func (s served) Fd() int { return s.events.set }

// Serve implements link.Served.
func (s served) Serve(rung bool) (moved int, ok bool) {
	l := s.Link
	l.awake.Store(true)
	l.takeWakes()
	if l.down.Load() {
		return 0, false
	}
	if rung {
		for _, c := range l.conns {
			if c.engine != nil {
				c.engine.Hush()
			}
			if c.blocked.Load() {
				c.blocked.Store(false)
				l.dirty.Store(true)
			}
		}
	}
	if rung || !l.drained || l.conns[0].hasBuffers() {
		for _, c := range l.conns {
			moved += l.receiveFrom(c)
		}
	}
	l.drained = moved > 0 && !l.drained
	if l.resumeDue.Load() && l.resumeDue.Swap(false) {
		l.resumeFlows()
	}
	if l.dirty.Load() {
		l.sendQueued()
		if l.resumeDue.Load() && l.resumeDue.Swap(false) {
			l.resumeFlows()
		}
	}
	return moved, !l.down.Load()
}

// Arm implements link.Served. Who has something to send looks at awake after that, in
// schedule: one of both sends it.
func (s served) Arm() time.Duration {
	s.awake.Store(false)
	if s.dirty.Load() || s.woken.Load() || s.resumeDue.Load() || s.down.Load() {
		return 0
	}
	s.drained = false
	for _, c := range s.conns {
		if c.hasBuffers() && c.hasUnread() {
			return 0
		}
	}
	return link.Forever
}

// Doze implements link.Served.
func (s served) Doze() { s.awake.Store(false) }

// Bind implements link.Served.
func (s served) Bind(int) {}

// PeerCPU implements link.Served.
func (s served) PeerCPU() int { return -1 }

// Leave implements link.Served.
func (s served) Leave() { close(s.left) }

// receiveFrom takes what has come over a connection, and returns how much that was.
//
// +checklocksignore: it does not know TryLock
func (l *Link) receiveFrom(c *conn) (bytes int) {
	if !l.pumping.TryLock() {
		return 0 // another goroutine receives
	}
	for bytes < readBudget && !l.down.Load() {
		place, more := c.rx.nextPlace()
		n, errno := c.receive(place, more)
		shm.Observe()
		if errno == syscall.EAGAIN {
			break
		}
		if errno != 0 || n == 0 {
			l.takeDown(c.endError())
			break
		}
		bytes += n
		l.count.Reads.Add(1)
		l.count.RxBytes.Add(uint64(n))
		if err := l.takeRead(c, n); err != nil {
			l.endByBreach(err)
			break
		}
		if n < len(place)+len(more) && !c.hasBuffers() { // an engine's messages end anywhere
			break
		}
	}
	calls := l.takeCalls()
	l.pumping.Unlock()
	l.performCalls(calls)
	return bytes
}

// scheduleSend has what was queued sent: by the driver if it is awake, and looks before it waits,
// or else at once.
func (l *Link) scheduleSend() {
	l.dirty.Store(true)
	if !l.started.Load() || l.awake.Load() {
		return
	}
	l.sendQueued()
	if l.resumeDue.Load() || l.dirty.Load() {
		l.wakeServer() // not here: the caller may hold a lock that OnCredit takes
	}
}

// sendQueued sends what is queued, as far as it goes: messages first, then data, by the
// connection that has carried the least before the others.
func (l *Link) sendQueued() {
	l.dirty.Store(false)
	l.flushConn(l.conns[0])
	var tried [MaxConns]bool
	for range l.conns[1:] {
		next := 0
		for i, c := range l.conns[1:] {
			if i++; !tried[i] && (next == 0 || c.carried.Load() < l.conns[next].carried.Load()) {
				next = i
			}
		}
		tried[next] = true
		l.flushConn(l.conns[next])
	}
}

// flushConn sends what is queued for a connection. If another goroutine flushes, that one
// looks again when it is done.
//
// +checklocksignore: it does not know TryLock
func (l *Link) flushConn(c *conn) {
	for range flushTurns {
		idle := !c.armed.Load() && !c.partial.Load() && !l.out.hasFor(c)
		if idle || c.blocked.Load() || l.down.Load() || !c.wmu.TryLock() {
			return
		}
		var ends [batchChunks]sent
		n := copy(ends[:], l.writeBatch(c))
		c.wmu.Unlock()
		for _, s := range ends[:n] {
			l.endSent(s)
		}
	}
	l.dirty.Store(true)
}

// writeBatch sends a batch, or the rest of the last one. It returns the transfers that were sent
// whole; the slice is good until the next call. The caller holds c.wmu.
func (l *Link) writeBatch(c *conn) (ends []sent) {
	b := &c.batch
	if l.down.Load() {
		return nil
	}
	if c.hasUnsent() {
		if errno := c.crypt.under.Flush(); errno == syscall.EAGAIN {
			l.noteStuck(c)
			return nil
		} else if errno != 0 {
			l.takeDown(c.endError())
			return nil
		}
	}
	if b.empty() {
		l.out.mu.Lock()
		resume := l.out.takeLocked(c)
		l.out.mu.Unlock()
		if resume {
			l.resumeDue.Store(true)
		}
		if b.empty() { // what was owed is gone, and no more is there
			c.partial.Store(false)
			c.armWritable(l.events.set, false)
			return nil
		}
	}
	c.iov = b.appendUnsent(c.iov[:0])
	shm.Publish()
	n, errno := c.send(c.iov, b.more)
	clear(c.iov)
	switch {
	case errno == syscall.EAGAIN:
		n = 0
	case errno != 0:
		l.takeDown(c.endError())
		return nil
	}
	l.count.Writes.Add(1)
	l.count.TxBytes.Add(uint64(n))
	c.carried.Add(uint64(n))
	l.moved.Add(uint64(max(n-len(b.ctl), 0)))
	ends = b.noteWritten(n, c.ends[:0])
	if b.empty() && !c.hasUnsent() {
		c.partial.Store(false)
		c.blocked.Store(false)
		c.armWritable(l.events.set, false)
		return ends
	}
	if list := b.takeUnstarted(); len(list) > 0 {
		l.out.putBack(list)
	}
	l.noteStuck(c)
	return ends
}

// noteStuck records that a connection takes no more. It belongs to the holder of c.wmu.
func (l *Link) noteStuck(c *conn) {
	l.count.Blocked.Add(1)
	c.partial.Store(true)
	c.blocked.Store(true)
	c.armWritable(l.events.set, true)
}

// endSent ends a transfer that was sent whole.
func (l *Link) endSent(s sent) {
	if s.get != nil {
		l.getSent(s.get)
		return
	}
	l.putSent(s.put)
}

// serveAlone serves the link without a driver until it is down.
func (l *Link) serveAlone() {
	s := served{l}
	fds := []unix.PollFd{{Fd: int32(s.Fd()), Events: unix.POLLIN}}
	rung := true
	for {
		moved, ok := s.Serve(rung)
		if !ok {
			return
		}
		if rung = false; moved > 0 || s.Arm() == 0 {
			continue
		}
		_, err := unix.Poll(fds, -1)
		rung = err == nil || !errors.Is(err, unix.EINTR)
	}
}

// active is the Link as what has to be polled.
type active struct{ *Link }

// Poll implements link.Active.
func (a active) Poll() {
	l := a.Link
	if !l.started.Load() || l.awake.Load() || l.down.Load() {
		return
	}
	for _, c := range l.conns {
		l.receiveFrom(c)
	}
	if l.dirty.Load() {
		l.scheduleSend()
	}
}

// Arm implements link.Active: what comes wakes whoever serves the link.
func (a active) Arm() {}

// Mailbox implements link.Active.
func (a active) Mailbox(v fabric.VPID, limit int) {
	l := a.Link
	for old := l.offered[v].Load(); uint64(limit) > old; old = l.offered[v].Load() {
		if l.offered[v].CompareAndSwap(old, uint64(limit)) {
			break
		}
	}
	l.out.openMailbox(v, limit)
	l.dirty.Store(true)
	if l.started.Load() {
		l.wakeServer() // not schedule: the caller holds the set's lock
	}
}

var (
	_ link.Served = served{}
	_ link.Active = active{}
	_ link.Port   = port{}
)
