package shm

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric/link"
	"exnet/internal/shm"
)

// With a driver, its thread does what else the link's goroutine does: it pumps, and
// waits for the bell. It looks at the link repeatedly while it has anything at
// all to do, and arms only before it waits, so that under load nobody rings.
//
//	       Take              Serve says that the link is down, or the driver ends
//	Connect ───▶ driven ─────────────────────────────────────────────▶ goroutine
//	             awake ⇄ waiting, dozing
//	         Serve   Arm, Doze

// drive is what belongs to the driver, and what it shares.
type drive struct {
	driver link.Driver   // nil: there is none
	left   chan struct{} // closed by Leave
	buf    [64]byte      // belongs to the driver
	moved  uint64        // belongs to the driver; Link.moved at the last Serve
	looked uint64        // belongs to the driver; Link.polls at the last Arm
}

// Quiet messages tell the peer that it may use memory again. It need not be woken
// for each of them.
const (
	quietMessages = 8                // so many wake it
	quietTime     = time.Millisecond // or the first of them after so long
)

// served is the Link as its driver sees it.
type served struct{ *Link }

// Fd implements link.Served.
func (s served) Fd() int { return s.sock.fd }

// Serve implements link.Served.
func (s served) Serve(rung bool) (moved int, ok bool) {
	l := s.Link
	if rung {
		l.answerBell()
	}
	if rung || !l.awake.Load() {
		l.awake.Store(true)
		l.disarmBell() // after the bell was answered: one that comes now stays
	}
	if l.failed.Load() {
		return 0, false
	}
	l.ringLate()
	if l.nothingToDo() {
		return 0, true
	}
	pos := l.pos.Load()
	if !l.lockPump() { // another goroutine has the lock, and looks again
		return 0, true
	}
	l.pumpOnce()
	bytes := l.moved.Load()
	moved = int(bytes-l.drive.moved) + shm.SlotSize*int(l.pos.Load()-pos)
	l.drive.moved = bytes
	return max(moved, 1), true
}

// answerBell takes the bells off the socket, and finds out whether the peer is gone.
func (l *Link) answerBell() {
	switch n, err := shm.Answer(l.sock.fd, l.drive.buf[:]); {
	case err == nil && n > 0:
		l.count.wakeups.Add(1)
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
	default:
		l.takeDown(ErrGone)
	}
}

// Arm implements link.Served.
func (s served) Arm() time.Duration {
	l := s.Link
	l.awake.Store(false)
	if p := l.polls.Load(); p != l.drive.looked && !l.armWanted.Load() {
		l.drive.looked = p // a consumer polls: as in waitAndPump
		return pollNap
	}
	l.armWanted.Store(false)
	l.armBell()
	// If another goroutine is at the pump, it looks again after this.
	if l.failed.Load() {
		return 0
	}
	if !l.nothingToDo() && l.lockPump() {
		l.unlockPump()
		return 0
	}
	if l.ringLate() {
		return quietTime
	}
	return link.Forever
}

// Doze implements link.Served.
func (s served) Doze() { s.awake.Store(false) }

// Bind implements link.Served.
func (s served) Bind(cpu int) { s.near.bound.Store(uint64(cpu + 1)) }

// PeerCPU implements link.Served. What the peer says need not be true.
func (s served) PeerCPU() int { return int(uint16(s.far.bound.Load())) - 1 }

// Leave implements link.Served.
func (s served) Leave() {
	s.Bind(-1)
	close(s.drive.left)
}

// disarmBell has the peer not ring: this side looks anyway. A bell that is on its way
// wakes it once for nothing.
func (l *Link) disarmBell() {
	if l.armed.Load() {
		l.near.armed.Store(0)
		l.armed.Store(false)
	}
}

// ringLater rings the bell for a message that can wait. The count comes before the
// look at the driver, which does it the other way round (Arm): one of them rings.
func (l *Link) ringLater() {
	if l.quiet.n.Add(1) == 1 {
		l.quiet.since.Store(l.now())
	}
	if l.awake.Load() {
		l.ringLate()
		return
	}
	l.quiet.n.Store(0)
	l.ringBell()
}

// ringLate rings the bell for messages that have waited long enough, and reports
// whether some still wait.
func (l *Link) ringLate() bool {
	n := l.quiet.n.Load()
	if n == 0 {
		return false
	}
	if n < quietMessages && l.now()-l.quiet.since.Load() < int64(quietTime) {
		return true
	}
	l.quiet.n.Store(0)
	l.ringBell()
	return false
}

func (l *Link) now() int64 { return int64(time.Since(l.begun)) }
