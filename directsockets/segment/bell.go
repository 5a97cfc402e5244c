package segment

import (
	"os"

	"exnet/internal/shm"

	"golang.org/x/sys/unix"
)

// Bell lends the doorbell, to wait on with the runtime's poller until Close. Whoever
// comes back from waiting calls Awake.
func (e *End) Bell() *os.File { return e.file }

// Awake takes the armings back and reads the doorbell empty. It is for whoever was
// woken, by whatever. The byte may have been for the other user of this End: both
// users shall look again, and arm anew before they wait again.
func (e *End) Awake() {
	e.disarm(armRX | armTX)
	e.hush()
}

// Rung reports whether the doorbell has something for Awake. Who waits for edges
// (epoll) looks before it sleeps: that the peer is gone may be known already, and is
// told only once.
func (e *End) Rung() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bell >= 0 && shm.Rung(e.bell)
}

func (e *End) hush() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bell < 0 {
		return
	}
	fds, gone := shm.Hush(e.bell, e.fds)
	for len(fds) > maxPassed { // nobody asked for so many
		_ = unix.Close(fds[len(fds)-1])
		fds = fds[:len(fds)-1]
	}
	e.fds = fds
	if gone {
		e.gone.Store(true)
	}
}

// arm sets a flag of the attention word, with a new number, and orders it before
// what is looked at next.
func (e *End) arm(flag uint32) {
	if e.bad.Load() {
		return
	}
	e.mu.Lock()
	e.attention = (e.attention>>numberShift+1)<<numberShift | e.attention&(1<<numberShift-1) | flag
	e.own.attention.Store(e.attention)
	e.mu.Unlock()
	if e.register && e.relation.Load() != relationFence {
		shm.Membarrier()
	}
}

func (e *End) disarm(flags uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.attention&flags != 0 && !e.bad.Load() {
		e.attention &^= flags
		e.own.attention.Store(e.attention)
	}
}

// barrier stands between what is published and a look at the peer's attention.
func (e *End) barrier() {
	if e.relation.Load() != relationExpedited {
		e.dummy.Store(0)
	}
}

// wake rings if the peer has armed flag, once for each arming. rung is the last
// attention word that was rung for.
func (e *End) wake(attention, flag uint32, rung *uint64) {
	if number := uint64(attention)>>numberShift | 1<<32; attention&flag != 0 && number != *rung {
		*rung = number
		e.ring()
	}
}

func (e *End) ring() {
	e.mu.Lock()
	if e.bell >= 0 && !e.bad.Load() {
		shm.Ring(e.bell)
		e.wakeUps()
	}
	e.mu.Unlock()
}

func (e *End) wakeUps() { e.count[WakeUps].Add(1) }

// raise sets flags of the attention word, and wakes the peer to see them.
func (e *End) raise(flags uint32) {
	if e.bad.Load() {
		return
	}
	e.mu.Lock()
	e.attention |= flags
	shm.Publish()
	e.own.attention.Store(e.attention)
	e.mu.Unlock()
	e.ringIfArmed()
}

// ringIfArmed rings after a change of flags or state.
func (e *End) ringIfArmed() {
	e.dummy.Store(0)
	if e.peer.attention.Load()&(armRX|armTX) != 0 {
		e.ring()
	}
}
