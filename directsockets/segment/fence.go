package segment

import "exnet/internal/shm"

// Between sides that are both EXPEDITED, the sleeper pays for the barrier, by a membarrier(2) that
// interrupts the other CPUs, and the publisher pays nothing. That is right while messages find
// their reader awake. When nearly every message rings, the interrupts are more than half of all the
// work; so a side whose messages do so fences by itself and sets FENCES, and the peer sleeps
// without membarrier.
//
//	to begin:  fences = true;  membarrier;  flag on
//	to end:    flag off;  fences = false
//	publish:   M;  look at fences, and fence if so;  look at the peer's attention
//	sleep:     attention;  look at the flag;  membarrier unless it is on;  look for M
//
// The membarrier puts a publisher that is in the middle of it either before or after. A sleeper
// that has found the flag on has stored its attention before the flag goes off. wake_test.go tries
// all orders.

const (
	// often is when a ring comes soon after another one: this many messages later, at most.
	often = 8
	// oftenRings is how many such rings in a row make a side fence.
	oftenRings = 16
	// quietAfter is how many messages without a ring end that.
	quietAfter = 1024
)

// rings is what a sender knows of its rings.
type rings struct {
	last uint64 // tx.sent at the last one
	row  int    // how many have come soon after each other
}

// noteRung is called after a message has rung. It belongs to TX.
func (e *End) noteRung() {
	r := &e.tx.rings
	if e.tx.sent-r.last > often {
		r.row = 0
	}
	r.last = e.tx.sent
	if r.row++; r.row == oftenRings && !e.fences.Load() && e.relation.Load() == relationExpedited && !e.bad.Load() {
		e.fences.Store(true)
		shm.Membarrier()
		e.setFlags(flagFences, 0)
	}
}

// notRung is called after a message that has not rung, while this side fences. It belongs to TX.
func (e *End) notRung() {
	if r := &e.tx.rings; e.tx.sent-r.last > quietAfter && !e.bad.Load() {
		r.row = 0
		e.setFlags(0, flagFences)
		e.fences.Store(false)
	}
}

// setFlags changes the own flags.
func (e *End) setFlags(on, off uint32) { e.own.flags.Store(e.own.flags.Load()&^off | on) }
