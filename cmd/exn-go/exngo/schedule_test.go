package exngo

import (
	"testing"

	"exnet/internal/explore"
)

// What the scheduler does before a thread sleeps (std/runtime/exn.go), explored exhaustively: every
// order of the steps of that thread, of a goroutine that waits for messages, of its peer, whose
// stores reach memory some time later, as on x86, of another goroutine that wants a place, of
// another thread that looks meanwhile, and of who waits for room in the same connection, who reads
// the doorbell empty when it wakes. All else are atomic operations. A wake-up is lost when nobody
// can take a step any more and the goroutine has not had its messages.

// place is an exnPlace.
type place struct {
	state uint8 // exnFree ...
	owner uint8
	lap   uint8 // messages that its owner had when it began to wait
}

const (
	isFree = iota
	waits
	armed
	shown // armed, and not looked at since
	fired
	busy
)

// plan is a state of the model.
type plan struct {
	asleep bool
	places [2]place
	conns  [2]wire
	reader reader
	peer   peer
	thread thread
	writer uint8 // of the reader's connection: it changes the attention word, too
	other  uint8 // another reader, whose messages do not come
	breaks uint8 // how often the thread was woken by something else
	rouse  uint8 // of who waits for room in the reader's connection, and wakes
	lock   uint8 // exnScanning: 1 the thread's, 2 the looker's
	look   looker
}

// looker is another thread that looks at the memory, without sleeping.
type looker struct{ times, at uint8 }

// wire is what a reader and its peer share.
type wire struct {
	there uint8 // messages in memory
	armed bool  // in the attention word
	fresh bool  // its number is not the one that was rung for last
	held  bool  // the attention word is being changed
	edge  bool  // the doorbell has rung since epoll reported it
}

type reader struct {
	pc, seen uint8
	ready    bool  // its pollDesc
	told     bool  // to look up: the doorbell's deadline has passed
	sleeps   bool  // whoever reads the doorbell empty has to tell it
	place    uint8 // plus 1; 0: none
	asleep   bool  // what a planted fault has read too early
}

type peer struct{ pc, sent uint8 }

type thread struct {
	pc, at uint8
	found  bool
}

// order is what is checked. What comes after the empty line are faults.
type order struct {
	messages uint8
	places   int  // with none the reader arms by itself
	writer   bool // there is one
	other    bool // there is one
	breaks   bool // the thread may be woken by something else
	rouse    bool // who waits for room wakes
	looks    uint8

	lateAsleep  bool // the thread says that it sleeps after it has armed
	earlyAsk    bool // a reader asks whether a thread sleeps before it is in its place
	noBarrier   bool
	noLook      bool // the thread does not look after it has armed
	passBusy    bool // the thread leaves out whose attention is being changed
	takeWaiting bool // a reader takes the place of one that nothing is armed for
	takeShown   bool // a reader takes the place of one that was not looked at since it was armed
	sameNumber  bool // the thread arms without a new number
	keepState   bool // the thread disarms, and the place says that it is armed
	skipLook    bool // the thread does not look after it has armed while another one does
	noTell      bool // who reads the doorbell empty tells nobody
}

const over = 99

// next returns the states that can be reached in one step.
func (o *order) next(p plan, all []plan) []plan {
	for _, step := range []func(*plan) bool{o.read, o.send, o.idle, o.write, o.want, o.wakeWriter, o.lookOn} {
		if q := p; step(&q) {
			all = append(all, q)
		}
	}
	if p.conns[0].there < p.peer.sent {
		q := p
		q.conns[0].there++
		all = append(all, q)
	}
	if o.breaks && p.thread.pc == 8 && p.breaks == 0 {
		q := p
		q.breaks, q.thread.pc = 1, 9
		all = append(all, q)
	}
	return all
}

// send is a peer: it publishes, without a fence, and rings if the reader has armed.
func (o *order) send(p *plan) bool {
	s, w := &p.peer, &p.conns[0]
	switch {
	case s.pc == 1:
		if w.armed && w.fresh {
			w.fresh, w.edge = false, true
		}
		s.pc = 0
	case s.sent < o.messages:
		s.sent++
		s.pc = 1
	default:
		return false
	}
	return true
}

// write is who waits for room at times, and says so in the attention word.
func (o *order) write(p *plan) bool {
	if w := &p.conns[0]; p.writer == 1 || o.writer && p.writer == 0 && !w.held {
		w.held = !w.held
		p.writer++
		return true
	}
	return false
}

// wakeWriter is Conn.awake of who waits for room: it disarms both, and reads the doorbell empty.
func (o *order) wakeWriter(p *plan) bool {
	w := &p.conns[0]
	switch {
	case p.rouse == 0 && o.rouse && !w.held:
		w.armed = false
	case p.rouse == 1:
		w.edge = false
	case p.rouse == 2:
		p.reader.told = p.reader.told || p.reader.sleeps && !o.noTell
	default:
		return false
	}
	p.rouse++
	return true
}

// lookOn is exnLook of a thread that has something else to do.
func (o *order) lookOn(p *plan) bool {
	switch l := &p.look; {
	case p.lock == 2 && int(l.at) == o.places:
		p.lock, l.at = 0, 0
	case p.lock == 2:
		p.lookAt(l.at)
		l.at++
	case p.lock == 0 && l.times < o.looks:
		p.lock = 2
		l.times++
	default:
		return false
	}
	return true
}

// lookAt tells the reader of a place if its message is there.
func (p *plan) lookAt(i uint8) bool {
	at := &p.places[i]
	if at.state != waits && at.state != armed && at.state != shown || at.owner != 0 || p.conns[0].there <= at.lap {
		return false
	}
	p.fire(at)
	return true
}

// want is another goroutine that takes a place, and leaves it.
func (o *order) want(p *plan) bool {
	switch {
	case p.other == 0 && o.other:
		if o.take(p, 1) == 0 {
			return false
		}
		p.other = 1
	case p.other == 1:
		for i := range p.places {
			if at := &p.places[i]; at.owner == 1 && at.state == busy {
				return false
			} else if at.owner == 1 {
				*at = place{}
			}
		}
		p.other = 2
	default:
		return false
	}
	return true
}

// leave is exnUnwatch of the reader. False: not now, the thread arms for it.
func (p *plan) leave() bool {
	r := &p.reader
	if r.place == 0 {
		return true
	}
	at := &p.places[r.place-1]
	if at.owner == 0 && at.state != isFree {
		if at.state == busy {
			return false
		}
		*at = place{}
	}
	r.place = 0
	return true
}

// take is exnTake: a free place, or that of a reader that is armed for. It returns its number,
// from 1 on, or 0.
func (o *order) take(p *plan, owner uint8) uint8 {
	victim := uint8(armed)
	switch {
	case o.takeWaiting:
		victim = waits
	case o.takeShown:
		victim = shown
	}
	for _, state := range []uint8{isFree, victim} {
		for i := range o.places {
			if p.places[i].state == state {
				p.places[i] = place{waits, owner, p.reader.seen}
				return uint8(i + 1)
			}
		}
	}
	return 0
}

// read is Conn.sleep with lookScheduled.
func (o *order) read(p *plan) bool {
	r, w := &p.reader, &p.conns[0]
	switch r.pc {
	case 0: // look, without waiting
		if w.there > r.seen {
			if r.seen = w.there; r.seen == o.messages {
				*r = reader{pc: over, seen: r.seen} // and whatever comes says nothing to anybody
			}
			return true
		}
		r.told = false // clearWake
		r.pc = 1
	case 1:
		r.sleeps = true
		r.ready = false // runtime_pollReset
		r.asleep = o.earlyAsk && p.asleep
		r.pc = 2
	case 2:
		if !p.leave() {
			return false
		}
		if r.place = o.take(p, 0); r.place == 0 {
			r.pc = 4
			return true
		}
		r.pc = 3
	case 3:
		if o.earlyAsk && r.asleep || !o.earlyAsk && p.asleep {
			r.pc = 4
		} else {
			r.pc = 8
		}
	case 4: // arm by itself
		if w.held {
			return false
		}
		w.armed, w.fresh = true, true
		r.pc = 6
	case 6:
		p.membarrier()
		if r.pc = 8; w.there > r.seen {
			r.pc = 10
		}
	case 8: // sleep
		if r.told {
			r.pc = 10
			return true
		}
		if !r.ready {
			return false
		}
		r.ready = false
		r.asleep = o.earlyAsk && p.asleep
		if r.pc = 2; w.there > r.seen {
			r.pc = 10
		}
	case 10:
		r.sleeps = false
		if !p.leave() {
			return false
		}
		r.pc = 11
	case 11: // disarm
		if w.held {
			return false
		}
		w.armed = false
		r.pc, r.asleep, r.ready = 0, false, false
	default:
		return false
	}
	return true
}

func (p *plan) membarrier() { p.conns[0].there = p.peer.sent }

// fire tells the reader of a place.
func (p *plan) fire(at *place) {
	at.state = fired
	if at.owner == 0 {
		p.reader.ready = true
	}
}

// idle is exnIdle, of the thread that sleeps for the network.
func (o *order) idle(p *plan) bool {
	t := &p.thread
	if t.pc != 1 && t.pc != 7 && t.pc != 10 && t.pc != 11 {
		t.at %= uint8(max(1, o.places))
	}
	switch at := &p.places[t.at%2]; t.pc {
	case 0:
		p.asleep, t.found = !o.lateAsleep, false
		t.pc, t.at = 1, 0
	case 1: // exnArmAll
		switch {
		case int(t.at) == o.places:
			p.asleep = true
			t.pc, t.at = 6, 0
		case at.state == waits:
			at.state = busy
			t.pc = 2
		default:
			t.at++
		}
	case 2:
		switch w := &p.conns[at.owner]; {
		case !w.held:
			w.armed = true
			w.fresh = w.fresh || !o.sameNumber
			t.pc = 5
		case o.passBusy:
			t.pc = 5
		default:
			p.fire(at)
			t.found = true
			t.pc, t.at = 1, t.at+1
		}
	case 5:
		at.state = shown
		t.pc, t.at = 1, t.at+1
	case 6:
		if !o.noBarrier {
			p.membarrier()
		}
		if t.pc = 7; o.noLook {
			t.at = uint8(o.places)
		}
	case 7, 10: // exnLook
		if p.lock == 2 && t.pc == 7 && !o.skipLook {
			return false
		}
		if int(t.at) < o.places && p.lock != 2 {
			p.lock = 1
			if p.lookAt(t.at) {
				t.found = true
			} else if t.pc == 7 && at.state == shown {
				at.state = armed
			}
			t.at++
			return true
		}
		if p.lock == 1 {
			p.lock = 0
		}
		switch t.at = 0; {
		case t.pc == 10:
			t.pc = 0
		case t.found:
			t.pc = 9
		default:
			t.pc = 8
		}
	case 8: // epoll_wait
		if !p.conns[0].edge {
			return false
		}
		p.conns[0].edge, p.reader.ready = false, true
		t.pc = 9
	case 9:
		p.asleep = false
		if t.pc, t.at = 11, 0; t.found {
			t.pc = 0
		}
	case 11: // exnDisarmAll
		switch {
		case int(t.at) == o.places:
			t.pc, t.at = 10, 0
		case at.state == armed:
			at.state = busy
			t.pc = 12
		default:
			t.at++
		}
	case 12:
		at.state = waits
		switch w := &p.conns[at.owner]; {
		case w.held || o.keepState:
			at.state = armed
			w.armed = w.armed && !o.keepState
		default:
			w.armed = false
		}
		t.pc, t.at = 11, t.at+1
	}
	return true
}

// explore finds a state in which a wake-up was lost, if there is one.
func (o *order) explore() explore.Result[plan] {
	var first plan
	first.conns[0].fresh = true
	var next []plan
	return explore.All(func(p plan) (_ []plan, wrong string) {
		next = o.next(p, next[:0])
		if len(next) == 0 && p.reader.pc != over {
			wrong = "a wake-up is lost"
		}
		return next, wrong
	}, first)
}

// TestSchedule has no wake-up lost in any order of steps, and finds each fault that is planted.
func TestSchedule(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    order
		ok   bool
	}{
		{"one reader", order{messages: 3, places: 1, breaks: true}, true},
		{"and a writer", order{messages: 2, places: 1, writer: true, breaks: true}, true},
		{"no place", order{messages: 2}, true},
		{"a place each", order{messages: 1, places: 2, other: true, breaks: true}, true},
		{"one place for two", order{messages: 1, places: 1, other: true, breaks: true}, true},
		{"and another thread looks", order{messages: 2, places: 1, breaks: true, looks: 2}, true},
		{"and one that waits for room", order{messages: 2, places: 1, breaks: true, rouse: true}, true},
		{"no place, and one that waits for room", order{messages: 2, rouse: true}, true},
		{"says late that it sleeps", order{messages: 3, places: 1, lateAsleep: true}, false},
		{"asks early who sleeps", order{messages: 3, places: 1, earlyAsk: true}, false},
		{"no barrier", order{messages: 3, places: 1, noBarrier: true}, false},
		{"no look after it has armed", order{messages: 3, places: 1, noLook: true}, false},
		{"passes who is busy", order{messages: 2, places: 1, writer: true, passBusy: true}, false},
		{"arms with the same number", order{messages: 3, places: 1, sameNumber: true}, false},
		{"disarms, and leaves it in its place", order{messages: 1, places: 1, breaks: true, keepState: true}, false},
		{"takes the place of one that waits", order{messages: 1, places: 1, other: true, takeWaiting: true}, false},
		{"takes the place of one just armed", order{messages: 1, places: 1, other: true, takeShown: true}, false},
		{"leaves the look to another thread", order{messages: 2, places: 1, looks: 1, skipLook: true}, false},
		{"reads the doorbell empty, and tells nobody", order{messages: 2, places: 1, rouse: true, noTell: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.o.explore()
			t.Logf("%d states", r.States)
			if (r.Wrong == "") != tt.ok {
				t.Errorf("%v, want a wake-up lost: %v", r, !tt.ok)
			}
		})
	}
}
