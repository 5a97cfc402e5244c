package relay

import (
	"fmt"
	"testing"

	"exnet/internal/explore"
)

// Data in a ring, as a model whose steps are walked through in every order: a message announces
// data that comes with it, or by a PUT, which the peer may refuse for now, and whose landing and
// end are told late and in any order; room is given back when the far program has consumed. What
// is wrong: a message whose data is not there, or is written over before it was consumed; a step
// that cannot be; and a walk that ends with something undelivered.

// ringFault is a mistake that the model is to find.
type ringFault uint8

const (
	ringNone    ringFault = iota
	ringNoWait            // a message does not wait for its PUT
	ringNoHold            // what follows a message that waits does not wait
	ringKept              // a PUT that was waited for counts as landed for the next one there, too
	ringForgot            // a PUT that lands before its message is forgotten
	ringGiven             // room is given back when a message is delivered, not consumed
	ringRefused           // a PUT that was refused counts as ended
	ringTwice             // a PUT starts although the end of the last one to that place is not known
	ringDropped           // a PUT that cannot start yet is not looked at again
	ringFaults
)

func (f ringFault) String() string {
	return [...]string{"none", "no wait", "no hold", "landed twice", "landed early", "given early", "refused is ended", "two PUTs of a place", "not started again"}[f]
}

const (
	rPlaces   = 2 // places in the ring
	rMessages = 4
)

// rPut is a PUT by the place that it is for: what the requester knows, and what the link does.
type rPut struct {
	message int8 // 0: none
	state   int8 // 1: under way, 2: refused, 3: landed
}

type rWorld struct {
	next     int8 // message that the program sends next
	freed    int8 // messages whose room was given back, as the sender knows it
	waits    [rMessages + 1]bool
	inline   [rMessages + 1]bool
	running  [rPlaces]rPut // of the sender
	told     [rMessages]int8
	sent     int8          // messages that were announced; those after them are taken, and wait
	landed   [rPlaces]int8 // notices that were not looked at: message
	arrived  [rPlaces]bool // PUTs that have landed and wait for their message
	awaited  [rPlaces]bool
	ring     [rPlaces]int8 // what is there
	held     [rMessages]int8
	got      int8 // messages that were delivered
	consumed int8
	back     int8 // what was said of that, and has not come yet
	refusals int8 // that may be yet
}

type ringModel struct {
	fault ringFault
	wrong string
}

func (m *ringModel) bad(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
	}
}

func ringPlace(message int8) int8 { return (message - 1) % rPlaces }

// next returns the worlds that a step leads to.
func (m *ringModel) next(w rWorld) (all []rWorld) {
	try := func(step func(v *rWorld)) {
		v := w
		step(&v)
		all = append(all, v)
	}
	if w.next <= rMessages && w.next-w.freed <= rPlaces { // Engine.takeOne
		for _, inline := range []bool{false, true} {
			try(func(v *rWorld) {
				n := v.next
				v.next++
				if v.inline[n] = inline; !inline {
					m.start(v, n)
				}
			})
		}
	}
	if n := w.sent + 1; n < w.next && !w.waits[n] { // Engine.sendQueue
		try(func(v *rWorld) { v.sent = n; push(v.told[:], n) })
	}
	for i, p := range w.running {
		switch p.state {
		case 1:
			if w.landed[i] == 0 {
				try(func(v *rWorld) { v.ring[i], v.landed[i], v.running[i].state = p.message, p.message, 3 })
			}
			if w.refusals > 0 {
				try(func(v *rWorld) {
					v.refusals--
					if v.running[i].state = 2; m.fault == ringRefused {
						m.ended(v, int8(i))
					}
				})
			}
		case 2: // Engine.repeatPut
			try(func(v *rWorld) { v.running[i].state = 1 })
		case 3:
			try(func(v *rWorld) { m.ended(v, int8(i)) })
		}
		if w.landed[i] != 0 {
			try(func(v *rWorld) { m.land(v, int8(i)) })
		}
	}
	if n := w.told[0]; n != 0 {
		try(func(v *rWorld) {
			pop(v.told[:])
			if v.held[0] != 0 && m.fault != ringNoHold || !m.come(v, n) {
				push(v.held[:], n)
				return
			}
			m.deliver(v, n)
		})
	}
	if w.consumed < w.got { // the far program
		try(func(v *rWorld) {
			v.consumed++
			if n := v.consumed; v.ring[ringPlace(n)] != n {
				m.bad("message %d is consumed, and there is message %d", n, v.ring[ringPlace(n)])
			}
			v.back = v.consumed
		})
	}
	if w.back > w.freed {
		try(func(v *rWorld) { v.freed = v.back })
	}
	return all
}

// start is Engine.startPut.
func (m *ringModel) start(w *rWorld, n int8) {
	i := ringPlace(n)
	if w.running[i].message != 0 && m.fault != ringTwice {
		w.waits[n] = true
		return
	}
	if p := w.running[i]; p.message != 0 {
		m.bad("the end of the PUT of message %d would be that of message %d", p.message, n)
	}
	w.waits[n] = false
	w.running[i] = rPut{n, 1}
}

// ended is Engine.endTransfer.
func (m *ringModel) ended(w *rWorld, i int8) {
	w.running[i] = rPut{}
	if m.fault == ringDropped {
		return
	}
	for n := w.sent + 1; n < w.next; n++ {
		if w.waits[n] && ringPlace(n) == i {
			m.start(w, n)
			return
		}
	}
}

// land is Engine.ringLanded.
func (m *ringModel) land(w *rWorld, i int8) {
	w.landed[i] = 0
	w.arrived[i] = m.fault != ringForgot || w.awaited[i]
	if !w.awaited[i] {
		return
	}
	w.awaited[i] = false
	for w.held[0] != 0 { // Engine.goOn
		n := w.held[0]
		if !m.come(w, n) {
			return
		}
		pop(w.held[:])
		m.deliver(w, n)
	}
}

// come is Engine.hasCome.
func (m *ringModel) come(w *rWorld, n int8) bool {
	i := ringPlace(n)
	if w.inline[n] || m.fault == ringNoWait {
		return true
	}
	if w.arrived[i] {
		w.arrived[i] = m.fault == ringKept
		return true
	}
	w.awaited[i] = true
	return false
}

// deliver is Engine.deliverMessage.
func (m *ringModel) deliver(w *rWorld, n int8) {
	if n != w.got+1 {
		m.bad("message %d comes after %d", n, w.got)
	}
	if w.got = n; w.inline[n] {
		w.ring[ringPlace(n)] = n
	}
	if w.ring[ringPlace(n)] != n {
		m.bad("message %d comes, and there is the data of message %d", n, w.ring[ringPlace(n)])
	}
	if m.fault == ringGiven {
		w.back = n
	}
}

func (m *ringModel) explore() (wrong string, states int) {
	r := explore.All(func(w rWorld) ([]rWorld, string) {
		m.wrong = ""
		next := m.next(w)
		if len(next) == 0 && w.consumed != rMessages {
			m.bad("%d of %d messages are consumed", w.consumed, rMessages)
		}
		return next, m.wrong
	}, rWorld{next: 1, refusals: 2})
	return r.Wrong, r.States
}

// Whatever the order of steps, each message finds its data.
func TestRingModel(t *testing.T) {
	wrong, states := (&ringModel{}).explore()
	t.Logf("%d states", states)
	if wrong != "" {
		t.Error(wrong)
	}
}

// Each mistake is found.
func TestRingModelFindsFaults(t *testing.T) {
	for f := ringNone + 1; f < ringFaults; f++ {
		found, _ := (&ringModel{fault: f}).explore()
		t.Logf("%v: %s", f, found)
		if found == "" {
			t.Errorf("%v is not found", f)
		}
	}
}
