package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"exnet/internal/shm"

	"golang.org/x/sys/unix"
)

// ErrRelay says that what is to be relayed into a segment cannot be: the other host has
// broken the protocol. The segment was not changed.
var ErrRelay = errors.New("segment: cannot be relayed")

// Relay is a node's end of a segment, in place of a program that is on another host. It takes what
// the program here sends out of one queue, for the node to carry there. It puts what comes from
// there into the other queue, unchanged. Both segments count the same messages and bytes. So what
// the far program gives back, and where it falls back, is said here by the same numbers, and a
// direction can go back to the shadow at any byte, and return.
//
// Both segments have queues and rings of one size: what fits into one fits into the other.
//
// Concurrency: one user at a time, but for Silent, Bell and Close.
type Relay struct {
	e *End

	out, in lane          // out: what the program here sends; in: what it gets
	given   uint64        // messages of out that the far program has consumed: their slots are free
	freed   uint64        // bytes of the ring of out that the far program has freed
	quiet   atomic.Uint64 // see Quiet
	rung    uint64        // see wakePeer
	said    MarkFlags     // what Say has told
	// parted: Part has had the program go back to TCP, which is never taken back. partedAt is how
	// many messages of out came before; the rest goes on the shadow.
	parted   bool
	partedAt uint64
	joined   bool // the client on the other host has attached; only a node that stands for it sets this
}

// Message is one message of a queue.
type Message struct {
	Tag  Tag
	Len  int
	Data [MaxVELO]byte // Len bytes
}

// Payload is the data of the message.
func (m *Message) Payload() []byte { return m.Data[:m.Len] }

// Place is where in the ring the data of an RMA_INFO is. It is for messages that Take has
// returned or Put has taken.
func (m *Message) Place() (off, n int) { return placeOf(m.Data[:rmaLen]) }

// ParsePlace returns where in a ring of some bytes the data of an RMA_INFO is. False: it cannot be
// there.
func ParsePlace(p []byte, ring int) (off, n int, ok bool) {
	if len(p) != rmaLen {
		return 0, 0, false
	}
	at := binary.LittleEndian.Uint64(p[rmaPlaceOff:])
	n = int(binary.LittleEndian.Uint32(p[rmaLenOff:]))
	if n < 1 || n > ring || at > uint64(ring-n) {
		return 0, 0, false
	}
	return int(at), n, true
}

func placeOf(p []byte) (off, n int) {
	return int(binary.LittleEndian.Uint64(p[rmaPlaceOff:])), int(binary.LittleEndian.Uint32(p[rmaLenOff:]))
}

// lanePhase is where a direction is, as its last message says.
//
//	shadow ── PROMOTE ─▶ direct ── SHUTDOWN, DEMOTE ─▶ over
//	   ▲                    │
//	   │                  PAUSE
//	   │                    ▼
//	   └── its sender ─── paused
//	     knows that it was consumed
type lanePhase uint8

const (
	laneShadow lanePhase = iota // PROMOTE is the next message
	laneDirect                  // any but PROMOTE is
	lanePaused                  // none is, until the sender is told that PAUSE was consumed
	laneOver                    // none is
)

// lane checks the messages of one direction, one after the other.
type lane struct {
	phase    lanePhase
	pauses   bool // both programs and both nodes know PAUSE
	ring     uint64
	count    uint64 // messages
	promote  uint64 // the number of the last PROMOTE
	advances uint64 // sum of those of the RMA_INFOs
	freed    uint64 // of these, given back
}

// afterPause reports whether PAUSE is the last message.
func (l *lane) afterPause() bool {
	return l.phase == lanePaused || l.phase == laneShadow && l.count > 0
}

// countMessage counts a message; false: the protocol does not allow it now.
func (l *lane) countMessage(tag Tag, p []byte) bool {
	if l.phase > laneDirect || (l.phase == laneShadow) != (tag == TagPromote) {
		return false
	}
	switch tag {
	case TagPromote:
		if len(p) != promoteLen {
			return false
		}
		l.phase, l.promote = laneDirect, l.count
	case TagVELO, TagVELOLast:
		if len(p) < 1 || len(p) > MaxVELO {
			return false
		}
	case TagRMAInfo:
		if len(p) != rmaLen {
			return false
		}
		i := rmaInfo{
			mode:    p[rmaModeOff],
			size:    uint64(binary.LittleEndian.Uint32(p[rmaLenOff:])),
			place:   binary.LittleEndian.Uint64(p[rmaPlaceOff:]),
			advance: binary.LittleEndian.Uint64(p[rmaAdvanceOff:]),
		}
		if i.mode != modePut || !i.liesWithin(l.ring) || i.advance < i.size || i.advance > l.ring-(l.advances-l.freed) {
			return false
		}
		l.advances += i.advance
	case TagShutdown, TagDemote:
		if len(p) != 0 {
			return false
		}
		l.phase = laneOver
	case TagPause:
		if len(p) != 0 || !l.pauses {
			return false
		}
		l.phase = lanePaused
	default:
		return false
	}
	l.count++
	return true
}

// NewRelay makes the node's end of a segment, as side. It takes bell, also when it fails.
// hardware: the reason is the link (End.Hardware).
func NewRelay(s *Segment, side Side, bell int, hardware bool) (*Relay, error) {
	e, err := NewEnd(s, side, bell, nil)
	if err != nil {
		return nil, err
	}
	flags := uint32(flagRelayed)
	if e.register {
		flags |= flagExpedited
	}
	if hardware {
		flags |= flagHardware
	}
	e.own.flags.Store(flags) // no zero copy: regions stay on their host
	ring := uint64(s.head.ring)
	return &Relay{e: e, out: lane{ring: ring}, in: lane{ring: ring}}, nil
}

// PeerPauses reports whether the program knows PAUSE.
func (r *Relay) PeerPauses() bool { return r.e.peer.flags.Load()&flagPauses != 0 }

// TakePauses has the program send PAUSE where it would send DEMOTE and may be promoted again. Call
// it before Attach, or before the server gets the segment.
func (r *Relay) TakePauses() {
	r.out.pauses = true
	r.e.own.flags.Or(flagPauses)
}

// PutPauses has Put take PAUSE.
func (r *Relay) PutPauses() { r.in.pauses = true }

// Attach is that of End.
func (r *Relay) Attach() error { return r.e.Attach() }

// Attached is that of End.
func (r *Relay) Attached() bool { return r.e.Attached() }

// Join tells the server that the client on the other host has attached, too: it may promote now.
func (r *Relay) Join() {
	if r.e.side == Client && !r.joined {
		r.joined = true
		r.e.own.state.Store(uint32(StateAttached))
	}
}

// Alone reports whether the program here is a server, and nobody has said Join: it has sent nothing
// in the segment, and the client, as far as is known here, looks at none.
func (r *Relay) Alone() bool { return r.e.side == Client && !r.joined }

// PeerState is how far the program has come.
func (r *Relay) PeerState() State { return r.e.PeerState() }

// Refuse tells the client that the server's side takes no such segment.
func (r *Relay) Refuse() { r.e.Withdraw() }

// Late says that the node is about to reset the connection since the far node has acknowledged
// nothing for so long.
func (r *Relay) Late() { r.e.own.flags.Or(flagLate) }

// Class is that of what the program sends, 0 to 63.
func (r *Relay) Class() uint8 { return uint8(r.e.peer.class.Load() & classBits) }

// UserTimeout is the program's TCP_USER_TIMEOUT; 0: it has set none.
func (r *Relay) UserTimeout() time.Duration {
	return time.Duration(r.e.peer.timeout.Load()) * time.Millisecond
}

// Waiting reports whether the program has sent what Take has not taken.
func (r *Relay) Waiting() bool {
	_, _, ok := r.e.nextStatus()
	return ok
}

// Rings are the memory of the two rings, for the NIC to read and to write: that which
// the program here writes, and that which it reads. It looks at none of both.
func (r *Relay) Rings() (out, in []byte) {
	s := r.e.seg
	mem := s.Exposed()
	at := func(side Side) []byte {
		off := s.rings + int(side)*s.head.ring
		return mem[off : off+s.head.ring : off+s.head.ring]
	}
	return at(1 - r.e.side), at(r.e.side)
}

// Part ends the direction that this node carries for the program here. Call it when Take and Pack
// have found no message; from then on they return none. Unless the direction ends by itself, the
// program finds FALLEN_BACK, and sends on the shadow what follows the messages already taken. done:
// nothing of the program remains to be carried, and say is what the far program is to find with
// CLOSED. Not done: call Part again when the program has said or sent something.
func (r *Relay) Part() (say MarkFlags, done bool) {
	e := r.e
	if r.said&MarkFallenBack == 0 {
		// A far program that falls back from now on finds MarkStands, and reads its queue after
		// all.
		r.parted, r.partedAt = true, r.out.count
		r.said |= MarkFallenBack
		if r.out.phase != laneOver {
			e.own.fallbackSlot.Store(r.out.count)
			e.own.fallbackOff.Store(0)
			e.raiseFlags(fallenBackFlag)
		}
	}
	switch {
	case r.out.phase == laneOver && r.parted: // the program ended the direction, and Take has had all of it
		return MarkStands, true
	case r.out.phase == laneOver, r.out.phase == lanePaused && !r.parted:
		// The far program's FALLEN_BACK (Say) and the program's DEMOTE or PAUSE have crossed. The
		// program looks once more, and says by RETURNED or STANDS which of the two counts.
		say = MarkFlags(e.peer.attention.Load()) & (MarkReturned | MarkStands)
		return say, say != 0
	}
	// After each message that it sends behind this barrier, the program looks for FALLEN_BACK.
	e.armFlag(armRX)
	returned := e.PeerReturned()
	_, _, more := e.nextStatus()
	if r.parted {
		return MarkStands, returned || !more
	}
	return MarkReturned, !more
}

// hasParted reports whether what the program has sent and Take has not taken goes on the shadow. A
// program that was killed before it found FALLEN_BACK puts nothing there. One that ends the
// direction just before does not look again; if it has found FALLEN_BACK, it puts nothing there
// that came before the end.
func (r *Relay) hasParted() bool {
	if !r.parted || r.out.count < r.partedAt {
		return false
	}
	if w, _, ok := r.e.nextStatus(); ok && r.out.count == r.partedAt && slices.Contains(ends, w.tag()) {
		return false
	}
	departed := r.e.gone.Load() || r.e.peer.attention.Load()&closedFlag != 0
	return !departed || r.e.PeerReturned()
}

// Take takes the next message of the program; false: there is none. ErrCorrupt: the program has
// broken the protocol by it.
func (r *Relay) Take(m *Message) (ok bool, err error) {
	e := r.e
	if e.bad.Load() {
		return false, ErrCorrupt
	}
	if r.hasParted() {
		return false, nil
	}
	w, s, ok := e.nextStatus()
	if !ok {
		return false, nil
	}
	m.Tag, m.Len = w.tag(), w.len()
	if m.Len > MaxVELO {
		return false, e.endOnBreach()
	}
	s.Payload().Part(0, m.Len).CopyTo(m.Data[:])
	if !r.out.countMessage(m.Tag, m.Payload()) {
		return false, e.endOnBreach()
	}
	e.rx.count++
	return true, nil
}

// Position is how far the far program's messages have come here: how many Put has taken, and the
// sum of the advances of their RMA_INFOs. The far node passes it to Rewind.
func (r *Relay) Position() (count, advances uint64) { return r.in.count, r.in.advances }

// Rewind makes Take and Pack return again the messages that have not reached the far node. count
// and advances are that node's Position. The segment still holds these messages, because the far
// program has not given them back. bytes is how much data they have. ErrRelay: the position is
// impossible.
func (r *Relay) Rewind(count, advances uint64) (bytes uint64, err error) {
	o := &r.out
	if r.e.bad.Load() {
		return 0, ErrCorrupt
	}
	if count-r.given > o.count-r.given || advances-r.freed > o.advances-r.freed || count == o.count && advances != o.advances {
		return 0, fmt.Errorf("%w: %d messages and %d bytes have come of %d and %d", ErrRelay, count, advances, o.count, o.advances)
	}
	for r.e.rx.count = count; r.e.rx.count < o.count; r.e.rx.count++ {
		w, s, _ := r.e.nextStatus()
		switch w.tag() {
		case TagVELO, TagVELOLast:
			bytes += uint64(min(w.len(), MaxVELO))
		case TagRMAInfo:
			var p [rmaLen]byte
			s.Payload().CopyTo(p[:])
			_, n := placeOf(p[:])
			bytes += uint64(n)
		}
	}
	switch { // nothing before the last PROMOTE is taken again
	case count == o.count:
	case count == o.promote:
		o.phase = laneShadow
	default:
		o.phase = laneDirect
	}
	r.e.rx.count, o.count, o.advances = count, count, advances
	return bytes, nil
}

// PackHead is what precedes each message that Pack appends: tag 1, stamp 1, length 2,
// little endian.
const PackHead = 4

// Pack takes up to most of the program's next VELO messages, and appends them to p while its
// capacity has room for the largest. A PackHead precedes each; the first has stamp, the next the
// number after that. It returns how many messages and bytes of data it took. ErrCorrupt: the
// program has broken the protocol by the message after those.
func (r *Relay) Pack(p []byte, most int, stamp uint8) (_ []byte, messages, bytes int, err error) {
	e := r.e
	if e.bad.Load() {
		return p, 0, 0, ErrCorrupt
	}
	for messages < most && cap(p)-len(p) >= PackHead+MaxVELO && !r.hasParted() {
		w, s, ok := e.nextStatus()
		tag, n := w.tag(), w.len()
		if !ok || tag != TagVELO && tag != TagVELOLast {
			break
		}
		at := len(p)
		if n < 1 || n > MaxVELO || r.out.phase != laneDirect {
			return p, messages, bytes, e.endOnBreach()
		}
		p = p[:at+PackHead+n]
		binary.LittleEndian.PutUint32(p[at:], uint32(tag)|uint32(stamp)<<8|uint32(n)<<16)
		stamp++
		s.Payload().Part(0, n).CopyTo(p[at+PackHead:])
		r.out.count++
		e.rx.count++
		messages++
		bytes += n
	}
	return p, messages, bytes, nil
}

// Fetch copies the data of an RMA_INFO that Take has returned to p, which has as much
// room.
func (r *Relay) Fetch(m *Message, p []byte) {
	off, n := m.Place()
	r.e.rx.mem.Part(off, n).CopyTo(p)
}

// Silent reports whether the program has sent nothing yet, or nothing since Quiet was called for
// its PAUSE. The next slot is then empty. A slot that is empty because the program has given back
// a consumed page does not count. It may be called from any goroutine.
func (r *Relay) Silent() bool {
	n, x := r.quiet.Load(), &r.e.rx
	lap := word(x.queue[n&uint64(len(x.queue)-1)].Status.Load()).lap()
	return lap != uint32(n>>x.shift+1) && r.e.own.consumed.Load() <= n
}

// Quiet makes Silent true until the program sends its next message. It does so, and returns true,
// only if the program's last message is PAUSE. Call it when all that Take and Pack have returned
// has reached the far node.
func (r *Relay) Quiet() bool {
	if !r.out.afterPause() {
		return false
	}
	r.quiet.Store(r.out.count)
	return true
}

// GiveBack tells the program what the far program has consumed, counted from the
// beginning: messages, and bytes of the ring. ErrRelay: it cannot have.
func (r *Relay) GiveBack(consumed, freed uint64) error {
	e := r.e
	if consumed-r.given > r.out.count-r.given || freed-r.freed > r.out.advances-r.freed {
		return fmt.Errorf("%w: %d messages and %d bytes consumed of %d and %d", ErrRelay, consumed, freed, r.out.count, r.out.advances)
	}
	if r.parted { // the program may return from there on: see hasParted
		consumed = min(consumed, r.partedAt)
	}
	if consumed == r.given && freed == r.freed || e.bad.Load() {
		return nil
	}
	shm.Publish()
	r.given, r.freed, r.out.freed = consumed, freed, freed
	if r.out.phase == lanePaused && consumed == r.out.count {
		r.out.phase = laneShadow
	}
	shm.Release(e.own.freed, freed)
	shm.Release(e.own.consumed, consumed)
	e.fencePublished()
	if a := e.peer.attention.Load(); a&armTX != 0 {
		e.wakePeer(a, armTX, &r.rung)
	}
	return nil
}

// Put puts a message of the far program into the queue of the one here, and returns how
// many bytes of data it has. The data of an RMA_INFO may follow in p; else it is in the ring.
// ErrRelay: it cannot be there. ErrCorrupt: the program here has broken the protocol.
func (r *Relay) Put(tag Tag, p []byte) (n int, err error) {
	e := r.e
	if e.bad.Load() {
		return 0, ErrCorrupt
	}
	var data []byte
	if tag == TagRMAInfo { // the far side knows of what was given back
		if !e.readCredit() {
			return 0, e.endOnBreach()
		}
		r.in.freed = e.tx.freed
		if len(p) > rmaLen {
			p, data = p[:rmaLen], p[rmaLen:]
		}
	}
	s, err := e.nextSlot()
	switch {
	case err == ErrAgain:
		return 0, fmt.Errorf("%w: message %d does not fit into the queue", ErrRelay, r.in.count)
	case err != nil:
		return 0, err
	case !r.in.countMessage(tag, p):
		return 0, fmt.Errorf("%w: message %d, of type %d and %d bytes", ErrRelay, r.in.count, tag, len(p))
	}
	switch tag {
	case TagPromote: // STANDS was for the PAUSE before it
		r.lowerMarks(MarkStands)
	case TagPause:
		e.own.flags.Or(flagHolds)
	case TagVELO, TagVELOLast:
		n = len(p)
	case TagRMAInfo:
		off := 0
		if off, n = placeOf(p); len(data) > 0 {
			if len(data) != n {
				return 0, fmt.Errorf("%w: %d bytes for an RMA_INFO of %d", ErrRelay, len(data), n)
			}
			e.tx.mem.Part(off, n).Fill(data)
		}
		e.tx.put = r.in.advances
	}
	s.Payload().Fill(p)
	e.publish(s, tag, len(p))
	return n, nil
}

// Delivered copies the data of an RMA_INFO that Put has taken to data, which has as much
// room.
func (r *Relay) Delivered(info, data []byte) {
	off, n := placeOf(info)
	r.e.tx.mem.Part(off, n).CopyTo(data)
}

// Side is that of the node.
func (r *Relay) Side() Side { return r.e.side }

// Tell wakes the program if it waits for what Put has put there.
func (r *Relay) Tell() { r.e.wakeReader() }

// Returned is what the program has consumed of what was put there: messages, and bytes of
// the ring. PAUSE counts after Resume.
func (r *Relay) Returned() (consumed, freed uint64, err error) {
	if r.e.bad.Load() {
		return 0, 0, ErrCorrupt
	}
	if !r.e.readCredit() {
		return 0, 0, r.e.endOnBreach()
	}
	consumed = r.e.tx.consumed
	if r.in.phase == lanePaused && consumed == r.in.count {
		consumed--
	}
	return consumed, r.e.tx.freed, nil
}

// MayResume reports whether the far program may promote again, as far as is known here: the program
// here has consumed PAUSE, and neither end is switched off.
func (r *Relay) MayResume() bool {
	return r.in.phase == lanePaused && r.e.tx.consumed == r.in.count && (r.e.peer.attention.Load()|uint32(r.said))&offFlag == 0
}

// Resume has Returned count PAUSE. Before, the program here knew that the far one has not promoted
// again (End.Lost). Call it before the far program is told.
func (r *Relay) Resume() {
	r.in.phase = laneShadow
	r.e.own.flags.And(^uint32(flagHolds))
}

// Resumed reports whether Resume was the last thing that happened to the direction of the far
// program. consumed is what is known there to have been consumed: it waits for the rest.
func (r *Relay) Resumed(consumed uint64) bool {
	return r.in.phase == laneShadow && consumed != r.in.count
}

// Unread reports whether the far program may wait for room: much of what it sent is not consumed,
// or the far node does not know that it is. consumed and freed are what the far node knows.
func (r *Relay) Unread(consumed, freed uint64) bool {
	t := &r.e.tx
	pauses := r.in.phase == lanePaused && t.consumed != r.in.count // the far program waits for that
	return t.sent-consumed >= uint64(len(t.queue)/2) || t.put-freed >= r.in.ring/2 || pauses || r.Resumed(consumed)
}

// Arm has the doorbell ring when the program sends or says something, or, with space, when it
// consumes. True: the program has done so already.
func (r *Relay) Arm(space bool, seen Mark) (ready bool) {
	e := r.e
	flags := uint32(armRX)
	if space {
		flags |= armTX
	}
	e.armFlag(flags)
	if _, _, ok := e.nextStatus(); ok && !r.hasParted() || e.bad.Load() {
		return true
	}
	if r.parted && e.PeerReturned() { // Part wants to know
		return true
	}
	if m, err := r.Mark(); err != nil || m != seen {
		return true
	}
	consumed, freed := e.tx.consumed, e.tx.freed
	return space && (!e.readCredit() || consumed != e.tx.consumed || freed != e.tx.freed)
}

// Bell lends the descriptor of the doorbell until Close; -1: it is closed. When it is
// readable, Awake is due.
func (r *Relay) Bell() int {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	return r.e.bell
}

// Awake takes the armings back and reads the doorbell empty.
func (r *Relay) Awake() { r.e.Awake() }

// Apart sets the function that runs the calls which the program can make last as long as it likes.
// They close descriptors that the program has sent over the doorbell, against the protocol, or the
// doorbell in which such descriptors may lie. Call it before use.
func (r *Relay) Apart(f func(end func())) { r.e.apart = f }

// Close closes the node's end: the far program has closed or, with reset, can no longer be reached.
func (r *Relay) Close(reset bool) error {
	e, bell := r.e, r.Bell()
	if e.apart == nil {
		return e.Close(reset)
	}
	if !e.hangUp(reset) {
		return nil
	}
	_ = unix.Shutdown(bell, unix.SHUT_RDWR) // nothing more comes
	fds, empty := shm.Hush(bell, nil)
	if len(fds) > 0 {
		e.apart(closeAll(fds))
	}
	if empty {
		return e.file.Close()
	}
	e.apart(func() { _ = e.file.Close() })
	return nil
}

// Leave closes the node's end of an offer that was not taken. The segment and the doorbell stay as
// they are: the client may have kept both to offer them again. Otherwise the doorbell ends.
func (r *Relay) Leave() {
	e := r.e
	e.mu.Lock()
	rings := e.letGoLocked()
	e.mu.Unlock()
	switch {
	case !rings:
	case e.apart == nil:
		_ = e.file.Close()
	default:
		e.apart(func() { _ = e.file.Close() }) // who sends may still put descriptors there
	}
}
