package directsockets

import (
	"runtime"
	"sync"
	"sync/atomic"

	"exnet/internal/shm"
)

// States of a lock's word.
const (
	lockFree = 0
	lockHeld = 1
	lockLent = 2 // its holder runs foreign code, which may take long
	lockGone = 3 // Close took it from a holder that had lent it: for good
)

// Bits of a lock's want: work that is left to whoever has the lock, and wantLock.
const (
	wantLock     = 1 << 0 // somebody waits for the lock
	wantInstall  = 1 << 1 // look at the segment that Conn.pending has
	wantFallBack = 1 << 2 // move the direction back to the shadow, for good
	wantShutdown = 1 << 3 // end the outbound direction
	wantReturn   = 1 << 4 // the peer has fallen back, perhaps
	wantLook     = 1 << 5 // the doorbell has rung while the segment was watched
	wantHand     = 1 << 6 // have the shadow be one that can be handed over

	wantWork = wantInstall | wantFallBack | wantShutdown | wantReturn | wantLook | wantHand
)

// lock is the lock of one direction of a connection. The reader or writer holds it, even while it
// sleeps; others leave it work and wake it (wakeHalf).
//
//	free ──take──▶ taken ──lend──▶ lent ──steal (Close)──▶ gone
//	  ▲────free─────┘ ▲─────back────┘
//
// A locked instruction waits until all stores have reached the cache, and those of a direct socket
// go to lines that the peer has. So a lock costs only one, when it is taken: free is a plain store
// and a plain load, and whoever leaves work or wants the lock makes all threads pass a barrier
// between its write and its next look (shm.Membarrier).
type lock struct {
	word atomic.Uint64
	want atomic.Uint32
	// plain: free does without a locked instruction. It is set by the holder, and
	// stays.
	plain atomic.Bool

	mu      sync.Mutex
	cond    sync.Cond   // of mu; signalled when the lock is free, or lent
	waiting int32       // guarded by mu
	away    atomic.Bool // calls of the program's do not get it any more
}

func (t *lock) init() { t.cond.L = &t.mu }

// try takes the lock if it is free.
func (t *lock) try() bool { return t.word.CompareAndSwap(lockFree, lockHeld) }

// take waits for the lock. False: Close has it, for good, or the program's calls go elsewhere.
func (t *lock) take() bool { return t.try() || t.takeSlow(false, false) }

// takeInner is take for what is not a call of the program's.
func (t *lock) takeInner() bool { return t.try() || t.takeSlow(false, true) }

// seizeForClose is take for Close, which does not wait for a holder that has lent the lock. stolen:
// that holder finds out when it comes back.
func (t *lock) seizeForClose() (stolen bool) {
	t.takeSlow(true, true)
	return t.word.Load() == lockGone
}

func (t *lock) takeSlow(steal, inner bool) bool {
	for range 2 {
		runtime.Gosched()
		if t.try() {
			return true
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting++
	t.want.Or(wantLock)
	defer func() {
		if t.waiting--; t.waiting == 0 {
			t.want.And(^uint32(wantLock))
		}
	}()
	for {
		t.fenceWant()
		switch {
		case t.away.Load() && !inner:
			return false
		case t.try():
			return true
		case t.word.Load() == lockGone:
			return false
		case steal && t.word.CompareAndSwap(lockLent, lockGone):
			t.cond.Broadcast()
			return true
		}
		t.cond.Wait()
	}
}

// fenceWant orders what the caller has written to want before what it looks at next,
// against free.
func (t *lock) fenceWant() {
	if t.plain.Load() {
		shm.Membarrier()
	}
}

// leaveWork leaves work for the holder of the lock, and reports whether the caller now holds it. If
// not, the caller wakes the holder.
func (t *lock) leaveWork(work uint32) (mine bool) {
	t.want.Or(work)
	t.fenceWant()
	return t.try()
}

// takeWork takes work of these kinds, if some was left.
func (t *lock) takeWork(work uint32) bool {
	for {
		w := t.want.Load()
		if w&work == 0 {
			return false
		}
		if t.want.CompareAndSwap(w, w&^work) {
			return true
		}
	}
}

// free releases the lock, and reports whether somebody wants something.
func (t *lock) free() (wanted bool) {
	if t.plain.Load() {
		shm.Release(&t.word, lockFree)
	} else {
		t.word.Store(lockFree)
	}
	return t.want.Load() != 0
}

// wakeNext has the next one look at the lock.
func (t *lock) wakeNext() {
	t.mu.Lock()
	if t.waiting > 0 {
		t.cond.Broadcast() // Signal could wake one who cannot steal what is lent
	}
	t.mu.Unlock()
}

// sendAway has calls of the program's not get the lock any more.
func (t *lock) sendAway() {
	t.away.Store(true)
	t.wakeNext()
}

// lend lets Close take the lock until back.
func (t *lock) lend() {
	t.word.Store(lockLent)
	if t.want.Load()&wantLock != 0 {
		t.wakeNext()
	}
}

// back ends lend. False: the lock was taken for good.
func (t *lock) back() bool { return t.word.CompareAndSwap(lockLent, lockHeld) }
