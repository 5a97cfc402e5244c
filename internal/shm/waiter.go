package shm

import "sync/atomic"

// Attention is the attention word of a side's control block. Package runtime of a program that
// exn-go built changes it, too, and has its fields in the same places.
type Attention struct {
	busy   atomic.Uint32  // a lock: of who changes it
	word   atomic.Uint32  // what shared is
	shared *atomic.Uint32 // the peer may write what it likes there
}

// Init has a be the word that shared is.
func (a *Attention) Init(shared *atomic.Uint32) { a.shared = shared }

// Word is what was last written.
func (a *Attention) Word() uint32 { return a.word.Load() }

// Change adds to the word, clears flags and then sets flags. Who else changes it is away soon.
func (a *Attention) Change(add, clear, set uint32) {
	for !a.busy.CompareAndSwap(0, 1) {
		Pause(1)
	}
	old := a.word.Load()
	if w := (old+add)&^clear | set; w != old {
		a.word.Store(w)
		a.shared.Store(w)
	}
	a.busy.Store(0)
}

// Waiter is who waits for the next message of a connection. Package runtime has its fields in the
// same places (cmd/exn-go/exngo/std/runtime/exn.go).
type Waiter struct {
	status    *atomic.Uint64
	peer      *atomic.Uint32
	peerFlags *atomic.Uint32
	own       *Attention
	lap       uint32
	known     uint32
	bell      int32
	expedited bool
	near      bool
	_         [2]uint32 // package runtime's: where it stands
}

// Init has w be the reader that sleeps on the doorbell bell, with what both sides say.
func (w *Waiter) Init(own *Attention, peer, peerFlags *atomic.Uint32, bell int) {
	w.own, w.peer, w.peerFlags, w.bell = own, peer, peerFlags, int32(bell)
}

// Expect has w wait for the message of a lap in the slot with this status word, while the peer's
// attention has the flags known. expedited: sleepers call Membarrier. near: the peer is on
// the same CPU.
func (w *Waiter) Expect(status *atomic.Uint64, lap, known uint32, expedited, near bool) {
	w.status, w.lap, w.known, w.expedited, w.near = status, lap, known, expedited, near
}

// What Watch says.
const (
	NotWatched   = 0 // the waiter has to arm
	Watched      = 1 // the scheduler looks, and arms before it sleeps
	WatchedLater = 2 // the same, but it sleeps now: the waiter has to arm for this time
)
