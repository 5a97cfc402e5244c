package segment

import "encoding/binary"

// Freeze takes nothing more from the queue: the peer sends the rest on the shadow. ErrEnding: it
// cannot, because it has ended this direction or has gone. ErrAgain: a sink is being filled,
// receive it first. It belongs to RX. Recv returns ErrDemoted from now on; see Thaw.
func (e *End) Freeze() error {
	r := &e.rx
	switch {
	case e.bad.Load():
		return ErrCorrupt
	case r.phase == phaseDemoted:
		return nil
	case r.phase == phaseEnded || e.Err() != nil || e.ending():
		return ErrEnding
	case !e.WithdrawSink():
		return ErrAgain
	}
	r.thawed, r.phase = r.phase, phaseDemoted
	r.frozen = true
	e.give()
	e.own.frozenSlot.Store(r.count)
	e.own.frozenOff.Store(uint32(r.curLen - r.cur.Len()))
	e.raise(frozenFlag)
	return nil
}

// Thaw is for whoever has frozen this direction and waits. It reports whether the
// peer had ended the direction before it looked, or has gone, so that the queue is
// to be read to its end after all, before the shadow is read further. shadow says
// that the shadow has something after the bytes that PromotedAt tells of: bytes, an
// end of file, an error. Call it when that is so, and when the doorbell has rung. It
// belongs to RX.
func (e *End) Thaw(shadow bool) bool {
	r := &e.rx
	if !r.frozen || e.bad.Load() {
		return false
	}
	a := e.peer.attention.Load()
	if a&rolledFlag != 0 {
		r.frozen = false
		return false
	}
	if _, _, ok := e.status(); !ok && r.cur.Len() == 0 {
		return false // nothing to read
	}
	if !e.ending() && e.Err() == nil || !shadow && a&standsFlag == 0 {
		return false
	}
	if e.peer.attention.Load()&rolledFlag != 0 { // read after the end was found
		r.frozen = false
		return false
	}
	r.frozen, r.phase = false, r.thawed
	return true
}

// PeerFrozen reports whether the peer takes nothing more from this side. It may be
// called from any goroutine; Rollback is TX's to call.
func (e *End) PeerFrozen() bool { return e.peer.attention.Load()&frozenFlag != 0 }

// Rolled reports whether the peer has found that this side froze, so that all there
// is comes on the shadow. It may be called from any goroutine.
func (e *End) Rolled() bool { return e.peer.attention.Load()&rolledFlag != 0 }

// Readable is how many bytes have come that Recv has not returned. It belongs to
// RX.
func (e *End) Readable() int {
	sum := 0
	if e.rx.phase == phaseDirect && !e.bad.Load() {
		e.scan(func(tag Tag, n int) bool {
			sum += n
			return tag != TagShutdown && tag != TagDemote
		})
		sum -= e.rx.curLen - e.rx.cur.Len()
	}
	return max(sum, 0)
}

// ending reports whether SHUTDOWN or DEMOTE is in the queue.
func (e *End) ending() (found bool) {
	e.scan(func(tag Tag, _ int) bool {
		found = tag == TagShutdown || tag == TagDemote
		return !found
	})
	return found
}

// scan calls f with the messages that have come, and the bytes that each says it
// has, until f returns false.
func (e *End) scan(f func(tag Tag, n int) bool) {
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
			n = min(int(binary.LittleEndian.Uint32(b[:])), maxRMA)
		}
		if !f(tag, n) {
			return
		}
	}
}
