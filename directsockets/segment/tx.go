package segment

import (
	"sync/atomic"

	"exnet/foreign"
	"exnet/internal/shm"
)

const (
	line     = 64       // advances of the ring are multiples of it
	askFreed = 8 << 10  // from this offset on a send asks what was freed, to start the ring over
	first    = 16 << 10 // the smallest limit of a chunk, for a receiver that waits
	minChunk = 4096     // the least space that a large send makes use of
	early    = 1024     // bytes of the ring that are prefetched for the next message
	narrow   = 1 << 20  // bytes of the ring in use at first: see widenRing
	long     = 8 << 20  // bytes after which a stream is long, and gets the whole ring
	ahead    = 7        // how many slots before its use a slot is prefetched

	// Send checks the peer every lookEvery ticks, about 6 ms; without ticks, every lookAfter
	// messages.
	lookEvery = 1 << 24
	lookAfter = 64
)

type phase uint8

const (
	phaseShadow  phase = iota // not promoted yet
	phasePaused               // PAUSE: it may be promoted again
	phaseDirect               // in the segment
	phaseEnded                // SHUTDOWN
	phaseDemoted              // DEMOTE, or fallen back and returned to TCP
)

// tx is what the user of TX owns.
type tx struct {
	queue  []foreign.Slot
	mem    foreign.Memory // the ring
	span   int            // how many bytes of it are in use, from its beginning: see widenRing
	stamps []atomic.Uint64
	shift  uint // log2 of the number of slots

	phase    phase
	sent     uint64 // messages sent
	paused   uint64 // sent after the last PAUSE
	promoted uint64 // sent after the last PROMOTE
	consumed uint64 // messages that the peer has consumed, as last read
	put      uint64 // sum of the ring's advances
	freed    uint64 // sum of the advances that the peer has freed, as last read
	pos      int    // offset of the next byte in the ring
	rung     uint64 // see wakePeer
	rings    rings
	want     int // bytes of the ring that the last Send lacked
	skip     int // bytes of the ring that Commit skips
	back     returning
	regions  outRegions
	pages    pages
	way      way
	at       uint64 // when the last message was sent, in ticks
	looked   uint64 // when the peer was last checked, in ticks
}

func (t *tx) init(queue []foreign.Slot, stamps []atomic.Uint64, mem foreign.Memory) {
	t.queue, t.stamps, t.mem, t.shift = queue, stamps, mem, log2(len(queue))
	t.span = min(mem.Len(), narrow)
}

// readCredit reads the peer's counts of what it has consumed and freed. False: they are impossible.
func (e *End) readCredit() bool {
	t := &e.tx
	c, f := e.peer.consumed.Load(), e.peer.freed.Load()
	shm.Observe()
	if t.sent-c > uint64(len(t.queue)) || t.put-f > uint64(t.mem.Len()) {
		return false
	}
	if t.consumed = c; t.freed != f {
		t.freed = f
		e.count.Add(ReceivedRMAAvail, 1)
		e.count.Set(RingUsed, t.put-f)
	}
	return true
}

// nextSlot is the slot of the next message; nil if the queue is full.
func (e *End) nextSlot() (*foreign.Slot, error) {
	t := &e.tx
	if t.sent-t.consumed >= uint64(len(t.queue)) {
		if !e.readCredit() {
			return nil, e.endOnBreach()
		}
		if t.sent-t.consumed >= uint64(len(t.queue)) {
			return nil, ErrAgain
		}
	}
	return &t.queue[t.sent&uint64(len(t.queue)-1)], nil
}

// publish publishes the next message.
func (e *End) publish(s *foreign.Slot, tag Tag, n int) { e.commitAt(s, tag, n, shm.Ticks()) }

// commitAt publishes the next message, which was sent at now.
func (e *End) commitAt(s *foreign.Slot, tag Tag, n int, now uint64) {
	t := &e.tx
	t.at = now
	if n <= stamped {
		s.Payload().PutUint64(stampAt(n), now)
	} else {
		shm.Release(&t.stamps[t.sent%stamps], now)
	}
	shm.Publish()
	shm.Release(&s.Status, uint64(wordOf(uint32(t.sent>>t.shift+1), tag, n)))
	t.sent++
	shm.PrefetchSlot(&t.queue[(t.sent+ahead)&uint64(len(t.queue)-1)].Status)
}

// wakeReader wakes the peer if the peer has armed RX.
func (e *End) wakeReader() {
	e.fencePublished()
	if a := e.peer.attention.Load(); a&armRX != 0 && e.wakePeer(a, armRX, &e.tx.rung) {
		e.noteRung()
	} else if e.fences.Load() {
		e.notRung()
	}
}

// messageError returns why TX cannot send any message; nil: it can.
func (e *End) messageError() error {
	switch {
	case e.bad.Load():
		return ErrCorrupt
	case e.tx.phase == phaseShadow:
		return ErrNotPromoted
	case e.tx.phase == phasePaused:
		return ErrPaused
	case e.tx.phase == phaseEnded:
		return ErrEnded
	case e.tx.phase == phaseDemoted:
		return ErrDemoted
	}
	return e.interruptError()
}

// dataError returns why TX cannot send data; nil: it can. Besides the reasons of messageError, the
// network may be cut, or an operator has switched the connection to TCP.
func (e *End) dataError() error {
	if err := e.messageError(); err != nil {
		return err
	}
	return e.goesBack()
}

// goesBack returns ErrCut if the connection goes back to TCP.
func (e *End) goesBack() error {
	e.heedChange()
	if e.Back() != 0 {
		return ErrCut
	}
	return nil
}

// interruptError returns an error if the peer has gone or has fallen back.
func (e *End) interruptError() error {
	a := e.peer.attention.Load()
	if err := e.departureError(a); err != nil {
		return err
	}
	if a&fallenBackFlag != 0 {
		return ErrFellBack
	}
	return nil
}

// Promote moves this direction to the segment, after tcpBytes on the shadow. It
// belongs to TX. ErrAgain: the peer does not look at the segment yet.
func (e *End) Promote(tcpBytes uint64) error {
	if err := e.messageError(); err != ErrNotPromoted {
		if err == nil {
			err = ErrDemoted
		}
		return err
	}
	if err := e.interruptError(); err != nil {
		return err
	}
	if err := e.goesBack(); err != nil {
		return err
	}
	return e.sendPromote(tcpBytes)
}

// PromoteToPause replaces Promote after that has returned ErrCut, on a relayed connection. The
// caller then calls Pause: only PAUSE lets the node at the other side tell its program that this
// direction is on the shadow (Lost). ErrCut: no such node, so nothing is to be told. It belongs
// to TX.
func (e *End) PromoteToPause(tcpBytes uint64) error {
	if e.tx.phase != phaseShadow || !e.Relayed() || !e.MayPause() {
		return ErrCut
	}
	return e.sendPromote(tcpBytes)
}

func (e *End) sendPromote(tcpBytes uint64) error {
	if !e.Attached() {
		return ErrAgain
	}
	s, err := e.nextSlot()
	if err != nil {
		return err
	}
	s.Payload().PutUint64(0, tcpBytes)
	e.publish(s, TagPromote, promoteLen)
	e.tx.promoted = e.tx.sent
	e.tx.phase = phaseDirect
	e.wakeReader()
	return nil
}

// Send sends as much of p as fits, in order, and borrows it until return. ErrAgain:
// nothing fits. It belongs to TX.
func (e *End) Send(p []byte) (n int, err error) {
	if e.tx.phase != phaseDirect || e.bad.Load() || e.gone.Load() || e.peer.attention.Load()&endFlags != 0 || e.peer.cut.Load() != 0 || e.switchedOff() {
		return 0, e.dataError()
	}
	now := e.tx.at // for a large send the time of the last message is exact enough
	if len(p) <= e.tuning.Threshold {
		now = shm.Ticks()
	}
	if int64(now-e.tx.looked) >= lookEvery || now == 0 && e.tx.sent%lookAfter == 0 {
		if e.checkPeerAlive(now); e.gone.Load() {
			return 0, e.messageError()
		}
	}
	e.tx.want = 0
	for rest := p; len(rest) > 0; rest = p[n:] {
		var k int
		if len(rest) <= e.tuning.Threshold {
			if n > 0 {
				now = shm.Ticks()
			}
			k, err = e.sendVELO(rest, now)
		} else {
			k, err = e.sendRMA(rest)
		}
		if n += k; err != nil {
			break
		}
	}
	e.keepMapped()
	if e.tx.sent >= e.tx.pages.turn {
		e.giveBack()
	}
	if n > 0 {
		e.count.Add(SentDirect, uint64(n))
		if err == ErrAgain {
			err = nil
		}
	}
	return n, err
}

// checkPeerAlive finds out whether the peer has been killed, of which nobody is told who only
// sends: what it sends would be lost without an error until the queue is full.
func (e *End) checkPeerAlive(now uint64) {
	e.tx.looked = now
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bell >= 0 && shm.HungUp(e.bell) {
		e.gone.Store(true)
	}
}

// SendVELO is Send in VELO messages only, for when the ring has no room (thesis section
// 5.5.3.2). It sends as much as the free slots hold. ErrAgain: no slot is free, or the other
// side is a node: a node carries the ring's bytes to another host at much less cost than so many
// messages. It belongs to TX.
func (e *End) SendVELO(p []byte) (n int, err error) {
	if err := e.dataError(); err != nil {
		return 0, err
	}
	if e.Relayed() {
		return 0, ErrAgain
	}
	if n, err = e.sendVELO(p, shm.Ticks()); n > 0 {
		e.count.Add(SentDirect, uint64(n))
		if err == ErrAgain {
			err = nil
		}
	}
	e.keepMapped()
	return n, err
}

// whole is how many VELO messages at most the peer sees all at once.
const whole = 4

// slotsFree reports whether the next k slots are free.
func (e *End) slotsFree(k int) bool {
	t := &e.tx
	most := uint64(len(t.queue) - k)
	return t.sent-t.consumed <= most || e.readCredit() && t.sent-t.consumed <= most
}

// sendWhole sends p in k VELO messages, whose slots are free. The peer sees all of them or none,
// like the bytes of one write on TCP: the first slot, at which the peer looks, is published
// last.
func (e *End) sendWhole(p []byte, k int, now uint64) {
	t := &e.tx
	first := t.sent
	tag := TagVELOLast
	for i := k - 1; i >= 0; i-- {
		part := p[i*MaxVELO : min(len(p), (i+1)*MaxVELO)]
		t.sent = first + uint64(i)
		s := &t.queue[t.sent&uint64(len(t.queue)-1)]
		s.Payload().Fill(part)
		e.commitAt(s, tag, len(part), now)
		tag = TagVELO
	}
	t.sent = first + uint64(k)
	e.count.Add(SentVELO, uint64(k-1))
	e.count.Add(SentVELOLast, 1)
}

// sendVELO sends p in VELO messages, at now.
func (e *End) sendVELO(p []byte, now uint64) (n int, err error) {
	if k := (len(p) + MaxVELO - 1) / MaxVELO; k > 1 && k <= whole && e.slotsFree(k) {
		e.sendWhole(p, k, now)
		e.wakeReader()
		return len(p), nil
	}
	var s *foreign.Slot
	for {
		if s, err = e.nextSlot(); err != nil {
			break
		}
		rest := p[n:]
		if len(rest) <= MaxVELO {
			s.Payload().Fill(rest)
			e.commitAt(s, TagVELOLast, len(rest), now)
			e.count.Add(SentVELOLast, 1)
			n = len(p)
			break
		}
		s.Payload().Fill(rest[:MaxVELO])
		e.commitAt(s, TagVELO, MaxVELO, now)
		e.count.Add(SentVELO, 1)
		n += MaxVELO
	}
	if n > 0 {
		e.wakeReader()
	}
	return n, err
}

// sendRMA sends the beginning of p through the ring.
func (e *End) sendRMA(p []byte) (n int, err error) {
	t := &e.tx
	if n, err := e.sendSink(p); n > 0 || err != nil {
		return n, err
	}
	s, err := e.nextSlot()
	if err != nil {
		return 0, err
	}
	if t.pos >= askFreed && t.put != t.freed && !e.readCredit() {
		return 0, e.endOnBreach()
	}
	limit := e.tuning.Chunk
	if t.put-t.freed < uint64(limit) { // the receiver waits, or nearly so: let it begin early
		limit = min(limit, max(limit/4, first))
	}
	n, skip := e.findRoom(min(len(p), limit))
	if n < 0 {
		return 0, e.endOnBreach()
	}
	if n == 0 {
		t.want = min(len(p), minChunk)
		return 0, ErrAgain
	}
	if skip > 0 {
		t.pos = 0
	}
	t.way.copyIn(t.mem.Part(t.pos, n), p[:n], n >= wayLeast && e.SameCPU())
	need := (n + line - 1) &^ (line - 1)
	e.putInfo(s, rmaInfo{mode: modePut, size: uint64(n), place: uint64(t.pos), advance: uint64(need + skip)})
	t.put += uint64(need + skip)
	if t.pos += need; t.pos == t.mem.Len() {
		t.pos = 0
	}
	e.count.Set(RingUsed, t.put-t.freed)
	e.wakeReader()
	if n <= minChunk {
		shm.PrefetchW(t.mem.Part(t.pos, min(need, early, t.mem.Len()-t.pos)))
	}
	return n, nil
}

// findRoom finds place for up to n bytes in one piece: how many, and how many bytes at
// the end of the ring are skipped for it. 0: none, negative: the peer's words
// cannot be.
func (e *End) findRoom(n int) (got, skip int) {
	t := &e.tx
	for fresh := false; ; fresh = true {
		if t.put == t.freed {
			t.pos = 0
		}
		least := min(n, minChunk)
		if t.span-t.pos < least && !e.widenRing() && t.pos == t.span {
			t.pos = 0
		}
		free := t.span - int(t.put-t.freed)
		end := t.span - t.pos
		switch {
		case free >= n && end >= n:
			return n, 0
		case end < least && free-end >= least:
			return min(n, free-end), end
		case end >= least && free >= least && (fresh || min(free, end) >= n/2):
			return min(n, free, end), 0
		case fresh:
			return 0, 0
		}
		if !e.readCredit() {
			return -1, 0
		}
	}
}

// widenRing grows the part of the ring in use to the whole ring, under load: the peer is behind by
// half of the part, or the stream is long, or a node carries it. It may do so only when TX is at
// the end of the part. False: TX starts over at the beginning of the part. So a connection that
// moves little touches little memory, and near CPUs find the ring's lines in their shared cache
// (docs/results/performance.md). If both ends run on one CPU, the part stays narrow to fit that
// CPU's cache.
func (e *End) widenRing() bool {
	t := &e.tx
	used := int(t.put - t.freed)
	if t.span == t.mem.Len() || used > t.pos { // what lies at the end of the part would be left behind
		return false
	}
	if !e.Relayed() && (used < t.span/2 && t.put < long || e.SameCPU()) {
		return false
	}
	t.span = t.mem.Len()
	return true
}

// Shutdown ends this direction: the peer reads an end of file after all that was
// sent. ErrAgain: no slot is free. ErrFellBack: call ReturnToTCP, and shut the shadow
// down then. It belongs to TX.
func (e *End) Shutdown() error { return e.sendLast(TagShutdown, phaseEnded, SentShutdown) }

// Demote continues this direction on the shadow. ErrAgain: no slot is free. ErrFellBack: call
// ReturnToTCP, which does the same. It belongs to TX.
func (e *End) Demote() error { return e.sendLast(TagDemote, phaseDemoted, SentDemote) }

// Pause is Demote, but the direction may be promoted again, after Resumed. MayPause says whether
// the peer understands that.
func (e *End) Pause() error { return e.sendLast(TagPause, phasePaused, SentDemote) }

// MayPause reports whether to call Pause after ErrCut, and not Demote: the peer knows PAUSE, and
// an operator has switched the connection to TCP, who may switch it back. It may be called from
// any goroutine.
func (e *End) MayPause() bool {
	return e.peer.flags.Load()&flagPauses != 0 && e.Back() != BackNetwork
}

// Resumed reports, by nil, that the peer has consumed PAUSE: Promote may be called again.
// ErrAgain: it has not. ErrFellBack: it has fallen back since; call ReturnToTCP, which has
// nothing to write. ErrDemoted: it had fallen back before PAUSE. It belongs to TX.
func (e *End) Resumed() error {
	t := &e.tx
	if e.bad.Load() {
		return ErrCorrupt
	}
	e.heedChange()
	if !e.readCredit() { // before the peer's flags: it falls back before it consumes PAUSE, or after
		return e.endOnBreach()
	}
	switch err := e.interruptError(); {
	case err == ErrFellBack && e.peer.fallbackSlot.Load() < t.paused:
		return ErrDemoted
	case err != nil:
		return err
	case t.consumed < t.paused:
		return ErrAgain
	}
	e.lowerFlags(standsFlag)
	t.phase = phaseShadow
	return nil
}

func (e *End) sendLast(tag Tag, p phase, counter int) error {
	if err := e.messageError(); err != nil {
		return err
	}
	e.tx.want = 0
	s, err := e.nextSlot()
	if err != nil {
		return err
	}
	bare := tag == TagPause && e.tx.sent == e.tx.promoted
	e.publish(s, tag, 0)
	if !bare { // bare: PAUSE follows PROMOTE at once, so no byte was direct
		e.count.Add(counter, 1)
	}
	e.wakeReader()
	e.dummy.Store(0)
	if e.peer.attention.Load()&fallenBackFlag != 0 { // the message is void
		return ErrFellBack
	}
	e.tx.phase = p
	if p == phasePaused {
		e.tx.paused = e.tx.sent
	}
	if p != phaseEnded {
		e.raiseFlags(standsFlag)
	}
	return nil
}

// FallenBack reports whether the peer has fallen back: it takes nothing more from the segment,
// and ReturnToTCP is due. It belongs to TX.
func (e *End) FallenBack() bool {
	return e.tx.phase < phaseEnded && e.peer.attention.Load()&fallenBackFlag != 0
}

// ArmTX asks the peer to ring when there is space, or when its flags or state change. True: that
// is so already, and nothing was armed. It belongs to TX.
func (e *End) ArmTX() (ready bool) {
	e.armFlag(armTX)
	if !e.txReady() {
		return false
	}
	e.disarm(armTX)
	return true
}

// DisarmTX takes ArmTX back.
func (e *End) DisarmTX() { e.disarm(armTX) }

// txReady reports whether Send would send something or return an error other than ErrAgain.
func (e *End) txReady() bool {
	t := &e.tx
	if e.messageError() != nil {
		return true
	}
	if !e.readCredit() {
		_ = e.endOnBreach()
		return true
	}
	if t.sent-t.consumed >= uint64(len(t.queue)) {
		return false
	}
	if t.want == 0 {
		return true
	}
	n, _ := e.findRoom(t.want)
	return n != 0
}
