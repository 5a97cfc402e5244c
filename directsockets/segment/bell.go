package segment

import (
	"os"

	"exnet/internal/shm"

	"golang.org/x/sys/unix"
)

// Bell lends the doorbell, to wait on with the runtime's poller until Close. Call Awake after each
// wait.
func (e *End) Bell() *os.File { return e.file }

// Awake takes the armings back and empties the doorbell. Call it after every wake-up, whatever its
// cause. The byte may have been for the other user of this End, so both users must look again, and
// arm again before they wait.
func (e *End) Awake() {
	e.disarm(armRX | armTX)
	e.drainBell()
}

// OnHeard has f called, by whoever has RX, when RX has read the doorbell to take a region's
// descriptor: a byte may have been for a sleeper of TX, who must look again. Call it before use.
func (e *End) OnHeard(f func()) { e.heard = f }

// maxUnread is how many armings may leave their bytes in the doorbell, at most.
const maxUnread = 32

// unreadOf is how many may in the doorbell bell: each has the peer ring twice, or a few times if
// it is several processes, and the kernel charges less than 1 KiB for a byte by itself.
func unreadOf(bell int) uint32 {
	room, err := unix.GetsockoptInt(bell, unix.SOL_SOCKET, unix.SO_SNDBUF) // the peer's is the same
	if err != nil {
		return 0
	}
	return uint32(min(room/(4<<10), maxUnread))
}

// numbers masks the number of an arming.
const numbers = 1<<(32-numberShift) - 1

// Due reports whether Awake is due before a sleep, though nothing has woken: the peer is gone,
// which a waiter for edges (epoll) is told only once, or the doorbell has been left unread for
// long. Leaving it unread saves a call for each sleep, and the peer an edge of EPOLLOUT for each
// byte that is read.
func (e *End) Due() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bell >= 0 && (e.isFull() || shm.HungUp(e.bell))
}

// Full reports whether the doorbell has been left unread for long.
func (e *End) Full() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bell >= 0 && e.isFull()
}

func (e *End) isFull() bool { return (e.attention.Word()>>numberShift-e.hushed)&numbers > e.unread }

func (e *End) drainBell() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bell < 0 {
		return
	}
	e.hushed = e.attention.Word() >> numberShift
	fds, gone := shm.Hush(e.bell, e.fds)
	if e.apart != nil && len(fds) > 0 { // nobody asks for any
		e.apart(closeAll(fds))
		fds = nil
		e.bad.Store(true)
	}
	for len(fds) > maxPassed { // nobody asked for so many
		_ = unix.Close(fds[len(fds)-1])
		fds = fds[:len(fds)-1]
	}
	e.fds = fds
	if gone {
		e.gone.Store(true)
	}
}

// closeAll returns what closes descriptors.
func closeAll(fds []int) func() {
	return func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
}

// armFlag sets a flag of the attention word, with a new number, and orders it before
// what is looked at next.
func (e *End) armFlag(flag uint32) {
	if e.bad.Load() {
		return
	}
	e.mu.Lock()
	e.attention.Change(1<<numberShift, 0, flag)
	e.mu.Unlock()
	// The flag is looked at after attention is written, not before (fence.go).
	if e.sleeperExpedites() && e.peer.flags.Load()&flagFences == 0 {
		shm.Membarrier()
	}
}

// sleeperExpedites reports whether a sleeper of this side calls membarrier.
func (e *End) sleeperExpedites() bool { return e.register && e.relation.Load() != relationFence }

func (e *End) disarm(flags uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.bad.Load() {
		e.attention.Change(0, flags, 0)
	}
}

// fencePublished separates what is published from a look at the peer's attention.
func (e *End) fencePublished() {
	if e.relation.Load() != relationExpedited || e.fences.Load() {
		e.dummy.Store(0)
	}
}

// wakePeer rings if the peer has armed flag, once for each arming, and reports whether it did. rung
// is the last attention word that was rung for.
func (e *End) wakePeer(attention, flag uint32, rung *uint64) (rang bool) {
	number := uint64(attention)>>numberShift | 1<<32
	if attention&flag == 0 || number == *rung {
		return false
	}
	*rung = number
	e.ringBell()
	return true
}

func (e *End) ringBell() {
	e.mu.Lock()
	if e.bell >= 0 && !e.bad.Load() {
		shm.Ring(e.bell)
		e.wakeUps()
	}
	e.mu.Unlock()
}

func (e *End) wakeUps() { e.count[WakeUps].Add(1) }

// raiseFlags sets flags of the attention word, and wakes the peer to see them.
func (e *End) raiseFlags(flags uint32) {
	if e.bad.Load() {
		return
	}
	e.mu.Lock()
	shm.Publish()
	e.attention.Change(0, 0, flags)
	e.mu.Unlock()
	e.ringIfArmed()
}

// lowerFlags clears flags.
func (e *End) lowerFlags(flags uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.attention.Change(0, flags, 0)
}

// ringIfArmed rings after a change of flags or state.
func (e *End) ringIfArmed() {
	e.dummy.Store(0)
	if e.peer.attention.Load()&(armRX|armTX) != 0 {
		e.ringBell()
	}
}
