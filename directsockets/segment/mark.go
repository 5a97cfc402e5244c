package segment

import (
	"fmt"

	"exnet/internal/shm"
)

// MarkFlags are what a program says about its ends: the bits of its attention word that nodes
// carry.
type MarkFlags uint8

// The flags that nodes know. They carry the others, too.
const (
	MarkFallenBack MarkFlags = fallenBackFlag // it takes nothing more from its queue, from a message and byte on
	MarkReturned   MarkFlags = returnedFlag   // it has found the peer's MarkFallenBack
	MarkStands     MarkFlags = standsFlag     // its DEMOTE stands
	MarkClosed     MarkFlags = closedFlag     // it has closed, or is gone
	MarkReset      MarkFlags = resetFlag      // abortively
	MarkOff        MarkFlags = offFlag        // an operator has switched it off

	// carried are all but the armings.
	carried = MarkFlags(flagsMask)
	// parting are those by which a node's own end ends.
	parting = MarkClosed | MarkReset
	// passing are those that a program takes back: STANDS of its PAUSE, and OFF.
	passing = MarkStands | MarkOff
)

// Mark is what a program says beside its messages.
type Mark struct {
	Flags MarkFlags
	Slot  uint64 // MarkFallenBack: from this message on
	Off   uint32 // and this byte of it
}

// Has reports whether all of some flags are set.
func (m Mark) Has(f MarkFlags) bool { return m.Flags&f == f }

// Mark is what the program says now. What it says came after the messages that Take
// returned before, and may have come before those that Take returns now. ErrCorrupt: it
// cannot be.
func (r *Relay) Mark() (m Mark, err error) {
	e := r.e
	if e.bad.Load() {
		return m, ErrCorrupt
	}
	a := e.peer.attention.Load()
	shm.Observe()
	m.Flags = MarkFlags(a) & carried
	if r.parted { // it has found this node's FALLEN_BACK, and not the far program's
		m.Flags &^= MarkReturned
	}
	if e.gone.Load() {
		m.Flags |= MarkClosed
	}
	if m.Has(MarkFallenBack) {
		m.Slot, m.Off = e.peer.fallbackSlot.Load(), e.peer.fallbackOff.Load()
		if m.Slot > e.tx.sent || m.Off > maxRMA || m.Off > 0 && m.Slot == e.tx.sent {
			return m, e.endOnBreach()
		}
	}
	return m, nil
}

// Say tells the program here what the far one says, but that it is closed: see Close.
// ErrRelay: it cannot say that.
func (r *Relay) Say(m Mark) error {
	e := r.e
	if m.Has(MarkFallenBack) && (m.Slot-r.given > r.out.count-r.given || m.Off > maxRMA || m.Off > 0 && m.Slot == r.out.count) {
		return fmt.Errorf("%w: fallen back at message %d of %d, byte %d", ErrRelay, m.Slot, r.out.count, m.Off)
	}
	r.lowerMarks(passing &^ m.Flags)
	flags := m.Flags & carried &^ r.said &^ parting
	if flags&MarkFallenBack != 0 {
		e.own.fallbackSlot.Store(m.Slot)
		e.own.fallbackOff.Store(m.Off)
	}
	if flags != 0 {
		r.said |= flags
		e.raiseFlags(uint32(flags))
	}
	return nil
}

// SayOff tells the program here that the far one is switched off, as Say does.
func (r *Relay) SayOff() {
	r.said |= MarkOff
	r.e.raiseFlags(offFlag)
}

// Said reports whether the program here was told a flag, and that was not taken back.
func (r *Relay) Said(f MarkFlags) bool { return r.said&f != 0 }

// lowerMarks takes back what Say has told.
func (r *Relay) lowerMarks(flags MarkFlags) {
	if flags &= r.said; flags != 0 {
		r.said &^= flags
		r.e.lowerFlags(uint32(flags))
	}
}
