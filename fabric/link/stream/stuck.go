package stream

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"exnet/fabric/rma"
)

// progress is how far a transfer has come, as the beats see it. The lock of the table that has the
// transfer guards all but moved.
type progress struct {
	moved atomic.Uint64 // bytes
	seen  uint64        // of moved, at the last beat that saw it change
	all   uint64        // Link.moved at that beat,
	last  uint64        // and at the last beat
	idle  int           // beats since its own bytes have moved,
	quiet int           // and since any have
	begun bool          // a beat has seen it
}

// fair is how many bytes of others may pass a transfer that waits for its turn: all that can be
// under way, which are sent by turns.
const fair = 2 * maxOps * rma.MaxTransfer

// reset is called for a new transfer.
func (p *progress) reset() {
	p.moved.Store(0)
	p.begun = false
}

// beatsStanding is called at each beat, and returns for how many the transfer has not moved
// although it was its turn: for as long as nothing else has moved either, or since too much has
// passed it. all is how many bytes of all transfers have moved.
func (p *progress) beatsStanding(all uint64) int {
	if now := p.moved.Load(); now != p.seen || !p.begun {
		p.seen, p.all, p.last, p.idle, p.quiet, p.begun = now, all, all, 0, 0, true
		return 0
	}
	p.idle++
	p.quiet++
	if all != p.last {
		p.last, p.quiet = all, 0
	}
	if all-p.all > fair {
		return p.idle
	}
	return p.quiet
}

// isStalled is called at each beat. It reports whether a transfer does not come to its end,
// although the peer lives: it holds memory, here and of programs. A link that is only slow moves
// some bytes.
func (l *Link) isStalled(limit int) bool {
	for _, c := range l.conns {
		if c.isDraining() {
			l.moved.Add(1)
		}
	}
	beats := l.longestStanding()
	return beats > limit && (!l.hasUnread() || beats > 2*limit)
}

// isDraining reports whether the peer's host has got bytes since the last beat that wait in a
// socket for data.
//
// +checklocksignore: it does not know TryLock
func (c *conn) isDraining() bool {
	if !c.data || c.messages || !c.wmu.TryLock() { // who has closed it keeps the lock
		return false
	}
	defer c.wmu.Unlock()
	n, err := unix.IoctlGetInt(c.fd, unix.TIOCOUTQ)
	was := c.queued
	c.queued = n
	return err == nil && n != was
}

// longestStanding returns for how many beats a transfer stands, of the one that does so longest.
func (l *Link) longestStanding() (beats int) {
	all := l.moved.Load()
	l.ops.mu.Lock()
	for i := range l.ops.ops {
		switch o := &l.ops.ops[i]; o.state {
		case opGet:
			beats = max(beats, o.progress.beatsStanding(all))
		case opPut:
			beats = max(beats, o.xfer.progress.beatsStanding(all))
		}
	}
	l.ops.mu.Unlock()
	l.serving.mu.Lock()
	for p := range l.serving.lands {
		beats = max(beats, p.progress.beatsStanding(all))
	}
	l.serving.mu.Unlock()
	l.out.mu.Lock()
	for x := range l.out.live {
		beats = max(beats, x.progress.beatsStanding(all))
	}
	l.out.mu.Unlock()
	return beats
}

// chunkArrived is called by the pump: n bytes of the chunk have come.
func (l *Link) chunkArrived(in *incoming, n int) {
	l.moved.Add(uint64(n))
	if in.get != nil {
		in.get.progress.moved.Add(uint64(n))
	} else {
		in.put.progress.moved.Add(uint64(n))
	}
}
