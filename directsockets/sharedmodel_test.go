package directsockets

import "fmt"

// One direction of a connection whose ends are shared by processes, as the C library has it: what
// may come is walked through in every order. At each step a process that has the descriptor may be
// killed, also with the lock of the direction; one may be forked; bytes of the shadow may be late;
// the receiver may fall back, and hand its descriptor to a program that has no segment; the sender
// may demote, shut down, be switched off and on again; its processes may close the connection, one
// after the other or at once. The ends take the steps of SPEC.md, 9.4 and
// 9.5, which the C library's tests hold against its own (preload/ctest/leave_test.c).
//
// What is wrong: a byte that comes twice, out of order, or never, an end of file before the last
// one, a step that the tables do not have, and a walk that ends while somebody waits.

// kFault is a mistake that the model is to find.
type kFault uint8

const (
	kFine         kFault = iota
	kForgets             // who takes the lock of a killed sender forgets DEMOTE, PAUSE, SHUTDOWN that it has sent
	kPromoteLost         // the same, PROMOTE
	kStandsTwice         // the same, and looks for FALLEN_BACK again after STANDS
	kRepeats             // the same, and repeats the byte that returned last
	kReceiverLost        // who takes the lock of a killed receiver forgets what that has told the sender
	kUncounted           // the same, and what that has read of the shadow last
	kNoLook              // who sees that the shadow has something does not look at the queue again
	kNoEndLook           // the same, of the shadow's end
	kNoStands            // the sender does not set STANDS
	kSkips               // it returns from the message after P on
	kMiscounts           // PROMOTE counts a byte less
	kNoRest              // the receiver forgets what the shadow did not give
	kResumes             // the sender resumes before PAUSE is consumed
	kEndsWell            // a sender that is returning ends well although nobody has the segment
	kNotLast             // a sender that closes does not look, as another process has the connection: that may close it, too
	kCounted             // the same, as another one had it, and was killed
	kForwardTwice        // a receiver passes over what the shadow gave once more
	kFaults
)

func (f kFault) String() string {
	return [...]string{"none", "the end that was said is forgotten", "PROMOTE is forgotten", "looks again after STANDS", "repeats a byte",
		"the receiver's step is forgotten", "a byte that was read is not counted", "no look after the shadow", "no look after the end", "no STANDS", "one skipped",
		"PROMOTE says less", "no rest", "resumes early", "ends well", "neither is the last", "a killed one is the last", "forward twice"}[f]
}

// Messages of the queue.
const (
	kData int8 = iota + 1
	kPromote
	kPause
	kDemote
	kShut
)

type kMessage struct{ kind, n int8 }

const (
	kSlots = 10
	kMost  = 3 // bytes that are sent, at most
)

// Where a process is in a call.
const (
	kIdle  int8 = iota
	kLook       // it has the lock, and looks at what the peer has said
	kReady      // it has looked
	kMove       // it has told the peer of the step, and makes it
	kEnd        // a sender: DEMOTE, PAUSE or SHUTDOWN was sent
	kStand      // it stands
	kFin        // the shadow is to be shut down
	kByte       // a receiver: the shadow has a byte
	kEOF        // the shadow has ended
	kDone       // what ended the direction, or PAUSE, is to be consumed
	kWrote      // a sender: the shadow has a byte, and that is not noted
	kTook       // a receiver: it has a byte of the shadow, and that is not noted
	kGone       // a sender that closes: it has looked, and its descriptor is to be closed
)

// Whether a process closes the connection, and what it can know by then.
const (
	kStays  int8 = iota
	kCloses      // the receiver has the segment
	kAlone       // nobody has it at the other end
)

type kHolder struct {
	live            bool
	pc, ev, closing int8
}

// kWorld is what the two ends share, the shadow, and where each process is.
type kWorld struct {
	tx                             txPhase
	rx, before                     rxPhase
	stands, returned, guarded, off bool
	fell, raw, excused             bool
	queue                          [kSlots]kMessage
	said, taken                    int8 // messages
	back, fellAt                   int8 // messages: the next one that returns, P
	shadow                         [kMost + 1]int8
	wrote, came, read              int8 // bytes of the shadow
	noted                          int8 // of those, what the receiver has noted that it has read
	carried, due                   int8
	fin, finCame, reset            bool
	sent, got                      int8 // bytes
	ended                          bool // the receiver has read the end
	holders                        [2][2]kHolder
	lock                           [2]int8 // 1 + its holder, who may be dead
	kills, forks, falls, ends      int8    // that may be yet
	switches, closes, counted      int8    // counted: senders that were, and have not closed
}

type kModel struct {
	fault    kFault
	bytes    int8
	rxN, txN map[string]bool // rows of the tables that were taken
	wrong    string
}

func (m *kModel) bad(format string, a ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, a...)
	}
}

func (m *kModel) onTX(w *kWorld, what txEvent) {
	next, ok := txSteps.Next(w.tx, what)
	if !ok {
		m.bad("no step %v in %v", what, w.tx)
		return
	}
	m.txN[w.tx.String()+" "+what.String()] = true
	w.tx = next
}

func (m *kModel) onRX(w *kWorld, what rxEvent) {
	next, ok := rxSteps.Next(w.rx, what)
	if !ok {
		m.bad("no step %v in %v", what, w.rx)
		return
	}
	m.rxN[w.rx.String()+" "+what.String()] = true
	if what == rxFallBack {
		w.before = w.rx
	}
	if next == rxBefore {
		next = w.before
	}
	w.rx = next
}

// gone reports whether no process of a side has the segment.
func (w *kWorld) gone(side int) bool { return !w.holders[side][0].live && !w.holders[side][1].live }

func (w *kWorld) say(kind, n int8) {
	w.queue[w.said] = kMessage{kind, n}
	w.said++
}

// over is the first message from i on that ends the direction, or said.
func (w *kWorld) over(i int8) int8 {
	for i < w.said && w.queue[i].kind <= kPromote {
		i++
	}
	return i
}

// eof reports whether the shadow has ended where the receiver is.
func (w *kWorld) eof() bool { return w.finCame && w.read == w.came }

// take is a byte that the receiver's program gets.
func (m *kModel) take(w *kWorld, b int8) {
	if w.got++; b != w.got {
		m.bad("byte %d comes in the place of %d", b, w.got)
	}
}

// takeShadow reads a byte of the shadow.
func (m *kModel) takeShadow(w *kWorld) {
	m.take(w, w.shadow[w.read])
	w.read++
}

// readEnd reads the shadow's end.
func (m *kModel) readEnd(w *kWorld) {
	w.ended = true
	switch {
	case w.reset && !(w.raw && w.guarded):
		m.bad("a reset")
	case !w.reset && w.got != w.sent && !w.excused:
		m.bad("an end of file after %d of %d bytes", w.got, w.sent)
	}
}

// die is the end of a process.
func (m *kModel) die(w *kWorld, side, i int) {
	h := &w.holders[side][i]
	knows := h.pc == kGone && h.closing == kAlone
	h.live = false
	if side == 1 || !w.gone(0) || w.fin {
		return
	}
	left := w.fell && (w.tx == txReturning && w.back < w.over(w.back) || w.tx == txDirect && w.fellAt < w.over(w.fellAt))
	w.fin = true
	w.reset = left && w.guarded && m.fault != kEndsWell
	// Both ends at once, before the sender has noticed (5.5).
	w.excused = left && w.raw && !w.guarded && !knows
}

// close is the begin of a sender's close.
func (m *kModel) close(w *kWorld, i int) {
	h, other := &w.holders[0][i], w.holders[0][1-i].live
	w.closes--
	h.closing = kCloses
	if w.gone(1) {
		h.closing = kAlone
	}
	if m.fault == kNotLast && other || m.fault == kCounted && w.counted > 1 {
		h.pc = kGone
	}
}

// begin takes the lock of a side. If its holder was killed, it makes the step of which the peer was
// told, and asks the kernel what the shadow has taken and given.
func (m *kModel) begin(w *kWorld, side, i int) bool {
	h := &w.holders[side][i]
	holder := w.lock[side]
	if !h.live || h.pc != kIdle || holder != 0 && w.holders[side][holder-1].live {
		return false
	}
	w.lock[side], h.pc = int8(1+i), kLook
	if holder == 0 {
		return true
	}
	dead := &w.holders[side][holder-1]
	if side == 0 {
		m.inheritTX(w, h)
	} else if m.fault != kReceiverLost {
		m.inheritRX(w)
	}
	if dead.pc == kWrote && m.fault != kRepeats {
		w.back++
	}
	if dead.pc == kTook && m.fault != kUncounted {
		w.noted++
	}
	*dead = kHolder{}
	return true
}

func (m *kModel) inheritTX(w *kWorld, h *kHolder) {
	if w.said == 0 {
		return
	}
	switch last := w.queue[w.said-1].kind; {
	case last == kPromote && w.tx == txShadow && m.fault != kPromoteLost:
		m.onTX(w, txPromote)
	case last > kPromote && w.tx == txDirect && m.fault != kForgets:
		if h.pc, h.ev = kEnd, last; w.stands && m.fault != kStandsTwice {
			h.pc = kStand // the receiver may have fallen back since, and goes by STANDS
		}
	}
}

func (m *kModel) inheritRX(w *kWorld) {
	if w.rx == rxShadow && w.taken > 0 && w.queue[w.taken-1].kind == kPromote {
		w.carried = w.queue[w.taken-1].n
		m.onRX(w, rxPromote)
	} else if w.rx == rxShadow && w.taken < w.said && w.queue[w.taken].kind == kPause {
		w.taken++
	}
	if w.rx <= rxDirect && w.fell {
		m.onRX(w, rxFallBack)
	}
}

// next returns what may come next.
func (m *kModel) next(w kWorld) (all []kWorld) {
	m.wrong = ""
	try := func(f func(v *kWorld) bool) {
		if v := w; f(&v) && v != w {
			all = append(all, v)
		}
	}
	if w.came < w.wrote {
		try(func(v *kWorld) bool { v.came++; return true })
	}
	if w.fin && w.came == w.wrote {
		try(func(v *kWorld) bool { v.finCame = true; return true })
	}
	if w.switches > 0 {
		try(func(v *kWorld) bool { v.switches--; v.off = !v.off; return true })
	}
	if w.raw && !w.ended {
		try(func(v *kWorld) bool {
			if v.read < v.came {
				m.takeShadow(v)
			} else if v.eof() {
				m.readEnd(v)
			}
			return true
		})
	}
	for side := range w.holders {
		for i := range w.holders[side] {
			h := &w.holders[side][i]
			switch {
			case !h.live && w.forks > 0 && w.holders[side][1-i].live && w.holders[side][1-i].closing == kStays && w.lock[side] != int8(1+i):
				try(func(v *kWorld) bool {
					v.forks--
					v.holders[side][i] = kHolder{live: true}
					if side == 0 {
						v.counted++
					}
					return true
				})
			case h.live && w.kills > 0:
				try(func(v *kWorld) bool { v.kills--; m.die(v, side, i); return true })
			}
			if side == 0 && h.live && h.pc == kIdle && h.closing == kStays && w.closes > 0 {
				try(func(v *kWorld) bool { m.close(v, i); return true })
			}
			try(func(v *kWorld) bool { return m.begin(v, side, i) })
			if h.live && h.pc != kIdle && side == 0 {
				m.sender(try, &w, i)
			} else if h.live && h.pc != kIdle {
				m.receiver(try, &w, i)
			}
		}
	}
	if len(all) == 0 {
		m.last(&w)
	}
	return all
}

// last looks at a walk that has come to its end.
func (m *kModel) last(w *kWorld) {
	reads := w.raw || !w.gone(1)
	if reads && !w.ended && (w.got < w.sent || w.fin) {
		m.bad("the receiver waits for ever with %d of %d bytes, fin %v", w.got, w.sent, w.fin)
	}
}
