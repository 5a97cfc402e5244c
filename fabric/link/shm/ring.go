package shm

import (
	"sync"
	"sync/atomic"

	"exnet/internal/shm"
)

// outRing is the writing side of the own ring: many goroutines write, the peer
// reads. It is velo's mailbox ring with the reader's index in the peer's memory.
type outRing struct {
	l    *Link
	ring []shm.Slot
	_    [128]byte

	tail     atomic.Uint64 // slots reserved
	headSeen atomic.Uint64 // a head that was true once
	_        [112]byte

	starved atomic.Bool // space was asked for, and not found since

	mu    sync.Mutex
	queue []message // guarded by mu; waits for space
}

// reserveSlot takes the next slot; nil if the ring is full.
func (r *outRing) reserveSlot() (*shm.Slot, uint64) {
	for {
		t := r.tail.Load()
		if int64(t-r.headSeen.Load()) >= RingSlots && !r.hasRoom(t) {
			return nil, 0
		}
		if r.tail.CompareAndSwap(t, t+1) {
			return &r.ring[t%RingSlots], t
		}
	}
}

// hasRoom looks at the peer's head and reports whether the slot at t is free.
func (r *outRing) hasRoom(t uint64) bool {
	h := r.l.far.head.Load()
	shm.Observe()
	if now := r.tail.Load(); now-h > RingSlots { // read after h, so not below it
		if !r.l.down.Load() {
			r.l.endByBreach("ring index out of range")
		}
		return false
	}
	r.headSeen.Store(h)
	return int64(t-h) < RingSlots
}

// reserveOrWait is reserveSlot, and has the peer report space if there is none.
func (r *outRing) reserveOrWait() (*shm.Slot, uint64) {
	if s, pos := r.reserveSlot(); s != nil {
		return s, pos
	}
	r.starved.Store(true)
	r.l.near.space.Add(1)
	return r.reserveSlot() // the peer may have missed the request
}

// firstLine is how much of the payload shares a cache line with the status word.
const firstLine = 64 - 8

// publishSlot publishes the slot reserved at pos, with n bytes of payload. A long message
// takes a second line, for which Store would wait before it writes the status word,
// while the first line goes to the peer, which polls it, and back. Who has to look
// at what the peer writes afterwards makes the fence.
func publishSlot(s *shm.Slot, pos, word uint64, n int) {
	shm.Publish()
	word = word&^phaseBit | phaseAt(pos)
	if n > firstLine {
		shm.Release(&s.Status, word)
		return
	}
	s.Status.Store(word)
}

// sendMessage sends a message that is not VELO's.
func (r *outRing) sendMessage(m *message) {
	r.queueMessage(m)
	r.l.ringBell()
}

// queueMessage puts a message that is not VELO's into the ring, or into a queue before it.
// The queue is bounded by the operations and flows that a link may have.
func (r *outRing) queueMessage(m *message) {
	if r.l.down.Load() {
		return
	}
	r.mu.Lock()
	if len(r.queue) > 0 || !r.writeLocked(m) {
		r.queue = append(r.queue, *m)
	}
	r.mu.Unlock()
}

func (r *outRing) writeLocked(m *message) bool {
	s, pos := r.reserveOrWait()
	if s == nil {
		return false
	}
	m.put(&s.Payload)
	publishSlot(s, pos, uint64(m.kind), msgLen)
	return true
}

// resumeQueue continues with the queue. It returns true if there was a wait for space,
// and it is over.
func (r *outRing) resumeQueue() bool {
	if !r.starved.Load() {
		return false
	}
	r.starved.Store(false) // first: who starves from here on asks anew
	if !r.hasRoom(r.tail.Load()) {
		r.starved.Store(true)
		r.l.near.space.Add(1)
		if !r.hasRoom(r.tail.Load()) {
			return false
		}
	}
	r.mu.Lock()
	n := 0
	for n < len(r.queue) && r.writeLocked(&r.queue[n]) {
		n++
	}
	r.queue = append(r.queue[:0], r.queue[n:]...)
	r.mu.Unlock()
	r.l.ringBell()
	return true
}
