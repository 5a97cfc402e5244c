package segment

import (
	"encoding/binary"
	"io"
	"math"
	"slices"
)

// FallBack takes nothing more from the queue: the peer sends the rest on the shadow. ErrEnding: it
// cannot, because it has ended this direction or has gone. ErrAgain: a sink is being filled,
// receive it first. It belongs to RX. Recv returns ErrDemoted from now on; see Resume.
func (e *End) FallBack() error {
	r := &e.rx
	switch {
	case e.bad.Load():
		return ErrCorrupt
	case r.phase == phaseDemoted:
		return nil
	case r.phase == phaseEnded || e.Err() != nil || e.firstEndIs(TagShutdown, TagDemote): // PAUSE would be followed by PROMOTE
		return ErrEnding
	case !e.WithdrawSink():
		return ErrAgain
	}
	r.resumed, r.phase = r.phase, phaseDemoted
	r.fallenBack = true
	e.returnSlots()
	e.own.fallbackSlot.Store(r.count)
	e.own.fallbackOff.Store(uint32(r.curLen - r.cur.Len()))
	e.raiseFlags(fallenBackFlag)
	return nil
}

// Resume is for whoever has fallen back and waits. It reports whether the
// peer has ended the direction before it looked, or has gone, so that the queue is
// to be read to its end after all, before the shadow is read further. ended says
// that the shadow has ended: by an end of file or an error. Call it when that is so,
// and when the doorbell has rung. It belongs to RX.
func (e *End) Resume(ended bool) bool {
	r := &e.rx
	if !r.fallenBack || e.bad.Load() {
		return false
	}
	// The flag is looked at last: it may be of an earlier PAUSE.
	if e.Err() == nil && !ended && (!e.firstEndIs(ends...) || e.peer.attention.Load()&standsFlag == 0) {
		return false
	}
	if e.PeerReturned() { // looked at after the end was found
		return false
	}
	r.fallenBack, r.phase = false, r.resumed
	return true
}

// Left returns, once the peer has set RETURNED (PeerReturned), where in the stream of the shadow
// this direction is what it was before FallBack: from bytes the shadow gives before what the peer
// left in the queue, and until bytes with that. It belongs to RX.
func (e *End) Left() (from, until uint64, err error) {
	r := &e.rx
	if e.bad.Load() || !r.fallenBack {
		return 0, 0, ErrCorrupt
	}
	r.fallenBack = false
	if r.count == r.start { // fallen back before PROMOTE was looked at
		w, s, ok := e.nextStatus()
		if !ok {
			return 0, 0, nil
		}
		if w.tag() != TagPromote || w.len() != promoteLen {
			return 0, 0, e.endOnBreach()
		}
		var b [promoteLen]byte
		s.Payload().CopyTo(b[:])
		r.promoted = binary.LittleEndian.Uint64(b[:])
		r.count++
	}
	off := uint64(r.curLen - r.cur.Len())
	impossible := false
	e.scanMessages(func(tag Tag, n int) bool {
		switch tag {
		case TagVELO, TagVELOLast, TagRMAInfo:
			r.restBytes += uint64(n)
			impossible = n == 0
		case TagRegion:
		default:
			impossible = !slices.Contains(ends, tag)
			return false
		}
		return !impossible
	})
	if r.restBytes < off || impossible || r.promoted > math.MaxInt64 {
		return 0, 0, e.endOnBreach()
	}
	r.restBytes -= off
	return r.promoted, r.promoted + r.restBytes, nil
}

// Rest has RecvRest receive what the shadow did not give of what Left tells of, before it ended:
// all but the first skip bytes. reset says that the shadow has not ended by an end of file. It
// belongs to RX.
func (e *End) Rest(skip uint64, reset bool) error {
	r := &e.rx
	if e.bad.Load() || skip > r.restBytes {
		return e.endOnBreach()
	}
	r.restBytes -= skip
	for skip > 0 {
		if r.cur.Len() == 0 && e.openMessage() != nil {
			return e.endOnBreach()
		}
		k := min(skip, uint64(r.cur.Len()))
		e.skipBytes(int(k))
		skip -= k
	}
	r.changed = reset
	return nil
}

// RecvRest is Recv for what is left after Rest. io.EOF: all of it was received. ErrReset: it is in
// memory that the peer may have changed. It belongs to RX.
func (e *End) RecvRest(p []byte) (n int, err error) {
	r := &e.rx
	for n < len(p) && r.restBytes > 0 && err == nil {
		switch {
		case e.bad.Load():
			err = ErrCorrupt
		case r.cur.Len() == 0 && e.openMessage() != nil:
			err = e.endOnBreach()
		case r.changed && r.get:
			err = ErrReset
		default:
			k := r.cur.Part(0, int(min(uint64(r.cur.Len()), r.restBytes))).CopyTo(p[n:])
			e.noteTaken(k)
			n += k
			r.restBytes -= uint64(k)
		}
	}
	e.keepMapped()
	switch {
	case n > 0:
		return n, nil
	case err == nil && r.restBytes == 0:
		err = io.EOF
	}
	return 0, err
}

// PeerFallenBack reports whether the peer takes nothing more from this side. It may be
// called from any goroutine; ReturnToTCP is TX's to call.
func (e *End) PeerFallenBack() bool { return e.peer.attention.Load()&fallenBackFlag != 0 }

// PeerReturned reports whether the peer has found that this side fell back, so that all there
// is comes on the shadow. It may be called from any goroutine.
func (e *End) PeerReturned() bool { return e.peer.attention.Load()&returnedFlag != 0 }

// Readable is how many bytes have come that Recv has not returned, or, after FallBack, that it
// would return after Resume. It belongs to RX.
func (e *End) Readable() int {
	sum := 0
	if (e.rx.phase == phaseDirect || e.rx.fallenBack) && !e.bad.Load() {
		e.scanMessages(func(tag Tag, n int) bool {
			sum += n
			return !slices.Contains(ends, tag)
		})
		sum -= e.rx.curLen - e.rx.cur.Len()
	}
	return max(sum, 0)
}

// Ending reports whether the queue holds the end of the direction, or the peer has gone: nothing
// can be returned to TCP any more. It belongs to RX.
func (e *End) Ending() bool { return e.firstEndIs(ends...) || e.Err() != nil }

// Hears has a peer that sleeps look once, and reports whether it has: then it will see FALLEN_BACK.
// It belongs to RX.
func (e *End) Hears() bool {
	r := &e.rx
	a := e.peer.attention.Load()
	if r.called != 0 {
		return a&(armRX|armTX) == 0 || uint64(a)>>numberShift|1<<32 != r.called
	}
	if a&(armRX|armTX) != 0 {
		r.called = uint64(a)>>numberShift | 1<<32
		e.ringBell()
	}
	return false
}

// ends are the messages after which nothing follows in the queue, or, of PAUSE, not yet.
var ends = []Tag{TagShutdown, TagDemote, TagPause}

// firstEndIs reports whether the first of ends in the queue is one of tags.
func (e *End) firstEndIs(tags ...Tag) (found bool) {
	e.scanMessages(func(tag Tag, _ int) bool {
		found = slices.Contains(tags, tag)
		return !slices.Contains(ends, tag)
	})
	return found
}

// scanMessages calls f with the messages that have come, and the bytes that each says it
// has, until f returns false.
func (e *End) scanMessages(f func(tag Tag, n int) bool) {
	r := &e.rx
	for i := range uint64(len(r.queue)) {
		w, s, ok := e.statusAt(r.count + i)
		if !ok {
			return
		}
		tag, n := w.tag(), 0
		switch tag {
		case TagVELO, TagVELOLast:
			n = min(w.len(), MaxVELO)
		case TagRMAInfo:
			var b [4]byte
			s.Payload().Part(rmaLenOff, len(b)).CopyTo(b[:])
			n = int(min(binary.LittleEndian.Uint32(b[:]), maxRMA))
		}
		if !f(tag, n) {
			return
		}
	}
}
