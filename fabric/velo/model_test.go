package velo

import (
	"fmt"
	"testing"

	"exnet/fabric/internal/racetest"
)

// The protocol between senders that are refused and the reader that wakes them
// (await, settle, feed), as a model of atomic steps whose interleavings are all
// walked through: two senders of one source and one of another send into one
// mailbox. A path that ends with a message unsent is a lost wake-up.
//
// Each case of step is one access to shared memory in the code that its name
// tells. ackedOld and headSeen are left out: they only choose the slow path. The
// reader's batch is 1.

// model is the configuration of a walk.
type model struct {
	limit, slots int8
	messages     [3]int8
	asks         bool // sender 1 asks with WantCredits(limit) before it sends
	numbered     bool // episodes have numbers
}

// mState is everything that is shared, and the processes. It is comparable.
type mState struct {
	sent, acked, consumed [2]int8
	want                  [2]mWant
	episodes              [2]int8
	starved               [2]bool
	gen                   [2]int8 // calls of OnCredit

	tail, head, pos int8
	full            [4]bool // slot is committed
	flow            [4]int8 // source of the slot
	mStarved        bool

	senders [3]mSender
	reader  mReader
}

type mWant struct {
	credits, number int8
	told, slot      bool
}

type mSender struct {
	pc, then, ok int8 // then: where to go after take; ok: after await's ok
	left         int8
	seen         int8 // gen when the attempt began
	s            int8 // result of sent.Add
	a            int8 // acked as loaded
	t            int8 // tail as loaded
	w            mWant // await's
	sw           mWant // settle's
	slotWait     bool // await is for a slot
	asking       bool // in WantCredits
}

type mReader struct {
	pc, f, i int8
	free     int8
	w        mWant
}

// source is the source of a sender.
func source(sender int) int8 { return int8(sender / 2) }

// Program counters of a sender.
const (
	sStart   = iota
	sAsk     // WantCredits: enough()?
	sTake    // take: sent.Add
	sAcked   // takeSlow: acked.Load
	sUntake  // untake: sent.Add(-1)
	sSettleW // settle: want.Load
	sSettleF // settle: free
	sSettleC // settle: want.CompareAndSwap
	sTail    // Reserve: tail.Load, head.Load
	sFlow    // room: f.starved.Store
	sBox     // room: m.starved.Store
	sAgain   // room: head.Load
	sClaim   // Reserve: tail.CompareAndSwap
	sCommit  // Commit
	sWant    // await: want.Load
	sBegin   // await: want.CompareAndSwap(0, w)
	sOK      // await: ok()
	sTell    // await: want.CompareAndSwap(w, told)
	sEnd     // await: end() after ok for a slot
	sSleep   // until OnCredit
	sDone
)

// Program counters of the reader.
const (
	rRead    = iota
	rHead    // head.Store
	rAcked   // Return: acked.Store
	rSettleW // settle: want.Load
	rSettleF // settle: free
	rSettleC // settle: want.CompareAndSwap
	rStarved // m.starved.Load, feed's condition
	rFeed    // m.starved.CompareAndSwap
	rFlow    // f.starved.CompareAndSwap
	rResume  // end: want.Swap
)

func (m *model) half() int8 { return (m.limit + 1) / 2 }

func (m *model) free(s *mState, f int8) int8 { return max(0, m.limit-(s.sent[f]-s.acked[f])) }

// settled is the condition of settle to end an episode.
func settled(w mWant, free int8) bool { return w != (mWant{}) && !w.slot && free >= w.credits }

// stepSender runs one step of a sender; false: it sleeps or is done.
func (m *model) stepSender(s *mState, i int) bool {
	p := &s.senders[i]
	f := source(i)
	switch p.pc {
	case sStart:
		if p.left == 0 {
			p.pc = sDone
			return true
		}
		p.seen, p.slotWait, p.asking = s.gen[f], false, false
		p.pc, p.then = sTake, sTail
		if m.asks && i == 1 {
			p.pc, p.asking = sAsk, true
		}
	case sAsk:
		p.pc = sWant
		if m.free(s, f) >= m.limit {
			p.pc, p.then, p.asking = sTake, sTail, false
		}
	case sTake: // then: where to go with a credit; without, await or back to it
		s.sent[f]++
		p.s = s.sent[f]
		p.pc = sAcked
	case sAcked:
		p.a = s.acked[f]
		p.pc = sUntake
		if p.s-p.a <= m.limit {
			p.pc = p.then
		}
	case sUntake:
		s.sent[f]--
		p.pc = sSettleW
	case sSettleW:
		p.sw = s.want[f]
		p.pc = sSettleF
	case sSettleF:
		p.a = m.free(s, f)
		p.pc = sSettleC
	case sSettleC:
		if settled(p.sw, p.a) {
			if s.want[f] != p.sw {
				p.pc = sSettleW
				break
			}
			if p.sw.told {
				s.gen[f]++
			}
			s.want[f] = mWant{}
		}
		// After a failed take: in await's ok, or on the way to await.
		p.pc = sWant
		switch p.ok {
		case 1: // ok of credit()
			p.ok, p.pc = 0, sTell
		case 2: // the credit that reserve() had to give back
			p.ok, p.pc = 0, sSleep
		}
	case sTail:
		p.t = s.tail
		p.pc = sClaim
		if s.tail-s.head >= m.slots {
			p.pc = sFlow
		}
	case sFlow:
		s.starved[f] = true
		p.pc = sBox
	case sBox:
		s.mStarved = true
		p.pc = sAgain
	case sAgain:
		p.pc = sClaim
		if p.t-s.head >= m.slots {
			if p.slotWait {
				p.pc = sTell
			} else {
				p.slotWait, p.pc = true, sWant
			}
		}
	case sClaim:
		p.pc = sTail
		if s.tail == p.t {
			s.tail++
			p.pc = sCommit
			if p.slotWait {
				p.pc = sEnd
			}
		}
	case sEnd:
		if s.want[f].told {
			s.gen[f]++
		}
		s.want[f] = mWant{}
		p.pc = sCommit
	case sCommit:
		s.full[p.t%m.slots], s.flow[p.t%m.slots] = true, f
		p.left--
		p.pc = sStart
	case sWant:
		p.w = s.want[f]
		p.pc = sOK
		if p.w == (mWant{}) {
			p.pc = sBegin
		}
	case sBegin:
		p.pc = sWant
		if s.want[f] == (mWant{}) {
			if m.numbered {
				s.episodes[f]++
			}
			need := m.half()
			if p.asking {
				need = m.limit
			}
			p.w = mWant{credits: need, number: s.episodes[f], slot: p.slotWait}
			s.want[f] = p.w
			p.pc = sOK
		}
	case sOK:
		switch {
		case p.slotWait:
			p.pc = sTail
		case p.asking:
			p.pc = sTell
			if m.free(s, f) >= m.limit {
				p.pc, p.then, p.asking = sTake, sTail, false
			}
		default:
			p.ok, p.pc, p.then = 1, sTake, sTail
		}
	case sTell:
		p.pc = sWant
		if s.want[f] == p.w {
			told := p.w
			told.told = true
			told.slot = told.slot || p.slotWait
			if p.asking {
				told.credits = max(told.credits, m.limit)
			}
			s.want[f] = told
			p.pc = sSleep
			if p.slotWait {
				p.ok, p.pc = 2, sUntake
			}
		}
	case sSleep:
		if s.gen[f] == p.seen {
			return false
		}
		p.pc = sStart
	case sDone:
		return false
	}
	if p.pc == sTail { // a credit: ok of credit() is over
		p.ok = 0
	}
	p.forget()
	return true
}

// forget clears what is not needed any more, so that equal states are equal.
func (p *mSender) forget() {
	if p.pc < sSettleF || p.pc > sSettleC {
		p.sw = mWant{}
	}
	switch p.pc {
	case sStart, sDone:
		*p = mSender{pc: p.pc, left: p.left}
	case sSleep:
		*p = mSender{pc: p.pc, left: p.left, seen: p.seen}
	}
}

// stepReader runs one step of the reader; false: there is nothing to read.
func (m *model) stepReader(s *mState) bool {
	r := &s.reader
	switch r.pc {
	case rRead:
		at := s.pos % m.slots
		if !s.full[at] {
			return false
		}
		s.full[at] = false // the phase bit makes it old
		r.f = s.flow[at]
		s.pos++
		s.consumed[r.f]++
		r.pc = rHead
	case rHead:
		s.head = s.pos
		r.pc = rAcked
	case rAcked:
		s.acked[r.f] = s.consumed[r.f]
		r.pc = rSettleW
	case rSettleW:
		r.w = s.want[r.f]
		r.pc = rSettleF
	case rSettleF:
		r.free = m.free(s, r.f)
		r.pc = rStarved
		if settled(r.w, r.free) {
			r.pc = rSettleC
		}
	case rSettleC:
		r.pc = rSettleW
		if s.want[r.f] == r.w {
			if r.w.told {
				s.gen[r.f]++
			}
			s.want[r.f] = mWant{}
			r.pc = rStarved
		}
	case rStarved:
		r.pc = rRead
		if s.mStarved && s.tail-s.pos <= m.slots/2 {
			r.pc = rFeed
		}
	case rFeed:
		s.mStarved = false
		r.i, r.pc = 0, rFlow
	case rFlow:
		r.pc = rRead
		if r.i < 2 {
			if s.starved[r.i] {
				s.starved[r.i] = false
				r.pc = rResume
			} else {
				r.i, r.pc = r.i+1, rFlow
			}
		}
	case rResume:
		if s.want[r.i].told {
			s.gen[r.i]++
		}
		s.want[r.i] = mWant{}
		r.i, r.pc = r.i+1, rFlow
	}
	if r.pc == rRead {
		*r = mReader{}
	}
	return true
}

// walk goes through all interleavings and returns the number of states, and an
// end in which a message is left.
func (m *model) walk() (states int, stuck *mState) {
	var first mState
	for i := range first.senders {
		first.senders[i].left = m.messages[i]
	}
	seen := map[mState]struct{}{first: {}}
	todo := []mState{first}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		moved := false
		for i := range 4 {
			next := s
			if i < 3 && !m.stepSender(&next, i) || i == 3 && !m.stepReader(&next) {
				continue
			}
			moved = true
			if _, ok := seen[next]; !ok {
				seen[next] = struct{}{}
				todo = append(todo, next)
			}
		}
		if moved {
			continue
		}
		for i := range s.senders {
			if s.senders[i].pc != sDone {
				return len(seen), &s
			}
		}
	}
	return len(seen), nil
}

func TestModelOfRefusals(t *testing.T) {
	if racetest.Enabled {
		t.Skip("nothing is concurrent in a model")
	}
	for _, m := range []model{
		{limit: 1, slots: 4, messages: [3]int8{1, 1, 0}},
		{limit: 1, slots: 4, messages: [3]int8{2, 1, 0}, asks: true},
		{limit: 2, slots: 4, messages: [3]int8{2, 1, 0}, asks: true},
		{limit: 2, slots: 1, messages: [3]int8{1, 1, 1}},
		{limit: 1, slots: 1, messages: [3]int8{1, 1, 1}, asks: true},
		{limit: 2, slots: 1, messages: [3]int8{1, 1, 1}, asks: true},
	} {
		m.numbered = true
		t.Run(fmt.Sprintf("limit=%d/slots=%d/messages=%v/asks=%v", m.limit, m.slots, m.messages, m.asks), func(t *testing.T) {
			states, stuck := m.walk()
			t.Logf("%d states", states)
			if stuck != nil {
				t.Errorf("a sender sleeps for ever: %+v", *stuck)
			}
		})
	}
}

// Without numbers, a sender that is held up joins an episode that only looks like
// the one it saw: the model must find that, or it is too coarse to trust.
func TestModelFindsLostWakeUp(t *testing.T) {
	m := model{limit: 1, slots: 1, messages: [3]int8{1, 1, 1}, asks: true}
	if states, stuck := m.walk(); stuck == nil {
		t.Errorf("%d states, and no sender sleeps for ever", states)
	}
}
