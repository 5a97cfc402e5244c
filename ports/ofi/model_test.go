package ofi

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"exnet/internal/explore"
	"exnet/internal/longtest"
)

// The life of a connection, as a model of its two endpoints, whose steps are walked through in
// every order: what is on its way by TCP and by the mailbox comes at any time, one before the
// other; either program posts receives, sends, closes, shuts down, or is killed, and either node
// ends, at every step. The endpoints take the steps of state.c. TCP and the nodes' session lose and
// repeat nothing (package far has a model of that), so nothing is lost or doubled here but by an
// end.
//
// What is wrong: a message that comes twice, out of order, or not at all although its sender's node
// lives; a program that is told twice, or nothing; a walk that ends with something undone.

// What is on its way. A positive number is a message of the program, or mCount and how many there
// were.
const mCount = 50

const (
	mRequest int8 = -iota - 1
	mAccept
	mReject
	mReady
	mSaysClose // by TCP; mCount and how many messages there were follow
	mFin
	mReset // in place of all that was not read
	mClose // by the mailbox
	mGone  // the peer's mailbox has ended
)

// stateName is a state: its place in stateNames, so that worlds are small.
type stateName int8

const (
	stIdle stateName = iota
	stArriving
	stOffered
	stDialing
	stAsked
	stAccepting
	stEarly
	stConnected
	stEnding
	stDraining
	stDown
)

var stateNames = []string{"idle", "arriving", "offered", "dialing", "asked", "accepting", "early", "connected", "ending", "draining", "down"}

func (s stateName) String() string { return stateNames[s] }

// queue is what is on its way to an endpoint.
type queue [7]int8

func (q *queue) push(m int8) {
	for i := range q {
		if q[i] == 0 {
			q[i] = m
			return
		}
	}
	panic("the model's queue is full")
}

func (q *queue) pop() int8 {
	m := q[0]
	copy(q[:], q[1:])
	q[len(q)-1] = 0
	return m
}

// mEnd is an endpoint, with its program and what is on its way to it.
type mEnd struct {
	state                       stateName
	tcp, mail                   queue
	open, timer, reset          bool // it has TCP; the timer has taken its place; TCP was reset
	held                        [3]int8
	heard, last                 int8
	receives, posted            int8 // receives that wait; messages that were sent
	mails                       int8 // all that was sent by the mailbox
	got                         int8
	connected, failed, shutdown int8 // how often the program was told
	accepted                    bool // fi_accept was called
	left, shut, broken          bool // fi_close was called; fi_shutdown was; it could not go on
	dead, gone                  bool // the process was killed; the node has ended
}

type mWorld struct{ ends [2]mEnd }

// mModel is what is fixed while it is explored.
type mModel struct {
	steps    table
	far      bool
	messages int8
	losses   int // a node that ends loses all, or keeps up to so many, less 1
	wrong    string
	taken    map[[2]string]bool
}

func (m *mModel) fail(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
	}
}

// on is ep_on.
func (m *mModel) on(w *mWorld, i int, what string) {
	e := &w.ends[i]
	at := [2]string{stateNames[e.state], what}
	s, ok := m.steps[at]
	if !ok {
		return
	}
	m.taken[at] = true
	e.state = stateName(slices.Index(stateNames, s.to))
	switch s.act {
	case "tell":
		e.connected++
	case "drain":
		m.drain(w, i)
	case "fail":
		e.failed++
		m.release(w, i)
	case "part", "leave", "leave-tell":
		if s.act != "part" {
			w.ends[1-i].mail.push(mClose)
			e.mails++
		}
		if e.open {
			w.ends[1-i].tcp.push(mSaysClose)
			w.ends[1-i].tcp.push(mCount + e.mails)
		}
		m.release(w, i)
	case "free", "end":
		m.release(w, i)
	}
	if s.act == "end" || s.act == "leave-tell" {
		e.shutdown++
	}
}

func (m *mModel) release(w *mWorld, i int) {
	e := &w.ends[i]
	e.held, e.timer = [3]int8{}, false
	m.hangUp(w, i)
}

// hangUp closes TCP.
func (m *mModel) hangUp(w *mWorld, i int) {
	e, o := &w.ends[i], &w.ends[1-i]
	if !e.open {
		return
	}
	e.open = false
	o.tcp.push(mFin)
	e.tcp = queue{}
}

// drain is in_drain.
func (m *mModel) drain(w *mWorld, i int) {
	e := &w.ends[i]
	for e.held[0] != 0 && e.receives > 0 {
		m.receive(e, e.held[0])
		copy(e.held[:], e.held[1:])
		e.held[2] = 0
	}
	if e.held[0] == 0 && e.state == stDraining {
		m.on(w, i, "empty")
	}
}

func (m *mModel) receive(e *mEnd, number int8) {
	e.receives--
	if number != e.got+1 {
		m.fail("message %d comes after %d", number, e.got)
	}
	e.got = number
}

func hears(state stateName) bool {
	return state == stEarly || state == stConnected || state == stEnding
}

// dispatch is what comes by the mailbox.
func (m *mModel) dispatch(w *mWorld, i int) {
	e := &w.ends[i]
	v := e.mail.pop()
	if v == mGone {
		m.on(w, i, "died")
		return
	}
	if e.state == stAccepting {
		m.on(w, i, "first")
	}
	if !hears(e.state) {
		return
	}
	e.heard++
	switch {
	case v == mClose:
		m.on(w, i, "closed")
	case e.held[0] == 0 && e.receives > 0:
		m.receive(e, v)
	default:
		for k := range e.held {
			if e.held[k] == 0 {
				e.held[k] = v
				break
			}
		}
	}
	if e.state == stEnding && e.heard == e.last {
		m.on(w, i, "closed")
	}
}

// parted is what cm.c does of the same name. What the peer sent on this host is there.
func (m *mModel) parted(w *mWorld, i int) {
	e := &w.ends[i]
	for !m.far && e.mail[0] != 0 {
		m.dispatch(w, i)
	}
	if !e.open {
		return
	}
	if m.far || e.last >= 0 {
		m.on(w, i, "parted")
	} else {
		m.on(w, i, "died")
	}
	if e.state == stEnding && e.heard == e.last {
		m.on(w, i, "closed")
	}
	if e.open {
		e.timer = e.state == stEnding
		m.hangUp(w, i)
	}
}

// read is what comes by TCP.
func (m *mModel) read(w *mWorld, i int) {
	e, o := &w.ends[i], &w.ends[1-i]
	v := e.tcp.pop()
	switch v {
	case mRequest:
		m.on(w, i, "request") // and the program makes an endpoint of it
	case mAccept:
		if !e.dead {
			if o.open {
				o.tcp.push(mReady)
			} else {
				e.tcp = queue{mReset}
			}
			m.on(w, i, "accepted")
		}
	case mReady:
		m.on(w, i, "ready")
	case mReject:
		m.on(w, i, "failed")
	case mSaysClose:
		e.last = e.tcp.pop() - mCount
		m.parted(w, i)
	case mFin, mReset:
		e.reset = v == mReset
		switch e.state {
		case stEarly, stConnected, stDraining:
			m.parted(w, i)
		default:
			m.on(w, i, "failed")
			m.hangUp(w, i)
		}
	}
}

// arrives lets what is on its way to an endpoint come: by TCP, or by the mailbox.
func (m *mModel) arrives(w mWorld, i int, tcp bool) (mWorld, bool) {
	e := &w.ends[i]
	switch {
	case e.dead:
		return w, false
	case tcp && e.open && e.tcp[0] != 0 && e.state != stOffered:
		m.read(&w, i)
	case !tcp && e.mail[0] != 0:
		m.dispatch(&w, i)
	case !tcp && e.state == stEnding && e.timer && e.reset && e.last < 0: // it has waited for a second
		m.on(&w, i, "died")
	default:
		return w, false
	}
	return w, true
}

// end kills a process, or its node with it: then what it has sent is lost from some message on.
func (m *mModel) end(w mWorld, i int, node bool, keeps int) mWorld {
	e, o := &w.ends[i], &w.ends[1-i]
	e.dead, e.gone = true, node
	if node {
		clear(o.mail[keeps:])
	}
	o.mail.push(mGone)
	m.hangUp(&w, i)
	return w
}

// program lists what a program may do.
func (m *mModel) program(w mWorld, i int) (all []mWorld) {
	e := &w.ends[i]
	do := func(f func(w *mWorld, e *mEnd)) {
		n := w
		f(&n, &n.ends[i])
		all = append(all, n)
	}
	if e.dead {
		return nil
	}
	if i == 0 && e.state == stIdle {
		do(func(w *mWorld, e *mEnd) {
			m.on(w, 0, "dial")
			m.on(w, 0, "reached")
			e.open = true
			s := &w.ends[1]
			m.on(w, 1, "arrives")
			s.open = true
			s.tcp.push(mRequest)
			if s.dead {
				m.hangUp(w, 1)
			}
		})
	}
	if e.state == stOffered {
		do(func(w *mWorld, _ *mEnd) {
			if w.ends[0].tcp[0] != mFin {
				w.ends[0].tcp.push(mAccept)
			}
			m.on(w, i, "accept")
			w.ends[i].accepted = true
		})
		do(func(w *mWorld, _ *mEnd) {
			w.ends[0].tcp.push(mReject)
			m.on(w, i, "withdrawn")
		})
	}
	if (e.state == stEarly || e.state == stConnected) && e.posted < m.messages {
		do(func(w *mWorld, e *mEnd) {
			e.posted++
			e.mails++
			w.ends[1-i].mail.push(e.posted)
		})
	}
	if e.connected > 0 && !e.left && e.receives+e.got < m.messages {
		do(func(w *mWorld, e *mEnd) {
			e.receives++
			m.drain(w, i)
		})
	}
	if e.state != stIdle && e.state != stArriving && !e.left {
		do(func(w *mWorld, e *mEnd) { m.on(w, i, "close"); e.left = true })
		if !e.shut {
			do(func(w *mWorld, e *mEnd) { m.on(w, i, "shutdown"); e.shut = true })
		}
	}
	if hears(e.state) || e.state == stDraining {
		do(func(w *mWorld, e *mEnd) { m.on(w, i, "broken"); e.broken = true })
	}
	all = append(all, m.end(w, i, false, 0))
	for keeps := range m.losses {
		all = append(all, m.end(w, i, true, keeps))
	}
	return all
}

// check says what is wrong in a world, also when all that is on its way has come and both programs
// have posted receives.
func (m *mModel) check(w mWorld) {
	for i := range w.ends {
		e := &w.ends[i]
		switch {
		case e.connected > 1 || e.failed > 1 || e.shutdown > 1:
			m.fail("it is told twice: %+v", *e)
		case e.connected > 0 && e.failed > 0, e.shutdown > 0 && e.connected == 0:
			m.fail("it is told what cannot be: %+v", *e)
		}
	}
	for moved := true; moved; {
		moved = false
		for i := range w.ends {
			if e := &w.ends[i]; !e.dead && e.connected > 0 && e.held[0] != 0 {
				e.receives = int8(len(e.held))
				m.drain(&w, i)
			}
			for _, tcp := range []bool{true, false} {
				var ok bool
				if w, ok = m.arrives(w, i, tcp); ok {
					moved = true
				}
			}
		}
	}
	for i := range w.ends {
		e, o := &w.ends[i], &w.ends[1-i]
		ended := o.left || o.shut || o.dead || o.broken
		switch {
		case e.dead || e.left:
		case (e.shut || e.broken) && e.connected > 0 && e.shutdown == 0:
			m.fail("it has ended, and hears nothing of it: %+v", *e)
		case e.shut || e.broken:
		case e.accepted && e.connected+e.failed == 0:
			m.fail("it has accepted, and hears nothing: %+v", *e)
		case i == 0 && e.state != stIdle && ended && e.connected+e.failed == 0, i == 1 && e.state == stAccepting && ended:
			m.fail("it waits for ever: %+v", *e)
		case e.connected > 0 && ended && e.shutdown == 0:
			m.fail("the peer has ended, and it is not told: %+v, peer %+v", *e, *o)
		case e.connected > 0 && !o.gone && o.posted != e.got:
			m.fail("%d messages have come of %d: %+v, peer %+v", e.got, o.posted, *e, *o)
		}
	}
}

// explore visits all worlds.
func (m *mModel) explore() explore.Result[mWorld] {
	return explore.All(func(w mWorld) ([]mWorld, string) {
		m.wrong = ""
		m.check(w)
		next := append(m.program(w, 0), m.program(w, 1)...)
		for i := range w.ends {
			for _, tcp := range []bool{true, false} {
				if n, ok := m.arrives(w, i, tcp); ok {
					next = append(next, n)
				}
			}
		}
		return next, m.wrong
	}, mWorld{[2]mEnd{{state: stIdle, last: -1}, {state: stIdle, last: -1}}})
}

// faults are mistakes in the table that the model has to find. An empty step is none.
var faults = []struct {
	state, event string
	step
	near bool // it is found on one host
}{
	{"accepting", "first", step{}, true},                      // what overtakes READY is lost
	{"accepting", "ready", step{}, true},                      // it waits for ever
	{"early", "ready", step{"connected", "tell"}, true},       // told twice
	{"accepting", "died", step{"down", "free"}, true},         // nobody is told
	{"asked", "failed", step{"down", "free"}, true},           // nobody is told
	{"connected", "closed", step{"down", "end"}, true},        // what waits for a receive is lost
	{"connected", "died", step{"down", "end"}, true},          // the same
	{"connected", "parted", step{"down", "end"}, false},       // what is on its way is lost
	{"connected", "parted", step{"draining", "drain"}, false}, // the same
	{"accepting", "close", step{"down", "free"}, false},
	{"connected", "broken", step{"down", "end"}, false},
	{"connected", "close", step{"down", "free"}, false},    // the peer is not told
	{"connected", "shutdown", step{"down", "leave"}, true}, // the one who shuts down is not told
	{"ending", "died", step{}, false},                      // it waits for ever
	{"ending", "closed", step{}, false},                    // the same
	{"draining", "empty", step{}, true},                    // the same
	{"draining", "empty", step{"down", "free"}, true},      // nobody is told
}

// Both endpoints take the steps of the table whatever happens, and the model finds each fault.
func TestLife(t *testing.T) {
	_, steps := steps(t)
	messages, losses := int8(1), 1
	if !testing.Short() {
		losses = 3
	}
	if longtest.All() {
		messages = 2
	}
	taken := make(map[[2]string]bool)
	for _, far := range []bool{false, true} {
		m := mModel{steps: steps, far: far, messages: messages, losses: losses, taken: taken}
		r := m.explore()
		if r.Wrong != "" {
			t.Errorf("far %v: %v", far, r)
		}
		t.Logf("far %v: %d worlds", far, r.States)
	}
	for at := range steps {
		switch at[1] {
		case "fork", "take": // of one endpoint alone
			continue
		}
		if !taken[at] {
			t.Logf("no walk takes %v", at)
		}
	}
	for _, f := range faults {
		bad := maps.Clone(steps)
		at := [2]string{f.state, f.event}
		if _, ok := bad[at]; !ok {
			t.Fatalf("there is no step %v", at)
		}
		if bad[at] = f.step; f.step == (step{}) {
			delete(bad, at)
		}
		m := mModel{steps: bad, far: !f.near, messages: messages, losses: losses, taken: make(map[[2]string]bool)}
		if m.explore().Wrong == "" {
			t.Errorf("the model does not find %v: %v", at, f.step)
		}
	}
}
