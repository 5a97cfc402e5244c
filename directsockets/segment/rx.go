package segment

import (
	"encoding/binary"
	"io"
	"math"

	"exnet/foreign"
	"exnet/internal/shm"
)

// rx is what the user of RX owns.
type rx struct {
	queue []foreign.Slot
	mem   foreign.Memory // the ring
	shift uint

	phase    phase
	count    uint64 // messages consumed whole
	start    uint64 // the message that is PROMOTE, or will be: 0, then the one after a PAUSE
	given    uint64 // count that the peer knows
	freed    uint64 // sum of the advances consumed
	freedOut uint64 // sum that the peer knows
	rung     uint64 // see wakePeer
	promoted uint64 // bytes on the shadow before PROMOTE

	cur     foreign.Memory // what is left of the message at count
	curLen  int            // its length; 0: it was not looked at
	advance uint64         // by which freed goes up then
	get     bool           // it is in a region, and the peer waits until it was taken
	sink    sink

	info   rmaInfo // the RMA_INFO at infoOf - 1, of which one copy is made
	infoOf uint64

	fallenBack bool   // by FallBack, and it is open whether that counts
	resumed    phase  // phase before
	restBytes  uint64 // after Left: bytes that RecvRest may still have to return
	called     uint64 // by Hears: number of the arming that was rung for; 0: none
	changed    bool   // by RecvRest, the peer's regions are not to be read any more
}

func (r *rx) init(queue []foreign.Slot, mem foreign.Memory) {
	r.queue, r.mem, r.shift = queue, mem, log2(len(queue))
}

// nextStatus is the status word of the next message; false if it has not come.
func (e *End) nextStatus() (word, *foreign.Slot, bool) { return e.statusAt(e.rx.count) }

func (e *End) statusAt(count uint64) (word, *foreign.Slot, bool) {
	r := &e.rx
	s := &r.queue[count&uint64(len(r.queue)-1)]
	w := word(s.Status.Load())
	shm.Observe()
	return w, s, w.lap() == uint32(count>>r.shift+1)
}

// PromotedAt returns whether this direction has moved to the segment, and after how many bytes on
// the shadow. Recv is for the bytes after those. It belongs to RX.
func (e *End) PromotedAt() (tcpBytes uint64, ok bool) {
	r := &e.rx
	waits := r.phase <= phasePaused || r.fallenBack && r.count == r.start
	if !waits || e.bad.Load() {
		return r.promoted, r.count > r.start
	}
	e.heedChange()
	w, s, ok := e.nextStatus()
	if !ok {
		return 0, false
	}
	if w.tag() != TagPromote || w.len() != promoteLen {
		_ = e.endOnBreach()
		return 0, false
	}
	var b [promoteLen]byte
	s.Payload().CopyTo(b[:])
	n := binary.LittleEndian.Uint64(b[:])
	if n > math.MaxInt64 { // what is due after it would wrap
		_ = e.endOnBreach()
		return 0, false
	}
	if r.phase <= phasePaused { // else it is there for Resume
		r.promoted, r.phase = n, phaseDirect
		r.count++
	}
	return n, true
}

// rxStanding returns why RX cannot continue; nil: it can.
func (e *End) rxStanding() error {
	switch {
	case e.bad.Load():
		return ErrCorrupt
	case e.rx.phase == phaseEnded:
		return io.EOF
	case e.rx.phase == phaseDemoted:
		return ErrDemoted
	case e.rx.phase == phasePaused:
		return ErrPaused
	case e.rx.phase == phaseShadow:
		if err := e.Err(); err != nil {
			return err
		}
		return ErrNotPromoted
	}
	return nil
}

// Recv copies to p what has come, and reports how much; it borrows p until return. ErrAgain:
// nothing is there. io.EOF: the peer has shut this direction down. ErrDemoted, ErrPaused: the
// direction continues on the shadow. It belongs to RX.
func (e *End) Recv(p []byte) (n int, err error) {
	if e.rx.phase != phaseDirect || e.bad.Load() {
		return 0, e.rxStanding()
	}
	e.heedChange()
	r := &e.rx
	if r.sink.n > 0 {
		e.passSink()
	}
	for n < len(p) {
		if r.cur.Len() == 0 {
			if k := e.takeVELO(p[n:]); k > 0 {
				n += k
				continue
			}
			if err = e.openMessage(); err != nil {
				break
			}
		}
		k := r.cur.CopyTo(p[n:])
		e.noteTaken(k)
		n += k
	}
	e.keepMapped()
	if n > 0 {
		return n, nil
	}
	return 0, err
}

// takeVELO takes as many VELO messages as fit whole into p.
func (e *End) takeVELO(p []byte) (n int) {
	r := &e.rx
	begun, lasts := r.count, uint64(0)
	for {
		w, s, ok := e.nextStatus()
		k, last := w.len(), uint64(w.tag()-TagVELO)
		if !ok || last > 1 || k == 0 || k > min(len(p)-n, MaxVELO) {
			break
		}
		s.Payload().CopyTo(p[n : n+k])
		n += k
		lasts += last
		r.count++
		if r.count-r.given >= uint64(len(r.queue)/4) {
			e.returnSlots()
		}
	}
	if n > 0 {
		e.count.Add(ReceivedDirect, uint64(n))
		e.count.Add(ReceivedVELOLast, lasts)
		if all := r.count - begun; all != lasts {
			e.count.Add(ReceivedVELO, all-lasts)
		}
		if r.given != r.count && e.peer.attention.Load()&armTX != 0 {
			e.returnSlots()
		}
	}
	return n
}

// Next lends what has come next, in one piece, until Release. Errors as of Recv. It
// belongs to RX.
func (e *End) Next() (m foreign.Memory, err error) {
	if e.rx.phase != phaseDirect || e.bad.Load() {
		return m, e.rxStanding()
	}
	if e.rx.sink.n > 0 {
		e.passSink()
	}
	if e.rx.cur.Len() == 0 {
		if err := e.openMessage(); err != nil {
			return m, err
		}
	}
	return e.rx.cur, nil
}

// Release gives back the first n bytes of what Next lent.
func (e *End) Release(n int) {
	if n > e.rx.cur.Len() {
		panic("segment: Release of more than Next lent")
	}
	if n > 0 {
		e.noteTaken(n)
	}
}

// openMessage looks at the message at count, and has cur be its data.
func (e *End) openMessage() error {
	r := &e.rx
	w, s, ok := e.nextStatus()
	if !ok {
		return e.whenEmpty()
	}
	n := w.len()
	switch w.tag() {
	case TagVELO, TagVELOLast:
		if n < 1 || n > MaxVELO {
			return e.endOnBreach()
		}
		r.cur = s.Payload().Part(0, n)
		e.count.Add(ReceivedVELO+int(w.tag()-TagVELO), 1)
	case TagRMAInfo:
		if n != rmaLen {
			return e.endOnBreach()
		}
		if !e.findData(e.infoAt(s)) {
			return e.endOnBreach()
		}
		e.count.Add(ReceivedRMAInfo, 1)
	case TagShutdown, TagDemote, TagPause:
		if n != 0 {
			return e.endOnBreach()
		}
		if w.tag() != TagShutdown && e.maybeReturned() {
			return ErrReset
		}
		bare := w.tag() == TagPause && r.count == r.start+1
		r.count++
		r.phase = phaseEnded
		counter, err := ReceivedShutdown, io.EOF
		switch {
		case w.tag() == TagShutdown:
		case w.tag() == TagDemote, e.attention.Word()&fallenBackFlag != 0: // too late for the peer to see it before PAUSE
			r.phase, counter, err = phaseDemoted, ReceivedDemote, ErrDemoted
		default:
			r.phase, counter, err = phasePaused, ReceivedDemote, ErrPaused
			r.start = r.count
		}
		if !bare { // as in last
			e.count.Add(counter, 1)
		}
		e.returnSlots()
		return err
	case TagRegion:
		if n != regionLen || !e.mapRegion(s.Payload()) {
			return e.endOnBreach()
		}
		r.count++
		return e.openMessage()
	default:
		return e.endOnBreach()
	}
	r.curLen = r.cur.Len()
	return nil
}

// maybeReturned reports whether the peer may have found that this side fell back, and its node is
// lost, which has not said so: then what is in the queue may come on the shadow as well.
func (e *End) maybeReturned() bool {
	return e.attention.Word()&fallenBackFlag != 0 && e.Relayed() && e.Err() == ErrReset && e.peer.attention.Load()&standsFlag == 0
}

// infoAt is the RMA_INFO at count, in slot s.
func (e *End) infoAt(s *foreign.Slot) *rmaInfo {
	r := &e.rx
	if r.infoOf != r.count+1 {
		r.info, r.infoOf = decodeInfo(s.Payload()), r.count+1
	}
	return &r.info
}

// findData has cur be the data that an RMA_INFO speaks of. False: it cannot be.
func (e *End) findData(info *rmaInfo) bool {
	r := &e.rx
	switch info.mode {
	case modePut:
		ring := uint64(r.mem.Len())
		if !info.liesWithin(ring) || info.advance < info.size || info.advance > ring {
			return false
		}
		r.cur, r.advance = r.mem.Part(int(info.place), int(info.size)), info.advance
	case modeGet:
		mem := e.inboundRegion(info.region)
		if !info.liesWithin(uint64(mem.Len())) {
			return false
		}
		r.cur, r.get = mem.Part(int(info.place), int(info.size)), true
		e.count.Add(ZCopyReceived, info.size)
	case modeSink:
		r.cur = e.sinkData(info)
		e.count.Add(ZCopyReceived, uint64(r.cur.Len()))
	}
	return r.cur.Len() > 0
}

// whenEmpty is what RX does when nothing is there.
func (e *End) whenEmpty() error {
	r := &e.rx
	if r.given != r.count || r.freedOut != r.freed {
		e.returnSlots()
	}
	if err := e.Err(); err != nil {
		if _, _, ok := e.nextStatus(); ok {
			return ErrAgain // it came before the end
		}
		return err
	}
	return ErrAgain
}

// noteTaken takes n bytes of the message at count, which have been received.
func (e *End) noteTaken(n int) {
	e.count.Add(ReceivedDirect, uint64(n))
	e.skipBytes(n)
}

// skipBytes takes n bytes of the message at count.
func (e *End) skipBytes(n int) {
	r := &e.rx
	if r.cur = r.cur.Part(n, r.cur.Len()-n); r.cur.Len() > 0 {
		return
	}
	r.cur, r.curLen = foreign.Memory{}, 0
	r.count++
	if r.advance > 0 || r.get {
		r.freed += r.advance
		r.advance, r.get = 0, false
		e.returnSlots()
		return
	}
	if r.count-r.given >= uint64(len(r.queue)/4) || e.peer.attention.Load()&armTX != 0 {
		e.returnSlots()
	}
}

// returnSlots gives back slots and space.
func (e *End) returnSlots() {
	r := &e.rx
	shm.Publish()
	if r.freedOut != r.freed {
		r.freedOut = r.freed
		shm.Release(e.own.freed, r.freed)
		e.count.Add(SentRMAAvail, 1)
	}
	if r.given != r.count {
		r.given = r.count
		shm.Release(e.own.consumed, r.count)
	}
	e.fencePublished()
	if a := e.peer.attention.Load(); a&armTX != 0 {
		e.wakePeer(a, armTX, &r.rung)
	}
}

// ArmRX arms for a message, for a change of the peer's flags or state. True: there
// is something already, and it is not armed. It belongs to RX.
func (e *End) ArmRX() (ready bool) {
	e.armFlag(armRX)
	if !e.rxReady() {
		return false
	}
	e.disarm(armRX)
	return true
}

// WatchRX is ArmRX for a user that sleeps on Bell, in a program whose scheduler looks for messages
// (shm.Scheduled): it arms before it sleeps itself. armed: the caller has to, as well. It belongs
// to RX.
func (e *End) WatchRX() (ready, armed bool) {
	r := &e.rx
	known := e.peer.attention.Load() & flagsMask
	if e.rxReady() {
		return true, true
	}
	if r.fallenBack {
		return false, false
	}
	s := &r.queue[r.count&uint64(len(r.queue)-1)]
	e.waiter.Expect(&s.Status, uint32(r.count>>r.shift+1), known, e.sleeperExpedites(), e.SameCPU())
	if e.waiter.Watch() != shm.Watched {
		return false, false
	}
	return false, true
}

// SpinRX looks up to n times whether a message has come, some 20 to 60 ns apart. It
// belongs to RX. It does not see flags of the peer's: look at them with Recv now and
// then.
func (e *End) SpinRX(n int) bool {
	r := &e.rx
	found := shm.SpinSlot(&r.queue[r.count&uint64(len(r.queue)-1)].Status, uint32(r.count>>r.shift+1), uint32(n))
	e.keepMapped()
	return found
}

// ReadyRX reports whether there is something that ArmRX is for. It belongs to RX.
func (e *End) ReadyRX() bool { return e.rxReady() }

// DisarmRX takes ArmRX back.
func (e *End) DisarmRX() {
	e.waiter.Unwatch()
	e.disarm(armRX)
}

func (e *End) rxReady() bool {
	r := &e.rx
	if r.fallenBack { // for Resume
		return e.peer.attention.Load()&(returnedFlag|standsFlag) != 0 || e.Err() != nil
	}
	if e.bad.Load() || r.phase == phaseEnded || r.phase == phaseDemoted || r.cur.Len() > 0 {
		return true
	}
	_, _, ok := e.nextStatus()
	return ok || e.Err() != nil
}
