package directsockets

import (
	"runtime"
	"sync"
	"sync/atomic"

	"exnet/internal/shm"
)

// States of a turn's word.
const (
	turnFree  = 0
	turnTaken = 1
	turnLent  = 2 // its holder runs foreign code, which may take long
	turnGone  = 3 // Close took it from a holder that had lent it: for good
)

// Bits of a turn's want: work that is left to whoever has the turn, and wantTurn.
const (
	wantTurn     = 1 << 0 // somebody waits for the turn
	wantInstall  = 1 << 1 // look at the segment that Conn.pending has
	wantFreeze   = 1 << 2 // move the direction back to the shadow, for good
	wantShutdown = 1 << 3 // end the outbound direction
	wantRollback = 1 << 4 // the peer has frozen the direction, perhaps
	wantLook     = 1 << 5 // the doorbell has rung while the segment was watched

	wantWork = wantInstall | wantFreeze | wantShutdown | wantRollback | wantLook
)

// turn is the lock of one direction of a connection. Whoever reads or writes has
// it, also while he sleeps; others leave him work and wake him (half.kick).
//
//	free ──take──▶ taken ──lend──▶ lent ──steal (Close)──▶ gone
//	  ▲───leave─────┘ ▲─────back────┘
//
// A locked instruction waits until all stores have reached the cache, and those of
// a direct socket go to lines that the peer has. So there is one of them for each
// turn, at the beginning: leave is a plain store and a plain load, and who leaves
// work or wants the turn has all threads pass a barrier between what he writes and
// what he looks at (shm.Membarrier).
type turn struct {
	word atomic.Uint64
	want atomic.Uint32
	// plain: leave does without a locked instruction. It is set by the holder, and
	// stays.
	plain atomic.Bool

	mu      sync.Mutex
	cond    sync.Cond // of mu; signalled when the turn is free, or lent
	waiting int       // guarded by mu
}

func (t *turn) init() { t.cond.L = &t.mu }

// try takes the turn if it is free.
func (t *turn) try() bool { return t.word.CompareAndSwap(turnFree, turnTaken) }

// take waits for the turn. False: there will be none any more.
func (t *turn) take() bool { return t.try() || t.takeSlow(false) }

// seize is take for Close, which does not wait for a holder that has lent the turn.
// stolen: that one comes back some time, and finds out.
func (t *turn) seize() (stolen bool) {
	t.takeSlow(true)
	return t.word.Load() == turnGone
}

func (t *turn) takeSlow(steal bool) bool {
	for range 2 {
		runtime.Gosched()
		if t.try() {
			return true
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting++
	t.want.Or(wantTurn)
	defer func() {
		if t.waiting--; t.waiting == 0 {
			t.want.And(^uint32(wantTurn))
		}
	}()
	for {
		t.barrier()
		switch {
		case t.try():
			return true
		case t.word.Load() == turnGone:
			return false
		case steal && t.word.CompareAndSwap(turnLent, turnGone):
			t.cond.Broadcast()
			return true
		}
		t.cond.Wait()
	}
}

// barrier orders what the caller has written to want before what it looks at next,
// against leave.
func (t *turn) barrier() {
	if t.plain.Load() {
		shm.Membarrier()
	}
}

// ask leaves work for whoever has the turn, and reports whether the caller has it
// now. If not, it is the caller's to wake the holder.
func (t *turn) ask(work uint32) (mine bool) {
	t.want.Or(work)
	t.barrier()
	return t.try()
}

// asked takes work of these kinds, if some was left.
func (t *turn) asked(work uint32) bool {
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

// free gives the turn back, and reports whether somebody wants something.
func (t *turn) free() (wanted bool) {
	if t.plain.Load() {
		shm.Release(&t.word, turnFree)
	} else {
		t.word.Store(turnFree)
	}
	return t.want.Load() != 0
}

// wake has the next one look at the turn.
func (t *turn) wake() {
	t.mu.Lock()
	if t.waiting > 0 {
		t.cond.Broadcast() // Signal could wake one who cannot steal what is lent
	}
	t.mu.Unlock()
}

// lend lets Close take the turn until back.
func (t *turn) lend() {
	t.word.Store(turnLent)
	if t.want.Load()&wantTurn != 0 {
		t.wake()
	}
}

// back ends lend. False: the turn was taken for good.
func (t *turn) back() bool { return t.word.CompareAndSwap(turnLent, turnTaken) }
