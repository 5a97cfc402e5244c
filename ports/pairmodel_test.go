package ports

import (
	"fmt"
	"testing"

	"exnet/internal/explore"
)

// The pairs of two nodes of different hosts, as a model whose steps are walked through in every
// order. Each node has a VPID, which ports open one after the other: any may connect to the far
// VPID, write slots, and end, at each step. A node reads what has come, sends what its port has
// written, gives its port what waits for it, gives a request up, or loses all by the end of the
// session, at each step. Requests, answers and ends wait to be sent (posts) while slots go at once.
// The pairs take the steps of pairNext.
//
// What is wrong: a port hears a slot of another far port than the one whose flow it has, or hears
// of the end of one that lives; a slot is not heard although both ports' ways were there; a port
// that lives is not reached; when nothing is on its way, a port has not heard of an end, or only
// one of both nodes has a pair.

// pFault is a mistake that the model is to find.
type pFault uint8

const (
	pFine        pFault = iota
	pAtOnce             // the next port is paired while the pair before ends
	pUnordered          // an end overtakes answers and requests
	pNoRetry            // the answer to a request for a pair that has ended meanwhile is the end of it
	pDropsRest          // an end comes before what the far port has sent
	pNoEnd              // a pair without a flow to the far port says nothing of its end
	pNoFailed           // a request that was given up says nothing of the end
	pDropsOwn           // what our port had written is dropped
	pForgetsNext        // who waits for the end is not answered
	pKeepsNext          // who waits for the end is answered although it has ended
	pEchoes             // the far node is told of an end of which it has told
	pLostEnds           // a port whose messages nobody takes hears at once that its peer has ended
	pFaults
)

const (
	pConnect int8 = iota + 1
	pAnswer
	pRefusal
	pEnd
	pSlot
	pTakesNone
)

// pMessage is on its way. from and to are what only the check knows: which port has sent it, and
// which one it is for.
type pMessage struct{ kind, from, to, number int8 }

type pQueue [3]pMessage

func (q *pQueue) put(m pMessage) bool {
	for i := range q {
		if q[i].kind == 0 {
			q[i] = m
			return true
		}
	}
	return false
}

func (q *pQueue) take() (m pMessage) {
	m = q[0]
	copy(q[:], q[1:])
	q[len(q)-1] = pMessage{}
	return m
}

// pPair is a farPair. The zero one is none.
type pPair struct {
	is, asked bool // asked: our port's request is for it
	state     pairState
	ours, far int8 // the ports: far is 0 until it is known
	in        int8 // slots that our port has written, and that were not sent
	next      pMessage
}

type pNode struct {
	port            int8 // the last one that was opened
	lives           bool
	asks            int8    // how often it may ask yet
	wrote           [3]int8 // which far port each has written a slot to
	pair, old       pPair   // old: with pAtOnce
	number, tries   int8    // of the request, 1 and 2 in turns; 0: none waits, -1: it waits for the end of the pair
	last            int8    // the last number
	answer          pMessage
	hopes           int8 // the far port that has lived since the request was sent; 0: none
	granted         int8 // the far port whose answer our port has
	told            int8 // the far port whose flow our port has
	got             [3]int8
	requests, posts pQueue
	wire            pQueue // to this node
}

type pWorld struct {
	nodes         [2]pNode
	downs, giveUp int8
	// gaveUp: a request was given up, and may still arrive. Then a port may hear of an end without
	// one, and may not be reached. untold: the pair went on, and a port may not hear of an end.
	gaveUp, untold bool
}

type pModel struct {
	fault pFault
	ports [2]int8 // that are opened at each node
	wrong string
	full  bool
}

func (m *pModel) fail(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
	}
}

func (m *pModel) put(q *pQueue, s pMessage) { m.full = !q.put(s) || m.full }

// post is postLocked.
func (m *pModel) post(w *pWorld, i int, s pMessage) {
	if m.fault == pUnordered && s.kind == pEnd {
		m.put(&w.nodes[1-i].wire, s)
		return
	}
	m.put(&w.nodes[i].posts, s)
}

// on is farPair.handleEvent.
func (m *pModel) on(w *pWorld, i int, p *pPair, ev pairEvent) {
	n := &w.nodes[i]
	from := p.state
	to := pairNext[from][ev]
	if m.fault == pLostEnds && ev == pairLost && (from == pairPaired || from == pairPairedLast) {
		to = pairCut
	}
	if !p.is || to == pairAsking {
		return
	}
	p.state = to
	if from.lasts() && !to.lasts() {
		n.requests = pQueue{}
		if n.lives && n.told != 0 && p.ours == n.port {
			if o := &w.nodes[1-i]; p.far == o.port && o.lives && !w.gaveUp {
				m.fail("node %d: port %d hears of the end of %d, which lives", i, n.port, p.far)
			}
			if n.got[p.far] == 0 && w.nodes[1-i].wrote[p.far] == n.port && !w.gaveUp {
				m.fail("node %d: port %d has not heard what port %d wrote", i, n.port, p.far)
			}
			n.told, n.granted = 0, 0
		}
	}
	if from.tells(ev, to) && !(m.fault == pNoEnd && from == pairHeard || m.fault == pNoFailed && ev == pairFailed) ||
		m.fault == pEchoes && to == pairOver && !from.begins() {
		m.post(w, i, pMessage{kind: pEnd, from: p.ours})
	}
	switch {
	case (to == pairEnding || to == pairEndingLast) && m.fault == pDropsOwn:
		p.in = 0
	case to == pairEnding && m.fault == pAtOnce:
		n.old, n.pair = *p, pPair{}
	case to == pairOver:
		next := p.next
		*p = pPair{}
		if next.kind != 0 && m.fault != pForgetsNext {
			m.admit(w, i, next)
		}
	}
}

func (m *pModel) pairLocked(w *pWorld, i int) *pPair {
	n := &w.nodes[i]
	if !n.pair.is {
		n.pair = pPair{is: true, ours: n.port}
	}
	return &n.pair
}

func (m *pModel) open(w *pWorld, i int, p *pPair, far int8) {
	if p.state == pairAsking {
		p.far = far
		m.on(w, i, p, pairOpened)
		w.nodes[i].told = far
	}
}

// admit is admitFarLocked.
func (m *pModel) admit(w *pWorld, i int, c pMessage) {
	n := &w.nodes[i]
	if !n.lives {
		m.post(w, i, pMessage{kind: pRefusal, number: c.number, to: c.from})
		return
	}
	m.open(w, i, m.pairLocked(w, i), c.from)
	m.post(w, i, pMessage{kind: pAnswer, number: c.number, from: n.port, to: c.from})
}

// hear is Hear.
func (m *pModel) hear(w pWorld, i int) pWorld {
	n := &w.nodes[i]
	c := n.wire.take()
	p := &n.pair
	hears := p.is && p.state.hears()
	switch c.kind {
	case pAnswer, pRefusal:
		if c.number == n.number && n.number != 0 && n.answer.kind == 0 {
			n.answer = c
		}
	case pConnect:
		if p.is && !p.state.begins() {
			p.next = c
		} else {
			m.admit(&w, i, c)
		}
	case pEnd:
		switch {
		case hears && m.fault == pDropsRest:
			m.on(&w, i, p, pairParted)
		case hears:
			m.on(&w, i, p, pairGone)
			m.put(&n.requests, c)
		case p.is && p.state == pairAsking:
			m.on(&w, i, p, pairGone)
		case p.next.kind != 0 && m.fault != pKeepsNext:
			m.post(&w, i, pMessage{kind: pRefusal, number: p.next.number, to: p.next.from})
			p.next = pMessage{}
		}
	case pSlot:
		switch {
		case !hears:
			m.put(&w.nodes[1-i].wire, pMessage{kind: pTakesNone, to: c.from})
		default:
			m.put(&n.requests, c)
		}
	case pTakesNone: // of the stream, which the port is
		if p.is && p.ours == c.to {
			m.on(&w, i, p, pairLost)
		}
		if n.old.is && n.old.ours == c.to {
			m.on(&w, i, &n.old, pairLost)
		}
	}
	return w
}

// serve is farPair.serveRequests.
func (m *pModel) serve(w pWorld, i int) pWorld {
	n := &w.nodes[i]
	c := n.requests.take()
	if c.kind == pEnd {
		m.on(&w, i, &n.pair, pairParted)
		return w
	}
	if n.lives && n.told != c.from {
		m.fail("node %d: port %d, which has the flow of %d, hears a slot of %d", i, n.port, n.told, c.from)
	}
	if n.lives {
		n.got[c.from]++
	}
	return w
}

// carry sends what our port has written.
func (m *pModel) carry(w *pWorld, i int, p *pPair) {
	switch {
	case p.state == pairCut, p.in == 0:
		m.on(w, i, p, pairSent)
	default:
		p.in--
		m.put(&w.nodes[1-i].wire, pMessage{kind: pSlot, from: p.ours})
	}
}

// ask is connectFar, up to the request.
func (m *pModel) ask(w *pWorld, i int) {
	n := &w.nodes[i]
	m.pairLocked(w, i).asked = true
	n.last = 3 - max(n.last, 1)
	n.number, n.answer, n.hopes = n.last, pMessage{}, 0
	if o := &w.nodes[1-i]; o.lives {
		n.hopes = o.port
	}
	m.post(w, i, pMessage{kind: pConnect, from: n.port, number: n.number})
}

// answered is the rest of connectFar.
func (m *pModel) answered(w pWorld, i int, a pMessage) pWorld {
	n := &w.nodes[i]
	p := &n.pair
	mine := p.is && p.asked
	p.asked = false
	hopes := n.hopes
	n.number, n.answer, n.hopes = 0, pMessage{}, 0
	switch {
	case a.kind == 0:
		if mine {
			m.on(&w, i, p, pairFailed)
		}
		return w
	case a.kind == pRefusal:
		if mine {
			m.on(&w, i, p, pairRefused)
		}
	case mine && p.state.begins():
		m.open(&w, i, p, a.from)
		m.on(&w, i, p, pairGranted)
		n.granted = a.from
		return w
	case n.tries > 0 && m.fault != pNoRetry:
		n.tries--
		n.hopes = hopes
		n.number = -1
		return w
	}
	if o := &w.nodes[1-i]; hopes != 0 && o.lives && o.port == hopes && !w.gaveUp {
		m.fail("node %d: port %d does not reach %d", i, n.port, hopes)
	}
	return w
}

// next lists what may happen.
func (m *pModel) next(w pWorld) (all []pWorld) {
	add := func(n pWorld) {
		if !m.full {
			all = append(all, n)
		}
		m.full = false
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.wire[0].kind != 0 {
			add(m.hear(w, i))
		}
		if n.requests[0].kind != 0 {
			add(m.serve(w, i))
		}
		if n.posts[0].kind != 0 {
			c := w
			m.put(&c.nodes[1-i].wire, c.nodes[i].posts.take())
			add(c)
		}
		if p := n.pair; p.is && (p.state == pairEnding || p.state == pairEndingLast || p.state == pairCut || (p.state == pairPaired || p.state == pairPairedLast) && p.in > 0) {
			c := w
			m.carry(&c, i, &c.nodes[i].pair)
			add(c)
		}
		if n.old.is {
			c := w
			m.carry(&c, i, &c.nodes[i].old)
			add(c)
		}
		switch {
		case n.answer.kind != 0:
			add(m.answered(w, i, n.answer))
		case n.number == -1 && (!n.pair.is || n.pair.state.begins()):
			c := w
			m.ask(&c, i)
			add(c)
		case n.number > 0 && w.giveUp > 0:
			c := w
			c.giveUp--
			c.gaveUp, c.untold = true, c.untold || !n.pair.asked || n.pair.state != pairAsking
			add(m.answered(c, i, pMessage{}))
		}
		if n.number == 0 {
			switch {
			case !n.lives && n.port < m.ports[i]:
				c := w
				o := &c.nodes[i]
				o.port, o.lives, o.asks, o.granted, o.told, o.got = o.port+1, true, 1, 0, 0, [3]int8{}
				if o := &c.nodes[1-i]; o.hopes != 0 {
					o.hopes = 0 // it asked for the one before
				}
				add(c)
			case n.lives:
				c := w
				o := &c.nodes[i]
				o.lives, o.asks, o.granted, o.told, o.got = false, 0, 0, 0, [3]int8{}
				if p := &c.nodes[i].pair; p.ours == n.port {
					m.on(&c, i, p, pairParted)
				}
				add(c)
				if n.asks > 0 && n.granted == 0 && (!n.pair.is || n.pair.state.begins()) {
					c := w
					c.nodes[i].tries = 2
					c.nodes[i].asks--
					m.ask(&c, i)
					add(c)
				}
				if n.granted != 0 && n.wrote[n.port] == 0 && n.pair.is && (n.pair.state == pairPaired || n.pair.state == pairPairedLast) {
					c := w
					c.nodes[i].wrote[n.port] = n.granted
					c.nodes[i].pair.in++
					add(c)
				}
			}
		}
	}
	if w.downs > 0 { // the end of the session
		c := w
		c.downs--
		c.giveUp = 0
		for i := range c.nodes {
			n := &c.nodes[i]
			n.pair, n.old, n.requests, n.posts, n.wire = pPair{}, pPair{}, pQueue{}, pQueue{}, pQueue{}
			n.told, n.granted, n.number, n.answer, n.hopes = 0, 0, 0, pMessage{}, 0
			n.wrote = [3]int8{}
		}
		add(c)
	}
	return all
}

// check is what must hold when nothing can happen by itself.
func (m *pModel) check(w pWorld) {
	for i := range w.nodes {
		n, o := &w.nodes[i], &w.nodes[1-i]
		for _, q := range []pQueue{n.wire, n.posts, n.requests} {
			if q[0].kind != 0 {
				return
			}
		}
		if n.answer.kind != 0 || n.number == -1 || n.old.is || n.pair.is && !n.pair.state.begins() || n.pair.in > 0 {
			return
		}
		if n.number > 0 && w.giveUp == 0 && w.downs == 0 && o.number == 0 && o.answer.kind == 0 && !m.busy(w) {
			m.fail("node %d: nobody answers port %d", i, n.port)
		}
	}
	for i := range w.nodes {
		n, o := &w.nodes[i], &w.nodes[1-i]
		if n.number != 0 || o.number != 0 {
			return
		}
		if n.lives && n.told != 0 && (!o.lives || o.port != n.told) && !w.untold {
			m.fail("node %d: port %d has not heard of the end of %d", i, n.port, n.told)
		}
		if n.granted != 0 && n.lives && (o.told != n.port || !o.lives) {
			m.fail("node %d: port %d writes to one that has the flow of %d", i, n.port, o.told)
		}
		if n.lives && n.granted != 0 && n.wrote[n.port] == o.port && o.got[n.port] == 0 {
			m.fail("node %d: port %d is not heard", i, n.port)
		}
	}
}

func (m *pModel) busy(w pWorld) bool {
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.wire[0].kind != 0 || n.posts[0].kind != 0 || n.requests[0].kind != 0 || n.pair.is && !n.pair.state.begins() || n.old.is {
			return true
		}
	}
	return false
}

// explore visits all worlds.
func (m *pModel) explore(begin pWorld) explore.Result[pWorld] {
	return explore.All(func(w pWorld) ([]pWorld, string) {
		m.wrong = ""
		m.check(w)
		return m.next(w), m.wrong
	}, begin)
}

// Each port hears of its peers in turn and of no others, whatever happens; and the model finds each
// fault.
func TestPairModel(t *testing.T) {
	begins := []struct {
		ports         [2]int8
		downs, giveUp int8
	}{{[2]int8{2, 1}, 0, 0}, {[2]int8{1, 2}, 1, 1}, {[2]int8{2, 2}, 0, 0}}
	for fault := range pFaults {
		found, worlds := "", 0
		for _, b := range begins {
			m := pModel{fault: fault, ports: b.ports}
			r := m.explore(pWorld{downs: b.downs, giveUp: b.giveUp})
			worlds += r.States
			if found = r.Wrong; found != "" {
				break
			}
		}
		if (found == "") != (fault == pFine) {
			t.Errorf("fault %d: %q", fault, found)
		}
		t.Logf("fault %d: %d worlds: %s", fault, worlds, found)
	}
}
