package napi

import (
	"fmt"
	"testing"

	"exnet/internal/longtest"
	"exnet/internal/racetest"
)

// The model: producers, timers, Run's goroutine and an operator who changes
// the mode or closes, each a little program whose steps are single accesses to
// shared memory. The steps on the state word are the functions of word.go, the
// ones that the Context uses. The test visits every state that any
// interleaving can reach and requires that
//
//   - at most one goroutine polls at a time;
//   - wherever nothing can move any more, nothing is left to poll: no message
//     waits, the list is empty and not owned, the interrupts are unmasked;
//   - from everywhere, such an end can still be reached (nothing spins for ever
//     against the others);
//   - closing is announced exactly once.

const modelSources = 2

// Program counters.
const (
	pcEnd uint8 = iota

	pcSend  // a producer puts a message into a unit's mailbox
	pcCheck // ... and looks whether its interrupt is unmasked
	pcCount // Interrupt: count the event
	pcMask  // Interrupt: mask
	pcSched // Interrupt: put on the poll list
	pcWake  // wake Run's goroutine
	pcPoke
	pcPokeEvent

	pcNext // run: look at the word
	pcDue  // due: was it forced?
	pcHold // due: poll or hold
	pcHeld // due: mask to poll, or unmask to count
	pcPoll // Poll: take one message, or find none
	pcEnable
	pcRecheck
	pcRemask
	pcRaise
	pcRaised
	pcRequeue

	pcBusyMask
	pcBusyLook
	pcBusyPoll
	pcBusyEnable
	pcBusyRecheck
	pcBusyRemask
	pcBusyRequeue

	pcAttach // Run
	pcSleep
	pcWait
	pcLook
	pcWaitDone

	pcOperator
	pcTimer
	pcExpire
)

// proc is one goroutine.
type proc struct {
	pc, home uint8 // home: where it goes on after a call
	src      uint8 // source in hand
	left     uint8 // messages to send, or operations to do
	got      uint8 // frames of this Poll
	budget   uint8
	thread   bool   // it is Run's goroutine
	forced   bool   // due is to poll
	irq      bool   // the mode of this Poll is ModeInterrupt
	closed   bool   // Run has seen closedBit
	line     uint8  // what is signalled or waited for: wake or Event
	then     action // after the pokes
}

// mstate is all that the goroutines share, and they.
type mstate struct {
	w        word
	last     int8
	pending  [modelSources]uint8
	unmasked [modelSources]bool
	mod      modModel
	wake     [2]bool // the token, the Event
	done     uint8
	procs    [5]proc
}

// modModel is the moderator of source 0.
type modModel struct {
	events    uint8 // counted and not seen
	force     bool
	again     bool
	held      bool
	announced uint8
	armed     bool // the timer is running
}

type scenario struct {
	name     string
	messages [2]uint8 // each producer's
	targets  []uint8  // sources that producers may send to
	run      bool     // Run is called
	threaded bool     // no inline polling
	frames   uint8    // Coalesce.Frames of source 0; 0: off
	delay    bool     // Coalesce.Delay alone for source 0
	ops      []func(word) (word, action)

	// Seeded faults, to show that the check finds them.
	noRecheck, dropMark, noTimer, noPoke bool
}

func opMode(m Mode) func(word) (word, action) {
	return func(w word) (word, action) { return w.setMode(m) }
}

func TestNoLostWakeUp(t *testing.T) {
	racetest.SkipModel(t)
	both, one := []uint8{0, 1}, []uint8{0}
	for _, sc := range []scenario{
		{name: "inline only", messages: [2]uint8{3, 3}, targets: both},
		{name: "with Run", messages: [2]uint8{3, 1}, targets: both, run: true},
		{name: "threaded", messages: [2]uint8{3, 1}, targets: both, run: true, threaded: true},
		{name: "coalesce frames", messages: [2]uint8{2, 2}, targets: one, run: true, frames: 2},
		{name: "coalesce delay", messages: [2]uint8{3, 1}, targets: one, run: true, delay: true},
		{name: "coalesce, then interrupt mode", messages: [2]uint8{1, 1}, targets: one, run: true, frames: 2,
			ops: []func(word) (word, action){opMode(ModeInterrupt)}},
		{name: "coalesce, busy and back", messages: [2]uint8{2, 0}, targets: one, run: true, frames: 2,
			ops: []func(word) (word, action){opMode(ModeBusyPoll), opMode(ModeNAPI)}},
		{name: "interrupt mode", messages: [2]uint8{1, 1}, targets: both, run: true,
			ops: []func(word) (word, action){opMode(ModeInterrupt)}},
		{name: "interrupt mode and back", messages: [2]uint8{2, 1}, targets: one, run: true,
			ops: []func(word) (word, action){opMode(ModeInterrupt), opMode(ModeNAPI)}},
		{name: "threaded, interrupt mode", messages: [2]uint8{2, 1}, targets: one, run: true, threaded: true,
			ops: []func(word) (word, action){opMode(ModeInterrupt), opMode(ModeNAPI)}},
		{name: "interrupt mode, no Run", messages: [2]uint8{2, 2}, targets: both,
			ops: []func(word) (word, action){opMode(ModeInterrupt)}},
		{name: "close in interrupt mode", messages: [2]uint8{2, 1}, targets: one, run: true,
			ops: []func(word) (word, action){opMode(ModeInterrupt), word.close}},
		{name: "busy and back", messages: [2]uint8{2, 1}, targets: both, run: true,
			ops: []func(word) (word, action){opMode(ModeBusyPoll), opMode(ModeNAPI)}},
		{name: "busy twice", messages: [2]uint8{2, 0}, targets: one, run: true,
			ops: []func(word) (word, action){opMode(ModeBusyPoll), opMode(ModeNAPI), opMode(ModeBusyPoll), opMode(ModeInterrupt)}},
		{name: "busy without Run", messages: [2]uint8{2, 1}, targets: both,
			ops: []func(word) (word, action){opMode(ModeBusyPoll)}},
		{name: "close", messages: [2]uint8{2, 1}, targets: both, run: true,
			ops: []func(word) (word, action){word.close}},
		{name: "close while busy", messages: [2]uint8{1, 1}, targets: both, run: true,
			ops: []func(word) (word, action){opMode(ModeBusyPoll), word.close}},
		{name: "close twice, no Run", messages: [2]uint8{2, 1}, targets: both,
			ops: []func(word) (word, action){word.close, word.close}},
	} {
		t.Run(sc.name, func(t *testing.T) {
			switch sc.name {
			case "coalesce frames", "busy and back", "close", "threaded, interrupt mode", "close in interrupt mode":
				longtest.Skip(t) // some 100,000 states each
			}
			n, err := sc.explore()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states", n)
		})
	}
}

// TestModelFindsFaults seeds the classic faults.
func TestModelFindsFaults(t *testing.T) {
	for _, sc := range []scenario{
		{name: "no recheck after unmasking", messages: [2]uint8{2, 1}, targets: []uint8{0}, noRecheck: true},
		{name: "mark is lost while the list is run", messages: [2]uint8{2, 1}, targets: []uint8{0, 1}, dropMark: true},
		{name: "mode changes and nobody is told", messages: [2]uint8{2, 1}, targets: []uint8{0}, run: true, threaded: true, noPoke: true,
			ops: []func(word) (word, action){opMode(ModeInterrupt)}},
		{name: "interrupt held without a timer", messages: [2]uint8{1, 0}, targets: []uint8{0}, frames: 2, noTimer: true},
	} {
		t.Run(sc.name, func(t *testing.T) {
			if _, err := sc.explore(); err == nil {
				t.Error("not found")
			} else {
				t.Log(err)
			}
		})
	}
}

func (sc *scenario) initial() mstate {
	s := mstate{last: -1}
	for i := range s.unmasked {
		s.unmasked[i] = true
	}
	for i, n := range sc.messages {
		s.procs[i] = proc{pc: pcSend, home: pcSend, left: n}
	}
	if sc.run {
		s.procs[2] = proc{pc: pcAttach, home: pcSleep}
	}
	s.procs[3] = proc{pc: pcOperator, home: pcOperator}
	if sc.frames > 0 || sc.delay {
		s.procs[4] = proc{pc: pcTimer, home: pcTimer}
	}
	return s
}

// explore visits all states and returns their number.
func (sc *scenario) explore() (int, error) {
	start := sc.initial()
	index := map[mstate]int32{start: 0}
	states := []mstate{start}
	var preds [][]int32
	preds = append(preds, nil)
	var ends []int32
	var buf []mstate
	for i := 0; i < len(states); i++ {
		s := states[i]
		if err := s.check(); err != nil {
			return len(states), err
		}
		buf = buf[:0]
		for p := range s.procs {
			buf = sc.step(s, p, buf)
		}
		if len(buf) == 0 {
			if err := sc.checkEnd(s); err != nil {
				return len(states), err
			}
			ends = append(ends, int32(i))
		}
		for _, n := range buf {
			j, seen := index[n]
			if !seen {
				j = int32(len(states))
				index[n] = j
				states = append(states, n)
				preds = append(preds, nil)
			}
			preds[j] = append(preds[j], int32(i))
		}
	}
	// Which states lead to an end?
	good := make([]bool, len(states))
	for work := ends; len(work) > 0; {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		if !good[i] {
			good[i] = true
			work = append(work, preds[i]...)
		}
	}
	for i, ok := range good {
		if !ok {
			return len(states), fmt.Errorf("no end is reachable from %+v", states[i])
		}
	}
	return len(states), nil
}

// check: one owner at a time.
func (s *mstate) check() error {
	owners := 0
	for _, p := range s.procs {
		if p.pc >= pcNext && p.pc <= pcBusyRequeue {
			owners++
		}
	}
	if owners > 1 || owners == 1 && s.w&ownedBit == 0 {
		return fmt.Errorf("%d goroutines poll: %+v", owners, *s)
	}
	if s.done > 1 {
		return fmt.Errorf("closed %d times: %+v", s.done, *s)
	}
	return nil
}

// checkEnd: nobody can move; that must be because all is done.
func (sc *scenario) checkEnd(s mstate) error {
	for i, p := range s.procs {
		switch p.pc {
		case pcEnd, pcWait, pcTimer:
		default:
			return fmt.Errorf("goroutine %d is stuck: %+v", i, s)
		}
	}
	if s.w&(listMask|ownedBit|threadBit) != 0 {
		return fmt.Errorf("poll list left: %+v", s)
	}
	if s.w&closedBit != 0 {
		if s.done != 1 || sc.run && s.procs[2].pc != pcEnd {
			return fmt.Errorf("close did not end: %+v", s)
		}
		return nil
	}
	for i := range s.pending {
		if s.pending[i] != 0 || !s.unmasked[i] || s.mod.held {
			return fmt.Errorf("source %d is left behind: %+v", i, s)
		}
	}
	return nil
}
