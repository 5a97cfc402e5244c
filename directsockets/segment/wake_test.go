package segment

import (
	"fmt"
	"testing"

	"exnet/internal/explore"
)

// The wake-up protocol (SPEC 4.4 and 4.5), explored exhaustively: every order of
// the steps of its threads, each with a store buffer as x86 has it (stores reach the
// memory in order, some time later; a thread sees its own at once). A wake-up is lost
// when nobody can take a step any more and somebody has not finished.

// Words of the memory of the model.
const (
	wordM    = iota // messages published
	wordF           // space published
	wordAtt         // attention: flags, number << 2
	wordFlag        // FENCES
	words
)

// barrierKind is what separates a store from a look.
type barrierKind int

const (
	noBarrier  barrierKind = iota
	fence                  // own store buffer
	membarrier             // everybody's
)

func (b barrierKind) String() string { return [...]string{"none", "fence", "membarrier"}[b] }

// world is a state of the model.
type world struct {
	mem    [words]uint8
	bell   uint8
	number uint8 // of the last arming
	flags  uint8 // armed, as the sleepers' side knows
	fences bool  // End.fences of the wakers' side
	turns  uint8 // how often that has changed
	th     [4]strand
}

// strand is a thread. Its meaning of pc is that of its program.
type strand struct {
	pc, seen, rung uint8
	told           bool // told to look again
	fenced         bool // no membarrier, or a fence
	buf            [3]struct{ word, value uint8 }
	n              uint8 // stores in buf
}

func (w *world) flushOne(i int) {
	t := &w.th[i]
	w.mem[t.buf[0].word] = t.buf[0].value
	copy(t.buf[:], t.buf[1:])
	t.n--
	t.buf[t.n] = struct{ word, value uint8 }{}
}

func (w *world) store(i int, word, value uint8) {
	t := &w.th[i]
	for int(t.n) == len(t.buf) {
		w.flushOne(i)
	}
	t.buf[t.n] = struct{ word, value uint8 }{word, value}
	t.n++
}

func (w *world) load(i int, word uint8) uint8 {
	t := &w.th[i]
	for k := int(t.n) - 1; k >= 0; k-- {
		if t.buf[k].word == word {
			return t.buf[k].value
		}
	}
	return w.mem[word]
}

func (w *world) barrier(i int, b barrierKind) {
	for j := range w.th {
		for (b == membarrier || b == fence && i == j) && w.th[j].n > 0 {
			w.flushOne(j)
		}
	}
}

// protocol is what is checked.
type protocol struct {
	sleeper, waker barrierKind
	both           bool // a second sleeper, for space, on the same doorbell
	forget         bool // who reads the doorbell does not tell the other sleeper
	noNumber       bool // the waker rings once for a flag, not once for an arming
	sharedRung     bool // both wakers remember one number, as the C library's do
	lookFirst      bool // the sleeper looks before it arms, and not again
	stay           bool // who is woken for nothing sleeps on without arming anew
	turns          turns
}

// turns is how a waker begins and ends to fence by itself.
type turns int

const (
	never      turns = iota
	asSpec           // as in fence.go
	plainBegin       // without membarrier
	flagFirst        // the sleeper looks at the flag before it arms
	askFirst         // the waker looks whether it fences before it publishes
)

func (k turns) String() string {
	return [...]string{"", "-turns", "-turns-begin-plainly", "-flag-before-arming", "-asks-before-publishing"}[k]
}

// maxTurns is how often a waker begins or ends.
const maxTurns = 2

// rounds is how many messages are sent, and pieces of space given back.
func (p *protocol) rounds() uint8 {
	if p.both { // there are many more states
		return 1
	}
	return 3
}

const done = 99

// step returns the states that thread i can reach in one step.
func (p *protocol) step(w world, i int) []world {
	t := &w.th[i]
	if t.pc == done || i >= 2 && !p.both {
		return nil
	}
	if i&1 == 0 {
		return p.sleep(w, i)
	}
	return p.wake(w, i)
}

// sleep is the side that waits: thread 0 for messages, thread 2 for space.
func (p *protocol) sleep(w world, i int) []world {
	t := &w.th[i]
	flag, word := uint8(1)<<(i/2), uint8(wordM+i/2)
	look := func() bool { // takes all that is there
		if v := w.load(i, word); v != t.seen {
			t.seen = v
			return true
		}
		return false
	}
	switch t.pc {
	case 0: // look without arming
		t.told = false
		if look() {
			if t.seen == p.rounds() {
				t.pc = done
			}
			return []world{w}
		}
		if t.pc = 1; p.turns == flagFirst {
			t.fenced = w.load(i, wordFlag) != 0
		}
	case 1: // arm. Two sleepers do that under a lock, with an XCHG
		w.number++
		w.flags |= flag
		w.store(i, wordAtt, w.number<<2|w.flags)
		if p.both || p.turns != never {
			w.barrier(i, fence)
		}
		if t.pc = 2; p.turns != never {
			t.pc = 6
		}
	case 6: // look at FENCES
		if p.turns != flagFirst {
			t.fenced = w.load(i, wordFlag) != 0
		}
		t.pc = 2
	case 2:
		if !t.fenced {
			w.barrier(i, p.sleeper)
		}
		t.fenced = false
		t.pc = 3
	case 3: // look again
		if !p.lookFirst && look() {
			t.pc = 5
		} else {
			t.pc = 4
		}
	case 4: // wait on the doorbell
		if t.told {
			t.pc = 0
			return []world{w}
		}
		if w.bell == 0 {
			return nil
		}
		if p.stay {
			if w.bell = 0; look() {
				t.pc = 5
			}
			return []world{w}
		}
		// Awake: clear both, read the doorbell empty, tell the other.
		w.flags = 0
		w.store(i, wordAtt, w.number<<2)
		if p.both {
			w.barrier(i, fence)
		}
		w.bell = 0
		if p.both && !p.forget {
			w.th[2-i].told = true
		}
		t.pc = 0
	case 5: // disarm
		w.flags &^= flag
		w.store(i, wordAtt, w.number<<2|w.flags)
		if p.both {
			w.barrier(i, fence)
		}
		t.pc = 0
		if t.seen == p.rounds() {
			t.pc = done
		}
	}
	return []world{w}
}

// wake is the other side: thread 1 publishes messages, thread 3 space.
func (p *protocol) wake(w world, i int) []world {
	t := &w.th[i]
	flag, word := uint8(1)<<(i/2), uint8(wordM+i/2)
	switch t.pc {
	case 0:
		v := w
		t.fenced, t.pc = w.fences, 6
		if i == 1 && p.turns != never && v.turns < maxTurns { // or something else is done before
			v.turns++
			v.th[i].pc = 3
			return []world{w, v}
		}
	case 6:
		t.seen++
		w.store(i, word, t.seen)
		t.pc = 1
	case 1:
		if p.turns != askFirst {
			t.fenced = w.fences
		}
		if t.pc = 2; t.fenced {
			w.barrier(i, fence)
		} else {
			w.barrier(i, p.waker)
		}
		t.fenced = false
	case 3: // begin to fence, or end
		if w.fences {
			w.store(i, wordFlag, 0)
			w.barrier(i, fence)
		} else {
			w.fences = true
			t.fenced = true // it begins
		}
		t.pc = 4
	case 4:
		if t.fenced && p.turns != plainBegin {
			w.barrier(i, membarrier)
		}
		t.pc = 5
	case 5:
		if t.fenced {
			w.store(i, wordFlag, 1)
			w.barrier(i, fence)
		} else {
			w.fences = false
		}
		t.pc, t.fenced = 0, false
	case 2:
		a := w.load(i, wordAtt)
		n := a >> 2
		if p.noNumber {
			n = 1
		}
		rung := &t.rung
		if p.sharedRung {
			rung = &w.th[1].rung
		}
		if a&flag != 0 && n != *rung {
			*rung = n
			w.bell = min(w.bell+1, 2)
		}
		t.pc = 0
		if t.seen == p.rounds() {
			t.pc = done
		}
	}
	return []world{w}
}

// explore finds a state in which a wake-up was lost, if there is one.
func (p *protocol) explore() explore.Result[world] {
	return explore.All(func(w world) (next []world, wrong string) {
		for i := range w.th {
			next = append(next, p.step(w, i)...)
			if w.th[i].n > 0 {
				f := w
				f.flushOne(i)
				next = append(next, f)
			}
		}
		if len(next) == 0 && (w.th[0].pc != done || p.both && w.th[2].pc != done) {
			wrong = "a wake-up is lost"
		}
		return next, wrong
	}, world{})
}

// slip says what is done otherwise than the SPEC says.
func (p *protocol) slip() string {
	switch {
	case p.lookFirst:
		return "looks-before-it-arms"
	case p.noNumber:
		return "rings-once"
	case p.forget:
		return "two-sleepers-forgets-one"
	case p.sharedRung:
		return "two-sleepers-one-number"
	case p.stay:
		return "stays-armed"
	case p.both:
		return "two-sleepers" + p.turns.String()
	}
	return "one-sleeper" + p.turns.String()
}

func TestNoLostWakeUp(t *testing.T) {
	for _, tt := range []struct {
		p  protocol
		ok bool
	}{
		{protocol{sleeper: fence, waker: fence}, true},
		{protocol{sleeper: membarrier, waker: noBarrier}, true}, // EXPEDITED
		{protocol{sleeper: membarrier, waker: fence}, true},     // until the sides know of each other
		{protocol{sleeper: fence, waker: noBarrier}, false},
		{protocol{sleeper: noBarrier, waker: fence}, false},
		{protocol{sleeper: noBarrier, waker: noBarrier}, false},
		{protocol{sleeper: fence, waker: fence, lookFirst: true}, false},
		{protocol{sleeper: fence, waker: fence, noNumber: true}, false},
		{protocol{sleeper: fence, waker: fence, both: true}, true},
		{protocol{sleeper: membarrier, waker: noBarrier, both: true}, true},
		{protocol{sleeper: fence, waker: fence, both: true, sharedRung: true}, true},
		{protocol{sleeper: membarrier, waker: noBarrier, both: true, sharedRung: true}, true},
		{protocol{sleeper: fence, waker: fence, both: true, forget: true}, false},
		{protocol{sleeper: fence, waker: noBarrier, both: true}, false},
		{protocol{sleeper: fence, waker: fence, stay: true}, false},
		{protocol{sleeper: membarrier, waker: noBarrier, turns: asSpec}, true},
		{protocol{sleeper: membarrier, waker: noBarrier, turns: asSpec, both: true}, true},
		{protocol{sleeper: membarrier, waker: noBarrier, turns: plainBegin, both: true}, false},
		{protocol{sleeper: membarrier, waker: noBarrier, turns: flagFirst}, false},
		{protocol{sleeper: membarrier, waker: noBarrier, turns: askFirst, both: true}, false},
	} {
		t.Run(fmt.Sprintf("sleeper=%v/waker=%v/%s", tt.p.sleeper, tt.p.waker, tt.p.slip()), func(t *testing.T) {
			r := tt.p.explore()
			t.Logf("%d states", r.States)
			if (r.Wrong == "") != tt.ok {
				t.Errorf("%v, want a wake-up lost: %v", r, !tt.ok)
			}
		})
	}
}
