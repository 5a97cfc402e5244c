package velo

import (
	"fmt"
	"testing"

	"exnet/internal/explore"
	"exnet/internal/longtest"
	"exnet/internal/racetest"
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
	pc, then, ok int8 // then: where to go after takeCredit; ok: after awaitCredit's ok
	left         int8
	seen         int8  // gen when the attempt began
	s            int8  // result of sent.Add
	a            int8  // acked as loaded
	t            int8  // tail as loaded
	w            mWant // await's
	sw           mWant // settle's
	slotWait     bool  // await is for a slot
	asking       bool  // in WantCredits
}

type mReader struct {
	pc, f, i int8
	free     int8
	w        mWant
}

// source is the source of a sender.
func source(sender int) int8 { return int8(sender / 2) }

// explore finds an end in which a message is left.
func (m *model) explore() explore.Result[mState] {
	var first mState
	for i := range first.senders {
		first.senders[i].left = m.messages[i]
	}
	return explore.All(func(s mState) (after []mState, wrong string) {
		for i := range 4 {
			next := s
			if i < 3 && m.stepSender(&next, i) || i == 3 && m.stepReader(&next) {
				after = append(after, next)
			}
		}
		for i := range s.senders {
			if len(after) == 0 && s.senders[i].pc != sDone {
				wrong = "a sender sleeps for ever"
			}
		}
		return after, wrong
	}, first)
}

func TestModelOfRefusals(t *testing.T) {
	racetest.SkipModel(t)
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
			if m.messages[2] > 0 && m.limit > 1 {
				longtest.Skip(t)
			}
			r := m.explore()
			t.Logf("%d states", r.States)
			if r.Wrong != "" {
				t.Error(r)
			}
		})
	}
}

// Without numbers, a sender that is held up joins an episode that only looks like
// the one it saw: the model must find that, or it is too coarse to trust.
func TestModelFindsLostWakeUp(t *testing.T) {
	m := model{limit: 1, slots: 1, messages: [3]int8{1, 1, 1}, asks: true}
	if r := m.explore(); r.Wrong == "" {
		t.Errorf("%d states, and no sender sleeps for ever", r.States)
	}
}
