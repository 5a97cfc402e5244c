package shm

import (
	"runtime"

	"exnet/internal/shm"
)

// The pump moves what the peer has put into its ring. Whoever comes first runs it:
// a consumer that polls, or the link's own goroutine. Its lock is held while
// messages move, and never while a handler runs.
//
//	idle ──enter──▶ running ──enter──▶ again
//	 ▲                │ ▲                │
//	 └────leave───────┘ └──────leave─────┘  (and look once more)
const (
	pumpIdle = iota
	pumpRunning
	pumpAgain
)

const (
	pumpBatch = 64             // messages moved with the lock held
	headBatch = RingSlots / 16 // slots given back at a time
)

// lockPump takes the pump's lock; if it is taken, its holder will look again.
func (l *Link) lockPump() bool {
	for {
		if l.pumping.CompareAndSwap(pumpIdle, pumpRunning) {
			return true
		}
		if l.pumping.CompareAndSwap(pumpRunning, pumpAgain) || l.pumping.Load() == pumpAgain {
			return false
		}
	}
}

// unlockPump releases the lock, and reports whether somebody came meanwhile.
func (l *Link) unlockPump() bool {
	if l.pumping.CompareAndSwap(pumpRunning, pumpIdle) {
		return false
	}
	l.pumping.Store(pumpIdle)
	return true
}

// lockForGood takes the lock for good.
func (l *Link) lockForGood() {
	for !l.pumping.CompareAndSwap(pumpIdle, pumpRunning) {
		runtime.Gosched()
	}
	for _, f := range l.ins {
		if f != nil {
			f.noteDown()
		}
	}
}

// nothingToDo reports whether the peer has left nothing to do.
func (l *Link) nothingToDo() bool {
	pos := l.pos.Load()
	return (l.inRing[pos%RingSlots].Status.Load()^phaseAt(pos))&phaseBit != 0 &&
		l.far.events.Load() == l.eventsSeen.Load() && l.far.space.Load() == l.spaceSeen.Load()
}

// action is what the pump leaves to do without the lock.
type action struct {
	raise  *inflow // its mailbox got messages
	look   bool    // the peer has counted up its events
	msg    message // if its kind is not 0
	flow   *inflow // that a message opened
	lease  lent    // that a message released
	credit *outflow
}

func (l *Link) pumpMessages() {
	for l.lockPump() && l.pumpOnce() {
	}
}

// pumpOnce does one step and releases the lock, which the caller has. It reports
// whether there may be more to do here.
func (l *Link) pumpOnce() bool {
	var act action
	more := !l.down.Load() && l.moveBatch(&act)
	again := l.unlockPump()
	l.performAction(&act)
	return more || again
}

// moveBatch moves a batch of messages of one flow, or takes one other message. It
// returns true if there may be more. It belongs to the holder of the lock.
func (l *Link) moveBatch(act *action) (more bool) {
	pos := l.pos.Load()
	for range pumpBatch {
		s := &l.inRing[pos%RingSlots]
		w := s.Status.Load()
		shm.Observe()
		if (w^phaseAt(pos))&phaseBit != 0 {
			if act.raise != nil {
				l.pos.Store(pos)
			}
			l.endStep(pos, act)
			return false
		}
		if k := kind(w & kindMask); k != kindVELO {
			if act.raise != nil {
				break
			}
			var b [msgLen]byte
			s.Payload().CopyTo(b[:])
			act.msg.get(k, &b)
			pos++
			if !l.takeMessage(act) {
				l.endByBreach("message that cannot be")
				act.msg.kind = 0
				return false
			}
			break
		}
		f := l.inflowByID(w >> flowShift & flowMask)
		if f == nil {
			l.endByBreach("message of a flow that was not opened")
			return false
		}
		if act.raise != nil && act.raise != f {
			break
		}
		if !l.deliverMessage(f, w, s.Payload()) {
			l.endByBreach("message without credit")
			return false
		}
		act.raise = f
		pos++
	}
	l.pos.Store(pos)
	l.endStep(pos, act)
	return true
}

// endStep gives slots back and looks at what the peer asks for.
func (l *Link) endStep(pos uint64, act *action) {
	if ev := l.far.events.Load(); ev != l.eventsSeen.Load() {
		l.eventsSeen.Store(ev)
		act.look = true
	}
	space := l.far.space.Load()
	if space == l.spaceSeen.Load() && pos-l.headGiven < headBatch {
		return
	}
	l.headGiven = pos
	shm.Publish()
	l.near.head.Swap(pos) // and no Store: see package shm
	if space = l.far.space.Load(); space != l.spaceSeen.Load() {
		l.spaceSeen.Store(space)
		l.near.events.Add(1)
		act.look = true // and ring the bell, see perform
	}
}

// takeMessage does the part of a message that has to happen in order. It returns false if
// it cannot be.
func (l *Link) takeMessage(act *action) (ok bool) {
	m := &act.msg
	switch m.kind {
	case kindOpen:
		act.flow, ok = l.acceptFlow(m)
	case kindDown:
		outs := *l.outs.Load()
		if ok = int(m.id) < len(outs); ok {
			act.credit = outs[m.id]
		}
	case kindGet, kindPut:
		ok = l.serving.checkFree(m)
	case kindRelease:
		act.lease, ok = l.serving.takeBack(m.id)
	case kindRead:
		ok = true
	case kindAnswer:
		ok = l.ops.checkAnswer(m)
	}
	return ok
}

// performAction runs what may call handlers.
func (l *Link) performAction(act *action) {
	if act.look {
		l.ringBell()
		l.lookAgain()
	}
	if f := act.raise; f != nil && f.inbox.Target != nil {
		f.inbox.Target.Raise()
	}
	switch act.msg.kind {
	case kindOpen:
		if act.flow.inbox.Target == nil {
			l.out.sendMessage(&message{kind: kindDown, id: act.flow.id})
		}
	case kindDown:
		act.credit.credit.Down()
	case kindGet:
		l.serveGet(&act.msg)
	case kindPut:
		l.servePut(&act.msg)
	case kindRelease:
		l.endLoan(act.lease, true)
	case kindRead:
		l.nic.ServeRead(l.peer, act.msg.asGet())
	case kindAnswer:
		l.endOperation(&act.msg)
	}
}
