package far

import (
	"fmt"
	"testing"

	"exnet/internal/explore"
)

// The session of two Engines, as a model whose steps are walked through in every order: at each
// step the link may be cut, with any number of what is on it lost, and the rest late, on the next
// link; what is on it may come twice; either Engine may end without a word, and begin anew, be
// closed, or wait for too long. The sessions take the steps of transitions.
//
// What is wrong: a message that is heard twice, out of order, or by another session than the one
// that it was sent in; one that is not heard although no Engine was told of the other's end; a
// session that does not come up again when there is a link.

// sFault is a mistake that the model is to find.
type sFault uint8

const (
	sFine       sFault = iota
	sTwice             // what is heard is heard again
	sGaps              // what comes too early is heard
	sNoResend          // a hello does not have the rest sent once more
	sAnySession        // messages of a session that is over are heard
	sForgives          // a hello of an Engine that has begun anew changes nothing
	sNoHello           // a new link is not greeted on
	sStaysAway         // a hello does not bring a session back
	sTooSoon           // messages are sent to an end that does not know this one
	sNoGreet           // a node that this one has given up is not told of that
	sFaults
)

// What is on its way.
const (
	sData int8 = iota + 1
	sHello
	sAsk // a hello that wants one in return
	sAck
	sBye
)

// sMessage is on its way. number: of DATA; what was heard, of a control.
type sMessage struct{ kind, number, mine, yours int8 }

// sRoom is how much may be on its way to an end. Walks with more are not followed.
const sRoom = 7

// sEnd is an Engine with its session.
type sEnd struct {
	state        state
	has          bool // there is a session
	mine, theirs int8
	sent, acked  int8 // accepted messages of this session; acknowledged
	sentTo       int8
	heard, told  int8
	asked        int8
	hears        int8 // of the peer's session so called, the owner has heard
	last         int8 // this message last
	restarts     int8
	ended        bool // its owner was told of an end since it has sent something
	late         bool // it has given the other end up, and not heard of it since
	in           [sRoom]sMessage
	lates        [2]sMessage // of a link that has ended
}

type sWorld struct {
	ends                  [2]sEnd
	up                    bool
	cuts, doubles, deaths int8
	names                 int8 // of sessions so far
}

type sModel struct {
	fault    sFault
	messages [2]int8
	cuts     int8
	wrong    string
	full     bool // something had no room
}

func (m *sModel) fail(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
	}
}

// put puts something on the link. Without one it is lost.
func (m *sModel) put(w *sWorld, to int, s sMessage) {
	if !w.up {
		return
	}
	for k := range w.ends[to].in {
		if w.ends[to].in[k].kind == 0 {
			w.ends[to].in[k] = s
			return
		}
	}
	m.full = true
}

func (m *sModel) begin(w *sWorld, i int) {
	e := &w.ends[i]
	w.names++
	*e = sEnd{has: true, mine: w.names, in: e.in, hears: e.hears, last: e.last, restarts: e.restarts, ended: e.ended, late: e.late}
}

// on is applyEvent.
func (m *sModel) on(w *sWorld, i int, ev event) {
	e := &w.ends[i]
	to, ok := transitions[e.state][ev]
	if !ok || m.fault == sStaysAway && e.state != stateUp && ev == eventKnown && e.theirs != 0 && w.cuts > 0 {
		return
	}
	if e.state = to; to == stateOver {
		e.has = false
		e.ended, e.hears = true, 0 // to its owner, what comes now is of another node
	}
}

func (m *sModel) hello(w *sWorld, i int, kind int8) {
	e := &w.ends[i]
	e.told = e.heard
	m.put(w, 1-i, sMessage{kind, e.heard, e.mine, e.theirs})
}

// flush sends what waits.
func (m *sModel) flush(w *sWorld, i int) {
	for e := &w.ends[i]; e.has && e.state == stateUp && e.sentTo < e.sent; {
		e.sentTo++
		m.put(w, 1-i, sMessage{kind: sData, number: e.sentTo, mine: e.mine})
	}
}

func (m *sModel) linked(w *sWorld, i int) {
	if e := &w.ends[i]; e.has && m.fault != sNoHello {
		m.on(w, i, eventLinked)
		m.hello(w, i, sAsk)
	}
}

// greet begins a session anew with a node that does not know that the last one is over.
func (m *sModel) greet(w *sWorld, i int) {
	if e := &w.ends[i]; !e.has && m.fault != sNoGreet {
		m.begin(w, i)
		m.hello(w, i, sAsk)
	}
}

// greeted is greetedLocked.
func (m *sModel) greeted(w *sWorld, i int, c sMessage) {
	e := &w.ends[i]
	impossible := c.yours == e.mine && c.number > e.sent
	fresh := !e.has || e.theirs != 0 && (e.theirs != c.mine || c.yours != 0 && c.yours != e.mine) || c.yours == 0 && e.acked > 0 || e.has && impossible
	if fresh && !(m.fault == sForgives && e.has) {
		if e.has {
			m.on(w, i, eventOther)
		}
		m.begin(w, i)
	} else if c.yours == e.mine && !impossible {
		e.acked = max(e.acked, c.number)
	}
	if c.yours != 0 && c.yours != e.mine && m.fault != sForgives {
		m.hello(w, i, sAsk)
		return
	}
	if c.yours == 0 && m.fault != sTooSoon {
		e.theirs = c.mine
		m.hello(w, i, sAsk)
		return
	}
	e.theirs = c.mine
	if e.asked = e.heard - 1; m.fault != sNoResend {
		e.sentTo = e.acked
	}
	if c.kind == sAsk || c.yours == 0 {
		m.hello(w, i, sHello)
	}
	m.on(w, i, eventKnown)
	m.flush(w, i)
}

// data is heard and heardLocked.
func (m *sModel) data(w *sWorld, i int, c sMessage) {
	e := &w.ends[i]
	if !e.has {
		m.greet(w, i)
		return
	}
	if e.theirs == 0 || c.mine != e.theirs && m.fault != sAnySession {
		return
	}
	next := c.number == e.heard+1
	if next || m.fault == sTwice && c.number == e.heard || m.fault == sGaps && c.number > e.heard {
		if e.hears != c.mine {
			e.hears, e.last = c.mine, 0
		}
		if c.number != e.last+1 || c.mine != e.theirs {
			m.fail("message %d of session %d is heard after %d in the session with %d", c.number, c.mine, e.last, e.theirs)
		}
		e.heard, e.last = c.number, c.number
		e.told = e.heard // an acknowledgement of each: it may be lost
		m.put(w, 1-i, sMessage{sAck, e.heard, e.mine, e.theirs})
		return
	}
	if c.number > e.heard && e.asked != e.heard {
		e.asked = e.heard
		m.hello(w, i, sAsk)
	}
}

// take takes what comes next.
func (m *sModel) take(w sWorld, i int) sWorld {
	e := &w.ends[i]
	c := e.in[0]
	copy(e.in[:], e.in[1:])
	e.in[sRoom-1] = sMessage{}
	return m.takes(w, i, c)
}

// takes works off what has come.
func (m *sModel) takes(w sWorld, i int, c sMessage) sWorld {
	e := &w.ends[i]
	switch {
	case c.kind == sData:
		m.data(&w, i, c)
	case c.kind == sHello || c.kind == sAsk:
		m.greeted(&w, i, c)
	case !e.has || e.theirs != c.mine || e.mine != c.yours: // of another session
	case c.kind == sBye || c.number > e.sent:
		m.on(&w, i, eventOther)
	default:
		e.acked = max(e.acked, c.number)
		e.sentTo = max(e.sentTo, e.acked)
	}
	return w
}

// next lists what may happen.
func (m *sModel) next(w sWorld) (all []sWorld) {
	add := func(n sWorld) {
		if !m.full {
			all = append(all, n)
		}
		m.full = false
	}
	for i := range w.ends {
		e := w.ends[i]
		if c := e.lates[0]; c.kind != 0 {
			n := w
			n.ends[i].lates = [2]sMessage{e.lates[1]}
			add(m.takes(n, i, c))
		}
		if a, b := e.in[0], e.in[1]; b.kind == sData && a.kind != sData { // a control waits for credit elsewhere
			n := w
			n.ends[i].in[0], n.ends[i].in[1] = b, a
			add(m.take(n, i))
		}
		if e.in[0].kind != 0 {
			add(m.take(w, i))
			if w.doubles > 0 && e.in[sRoom-1].kind == 0 {
				n := w
				n.doubles--
				copy(n.ends[i].in[1:], w.ends[i].in[:])
				add(n)
			}
		}
		if e.sent < m.messages[i] && e.restarts == 0 && !e.ended {
			n := w
			if !e.has && n.up { // session begins one; without a link say fails
				m.begin(&n, i)
				m.hello(&n, i, sAsk)
			}
			if n.ends[i].has {
				n.ends[i].sent++
				m.flush(&n, i)
				add(n)
			}
		}
		if w.deaths > 0 {
			for _, word := range []bool{true, false} { // closed, or dead without a word; it begins anew, on another link
				n := w
				n.deaths--
				if word && e.has {
					m.put(&n, 1-i, sMessage{sBye, e.heard, e.mine, e.theirs})
				}
				n.ends[i] = sEnd{restarts: e.restarts + 1}
				copy(n.ends[1-i].lates[:], n.ends[1-i].in[:])
				if n.up {
					m.on(&n, 1-i, eventUnlinked)
				}
				n.up = false
				clear(n.ends[1-i].in[:])
				add(n)
				n.ends[1-i].lates = [2]sMessage{}
				add(n)
			}
			if e.has {
				for _, why := range []event{eventLate, eventAbandoned} { // it hears nothing, has no link, or no credit
					n := w
					n.deaths--
					m.on(&n, i, why)
					n.ends[i].late = true
					add(n)
				}
			}
		}
	}
	for i := range w.ends {
		if w.up && w.ends[i].late { // a credit has come
			n := w
			n.ends[i].late = false
			m.greet(&n, i)
			add(n)
		}
	}
	if w.up && w.cuts > 0 {
		for a := range 3 {
			for b := range 3 {
				n := w
				n.up = false
				n.cuts--
				for i, keeps := range []int{a, b} {
					e := &n.ends[i]
					e.lates = [2]sMessage{}
					copy(e.lates[:keeps], e.in[:])
					clear(e.in[:])
				}
				for i := range n.ends {
					m.on(&n, i, eventUnlinked)
				}
				add(n)
			}
		}
	}
	if !w.up {
		add(m.link(w))
	}
	return all
}

func (m *sModel) link(w sWorld) sWorld {
	w.up = true
	m.linked(&w, 0)
	m.linked(&w, 1)
	return w
}

// check lets all come that is on its way, on a link, and says what is wrong then.
func (m *sModel) check(w sWorld) {
	if !w.up {
		w = m.link(w)
	}
	for i := range w.ends {
		for _, c := range w.ends[i].lates {
			if w.ends[i].lates = [2]sMessage{}; c.kind != 0 {
				w = m.takes(w, i, c)
			}
		}
		if w.ends[i].late {
			m.greet(&w, i)
		}
	}
	for steps := 0; w.ends[0].in[0].kind != 0 || w.ends[1].in[0].kind != 0; steps++ {
		if steps > 200 {
			m.fail("they never come to an end: %+v", w)
			return
		}
		for i := range w.ends {
			if w.ends[i].in[0].kind != 0 {
				w = m.take(w, i)
			}
		}
	}
	if m.full || m.wrong != "" {
		return
	}
	for i := range w.ends {
		e, o := &w.ends[i], &w.ends[1-i]
		if e.has && e.theirs != 0 && o.ended && !e.ended && o.restarts == 0 && e.theirs != o.mine {
			m.fail("only one owner is told of the end: %+v, the other end %+v", *e, *o)
		}
		if !e.has || e.ended || e.sent == 0 {
			continue
		}
		if e.state != stateUp || !o.has || o.theirs != e.mine || o.heard != e.sent || e.acked != e.sent {
			m.fail("%d messages were sent, and its owner is told of no end: %+v, the other end %+v", e.sent, *e, *o)
		}
	}
}

func (m *sModel) explore() explore.Result[sWorld] {
	return explore.All(func(w sWorld) ([]sWorld, string) {
		m.wrong, m.full = "", false
		m.check(w)
		m.full = false
		return m.next(w), m.wrong
	}, sWorld{up: true, cuts: m.cuts, doubles: 1, deaths: 1})
}

// Whatever happens, messages are heard once and in order, or the end is told; and the model finds
// each fault.
func TestSessionModel(t *testing.T) {
	for fault := range sFaults {
		m := sModel{fault: fault, messages: [2]int8{2, 0}, cuts: 1}
		r := m.explore()
		if (r.Wrong == "") != (fault == sFine) {
			t.Errorf("fault %d: %v", fault, r)
		}
		if fault == sFine {
			t.Logf("%d worlds", r.States)
		}
	}
}
