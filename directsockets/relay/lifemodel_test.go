package relay

import (
	"fmt"
	"testing"

	"exnet/internal/explore"
	"exnet/internal/longtest"
	"exnet/internal/racetest"
)

// The life of one connection, as a model of its two programs and their nodes, whose steps are
// walked through in every order: at each step the link may be cut, with any number of the messages
// on it lost, those before them late, and come back; RESUME may come twice; either program may
// close, the client take its offer back, break the protocol of its segment, a node be killed and
// begin anew, be asked to end, or wait for too long. A PUT may still be under way when its
// message was sent. The connection takes the steps of lifeNext. The channels between the nodes
// have a model of their own.
//
// What is wrong: a message of a program that comes twice, out of order, or not at all, although its
// receiver is not told of a reset; a reset where no node was killed and none has waited for too
// long; a walk that ends with something undone. A program that goes back to TCP sends there what
// comes after the message up to which its node has carried it: the far program has to have all
// before that, and no more.

// lifeFault is a mistake that the model is to find.
type lifeFault uint8

const (
	lifeFine            lifeFault = iota
	lifeEarly                     // a server sends as soon as it has attached, as it was: the client may never attach
	lifeGivesUp                   // the session ends before anything was heard of the client: the node closes
	lifeResetCut                  // the session ends: a reset, as it was
	lifeLeaves                    // the session ends before BYE, and what was sent last is forgotten
	lifeNoCut                     // the connection goes on in the next session as if nothing were lost
	lifeNoRewind                  // RESUME is taken, and what it says is not
	lifeTwice                     // RESUME that comes twice counts twice
	lifeLate                      // messages of a session that is over are taken
	lifeStuck                     // the session ends while RESUME is under way, and it is not sent again
	lifeDropResets                // DROP before anything was heard of the client is a reset
	lifeExpiresSilently           // who has waited for too long does not say so
	lifeOneEngine                 // a node that has begun anew is not told from the one before it
	lifeNoJoin                    // RESUME does not tell the server that the client has attached
	lifeEndResets                 // a node that ends resets its connections, as it was
	lifePartsEarly                // PART does not wait for a program that may have sent and not looked
	lifeNoBack                    // whoever hears PART does not have its own program go back
	lifePartsOnce                 // PART was sent: it is over
	lifeYieldsOnce                // PART has come and was sent: it is over
	lifeForgetsLast               // what a program sent that was killed before it looked is left where it is
	lifeForgetsEnd                // a node that has all of both programs is cut, and takes DROP for a loss, as it was
	lifeBlames                    // a PUT that is refused after PART counts as a breach, as it was
	lifeByeEarly                  // BYE does not wait for the data of a message before it, as it was
	lifeFaults
)

func (f lifeFault) String() string {
	return [...]string{"none", "sends early", "gives up", "reset at a cut", "leaves at once", "no cut", "no rewind", "RESUME twice",
		"late messages", "RESUME once", "DROP resets", "expires silently", "one Engine", "no join",
		"an end resets", "PART early", "no way back", "PART once", "yields once", "forgets the last", "forgets the end", "blames", "BYE early"}[f]
}

// What a program knows of the end.
const (
	lNothing int8 = iota
	lClosed
	lReset
)

// lMessage is a message between the nodes.
type lMessage struct {
	k              int8 // one of those below; 0: none
	own, far, link int8 // session and link of the sender
	number         int8 // DATA: which; RESUME: which messages have come
	stamp          int8 // DATA, CLOSED: messages before; RESUME: that have come
	turn           int8 // of RESUME
}

const (
	lOpen int8 = iota + 1
	lAttached
	lData
	lShut // CLOSED
	lBye
	lDrop
	lRefuse
	lResume
	lJoined
	lLost
	lPart
)

const lBox = 5

// lNode is a node with its program.
type lNode struct {
	state lifeState
	own   int8 // session
	far   int8 // of the peer; 0: it has not said
	link  int8 // by which the session goes; 0: none
	cutIn int8 // session in which it was cut

	born, farBorn int8 // its Engine; that of the peer, 0: it has not said

	resumes, heardResume int8
	said, got            int8
	taken, put           int8 // messages of the program here that were sent; of the far one, that have come

	attached  bool // the program has
	joined    bool // and has heard that the other one has
	published int8 // messages of the program
	closed    bool // it has closed
	told      int8 // what it knows of the end
	asked     bool // the node is, to end
	puts      bool // a PUT is under way, and what has announced it has not been taken
	back      int8 // 1 + messages of the program that its node has carried when it told it to go back; 0: it has not
	looked    bool // the program has found that
	box       [lBox]lMessage
}

type lWorld struct {
	nodes                [2]lNode // the client's, the server's
	link                 int8     // its number; below 0: it is down, and was that one
	cuts, kills, doubles int8
	expiries, ends       int8
	breaches             int8
}

type lifeModel struct {
	messages                       [2]int8
	cuts, kills, doubles, expiries int8
	ends, breaches                 int8
	fault                          lifeFault
	table                          [lifeStates][lifeEvents]lifeStep
	steps                          map[[2]uint8]bool // that were taken
	wrong                          string
}

func (m *lifeModel) bad(format string, a ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, a...)
	}
}

func (m *lifeModel) start() lWorld {
	m.table = lifeNext
	m.steps = make(map[[2]uint8]bool)
	set := func(s lifeState, ev lifeEvent, to lifeState, act lifeAct) { m.table[s][ev] = lifeStep{to, act} }
	switch m.fault {
	case lifeGivesUp:
		set(stateAttached, onLost, stateOver, actClose)
	case lifeResetCut:
		set(stateUp, onLost, stateOver, actReset)
	case lifeLeaves:
		set(stateLeaving, onLost, stateOver, actClose)
	case lifeNoCut:
		set(stateUp, onLost, stateUp, actNone)
	case lifeStuck:
		set(stateResuming, onLost, stateResuming, actNone)
	case lifeDropResets:
		set(stateAttached, onDropped, stateOver, actReset)
		set(stateCut, onDropped, stateOver, actReset)
		set(stateResuming, onDropped, stateOver, actReset)
	case lifeEndResets:
		set(stateUp, onEnd, stateOver, actReset)
	case lifeForgetsEnd:
		set(stateFinished, onLost, stateCut, actSuspend)
	case lifeBlames:
		set(stateEnded, onShunned, stateNone, actNone)
		set(stateFinished, onShunned, stateNone, actNone)
		set(stateYielded, onShunned, stateNone, actNone)
	case lifeByeEarly:
		set(stateEnded, onBye, stateOver, actClose)
	case lifePartsOnce:
		set(stateEnding, onParted, stateOver, actClose)
	case lifeYieldsOnce:
		set(stateYielding, onParted, stateOver, actByeClose)
	}
	w := lWorld{link: 1, cuts: m.cuts, kills: m.kills, doubles: m.doubles, expiries: m.expiries, ends: m.ends, breaches: m.breaches}
	for i := range w.nodes {
		w.nodes[i] = lNode{own: 1, far: 1, link: 1, born: 1, farBorn: 1}
	}
	w.nodes[0].state = stateNew
	return w
}

// on is Engine.on, but that a connection that is over may have been forgotten.
func (m *lifeModel) on(w *lWorld, i int, ev lifeEvent) bool {
	n := &w.nodes[i]
	step := m.table[n.state][ev]
	if step.to == stateNone {
		return false
	}
	m.steps[[2]uint8{uint8(n.state), uint8(ev)}] = true
	if step.act == actDrop {
		if step.act = actReset; i == 1 && !n.joined {
			step.act = actClose
		}
	}
	if ev == onHeard || ev == onResume && m.fault != lifeNoJoin {
		n.joined = true
	}
	n.state = step.to
	tell := func(what int8) {
		if n.told == lNothing && !n.closed {
			n.told = what
		}
	}
	switch step.act {
	case actSuspend:
		n.cutIn, n.puts = n.own, false
	case actBye:
		w.send(i, lMessage{k: lBye})
	case actByeClose:
		w.send(i, lMessage{k: lBye})
		tell(lClosed)
	case actLeave, actClose, actRefuse:
		tell(lClosed)
	case actReset:
		tell(lReset)
	}
	return true
}

// send sends a message, if there is room. Where there is no link it is lost.
func (w *lWorld) send(i int, msg lMessage) bool {
	n, o := &w.nodes[i], &w.nodes[1-i]
	if n.link == 0 || n.far == 0 {
		return false
	}
	msg.own, msg.far, msg.link = n.own, n.far, w.link
	return w.link < 0 || push(o.box[:], msg)
}

func (n *lNode) parts() bool { return n.state == stateEnding || n.state == stateYielding }

func (n *lNode) carries() bool {
	return n.state == stateAttached || n.state == stateUp || n.parts()
}

// next returns what may come next.
func (m *lifeModel) next(w lWorld) (all []lWorld) {
	try := func(f func(v *lWorld) bool) {
		v := w
		if f(&v) {
			all = append(all, v)
		}
	}
	if w.link > 0 && w.cuts > 0 {
		for keep0 := range lBox + 1 { // of the messages on their way, the first ones may have come
			for keep1 := range lBox + 1 {
				try(func(v *lWorld) bool { return v.cut(keep0, keep1) })
			}
		}
	}
	if w.link < 0 {
		try(func(v *lWorld) bool { v.link = 1 - v.link; return true })
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		m.programs(try, &w, i)
		try(func(v *lWorld) bool { return m.pump(v, i) })
		if n.box[0].k != 0 && w.nodes[1-i].box[lBox-1].k == 0 { // there is room for an answer
			try(func(v *lWorld) bool { m.read(v, i); return true })
		}
		for j := 1; j < lBox && n.box[0].k == lData && w.nodes[1-i].puts; j++ { // the message is held
			if k := n.box[j].k; k == lDrop || k == lLost || k == lBye && m.fault == lifeByeEarly {
				try(func(v *lWorld) bool {
					box := v.nodes[i].box[:]
					msg := box[j]
					copy(box[1:], box[:j])
					box[0] = msg
					m.read(v, i)
					return true
				})
				break
			}
		}
		if n.link != 0 && n.link != w.link { // PeerDown
			try(func(v *lWorld) bool { m.renew(v, i); return true })
		}
		if w.link > 0 {
			try(func(v *lWorld) bool { return m.meet(v, i) })
		}
		if w.ends > 0 && !n.asked {
			try(func(v *lWorld) bool { v.ends--; m.ask(v, i); return true })
		}
		if n.asked && n.state == stateOver && n.born == 1 && w.quiet() { // what has been said is read first
			try(func(v *lWorld) bool { v.kills++; m.kill(v, i); return true })
		}
		if w.breaches > 0 && (n.carries() || isListening(n.state)) && !n.closed { // else it has nobody to tell
			try(func(v *lWorld) bool { v.breaches--; return m.fail(v, i) })
		}
		if n.puts && w.nodes[1-i].state == stateOver && n.link == w.link {
			try(func(v *lWorld) bool { return m.shun(v, i) })
		}
		if w.kills > 0 {
			try(func(v *lWorld) bool { m.kill(v, i); return true })
		}
		if w.expiries > 0 && isSuspended(n.state) && (!n.closed || w.nodes[1-i].state == stateOver) {
			try(func(v *lWorld) bool {
				v.expiries--
				if m.fault != lifeExpiresSilently {
					v.send(i, lMessage{k: lLost})
				}
				return m.on(v, i, onGone)
			})
		}
	}
	return all
}

// programs are the steps of a program.
func (m *lifeModel) programs(try func(func(*lWorld) bool), w *lWorld, i int) {
	n := &w.nodes[i]
	if n.told != lNothing || n.closed {
		return
	}
	if i == 1 && n.state == stateOffered && !n.attached {
		try(func(v *lWorld) bool { v.nodes[1].attached = true; return true })
	}
	if n.back > 0 && !n.looked {
		try(func(v *lWorld) bool { v.nodes[i].looked = true; return true })
	}
	if n.attached && (n.joined || m.fault == lifeEarly) && (n.back == 0 || n.parts() && !n.looked) && n.published < m.messages[i] { // it may have looked before
		try(func(v *lWorld) bool { v.nodes[i].published++; return true })
	}
	if n.attached || i == 0 && (n.state == stateNew || n.state == stateCalling) {
		try(func(v *lWorld) bool { v.nodes[i].closed = true; return true }) // or it is killed
		if n.back > 0 && !n.looked {
			try(func(v *lWorld) bool { v.nodes[i].closed, v.nodes[i].looked = true, true; return true })
		}
	}
}

// direct is how many messages of the program are to come in the segment.
func (n *lNode) direct() int8 {
	if n.looked {
		return n.back - 1
	}
	return n.published
}

// cut takes the link down. The first messages on their way, in either direction, have come.
func (w *lWorld) cut(keep0, keep1 int) bool {
	for i, keep := range []int{keep0, keep1} {
		box := w.nodes[i].box[:]
		if keep > 0 && box[keep-1].k == 0 { // there are fewer
			return false
		}
		clear(box[keep:])
	}
	w.cuts--
	w.link = -w.link
	return true
}

// renew has a node begin a session.
func (m *lifeModel) renew(w *lWorld, i int) {
	n := &w.nodes[i]
	m.on(w, i, onLost)
	n.own++
	n.far, n.link = 0, 0
	if w.link > 0 {
		n.link = w.link
	}
}

// meet has a node hear HELLO.
func (m *lifeModel) meet(w *lWorld, i int) bool {
	n, o := &w.nodes[i], &w.nodes[1-i]
	if n.link == 0 { // PeerUp
		n.link = w.link
		return true
	}
	if n.link != w.link || o.link != w.link || n.far == o.own {
		return false
	}
	if n.farBorn != 0 && n.farBorn != o.born && m.fault != lifeOneEngine {
		m.on(w, i, onGone)
	}
	if n.far != 0 {
		m.on(w, i, onLost)
		n.own++
	}
	n.far, n.farBorn = o.own, o.born
	return true
}

// quiet reports whether no message is on its way.
func (w *lWorld) quiet() bool { return w.nodes[0].box[0].k == 0 && w.nodes[1].box[0].k == 0 }

// ask is Engine.GoBack.
func (m *lifeModel) ask(w *lWorld, i int) {
	n := &w.nodes[i]
	n.asked = true
	switch n.state {
	case stateOffered:
		w.send(i, lMessage{k: lDrop})
		m.on(w, i, onDeclined)
	case stateNew, stateCalling:
		m.on(w, i, onBroken)
	}
}

// part is Engine.sendPart. back: the program is told to go back now, whatever it has sent
// meanwhile.
func (m *lifeModel) part(w *lWorld, i int) bool {
	n := &w.nodes[i]
	if n.back == 0 && (m.fault != lifeNoBack || n.state != stateYielding) {
		n.back = 1 + n.taken
		return true
	}
	if !n.looked && n.back > 0 && n.published >= n.back && m.fault != lifePartsEarly {
		return false
	}
	if !w.send(i, lMessage{k: lPart, stamp: n.said}) {
		return false
	}
	if n.back > 0 && !n.looked && n.published >= n.back {
		m.bad("program %d may end with a message that nobody carries", i)
	}
	n.said++
	return m.on(w, i, onParted)
}

// kill has a node end, and begin anew without the connection.
func (m *lifeModel) kill(w *lWorld, i int) {
	n := &w.nodes[i]
	w.kills--
	if w.link > 0 {
		w.link = -w.link
	}
	if n.told == lNothing && !n.closed {
		n.told = lReset
	}
	was := *n
	*n = lNode{
		state: stateOver, own: n.own + 1, born: n.born + 1, told: n.told, put: was.put, published: was.published, closed: was.closed, attached: was.attached,
		joined: was.joined, asked: was.asked, back: was.back, looked: was.looked,
	}
	clear(w.nodes[1-i].box[:])
}

// fail is Engine.failConn, of a program that has broken the protocol.
func (m *lifeModel) fail(w *lWorld, i int) bool {
	w.send(i, lMessage{k: lLost})
	return m.on(w, i, onBroken)
}

// shun has a PUT be refused, whose receiver has the connection no more: Engine.endTransfer.
func (m *lifeModel) shun(w *lWorld, i int) bool {
	n := &w.nodes[i]
	n.puts = false
	if !m.on(w, i, onShunned) && n.state != stateOver {
		m.bad("node %d is blamed in state %v for a PUT that is refused", i, n.state)
	}
	return true
}

// pump is Engine.pumpConn. False: there is nothing to do.
func (m *lifeModel) pump(w *lWorld, i int) bool {
	n := &w.nodes[i]
	switch n.state {
	case stateNew:
		if n.closed {
			return m.on(w, i, onWithdrawn)
		}
		return w.send(i, lMessage{k: lOpen}) && m.on(w, i, onCalled)
	case stateCalling:
		return n.closed && m.on(w, i, onWithdrawn)
	case stateOffered:
		if !n.attached || n.closed { // or its broker finds nobody
			return w.send(i, lMessage{k: lDrop}) && m.on(w, i, onDeclined)
		}
		return w.send(i, lMessage{k: lAttached}) && m.on(w, i, onTaken)
	case stateCut, stateFinishedCut, stateAnswering:
		if isCut(n.state) && n.cutIn == n.own {
			return false
		}
		msg := lMessage{k: lResume, number: n.put, stamp: n.got, turn: n.resumes + 1}
		if !w.send(i, msg) {
			return false
		}
		if w.doubles > 0 && w.send(i, msg) {
			w.doubles--
		}
		if n.resumes++; n.resumes > 2*(m.cuts+m.kills)+1 {
			m.bad("RESUME is said again and again")
		}
		return m.on(w, i, onTold)
	}
	if n.asked && m.on(w, i, onEnd) {
		return true
	}
	if !n.carries() {
		return false
	}
	if n.taken < n.published && (n.taken+1 < n.back || n.back == 0 || n.closed && !n.looked && m.fault != lifeForgetsLast) {
		if !w.send(i, lMessage{k: lData, number: n.taken + 1, stamp: n.said}) {
			return false
		}
		n.taken++
		n.said++
		n.puts = m.breaches > 0
		return true
	}
	if n.closed && w.send(i, lMessage{k: lShut, stamp: n.said}) {
		n.said++
		return m.on(w, i, onClosed)
	}
	return n.parts() && m.part(w, i)
}

// read is Engine.receiveMessage.
func (m *lifeModel) read(w *lWorld, i int) {
	n := &w.nodes[i]
	msg := n.box[0]
	pop(n.box[:])
	if msg.link == w.link { // HELLO comes before it
		m.meet(w, i)
	}
	if m.fault != lifeLate && (msg.own != n.far || msg.far != n.own || msg.link != n.link) {
		return
	}
	switch msg.k {
	case lOpen:
		if n.state == stateNone {
			m.on(w, i, onOpen)
		}
	case lAttached:
		if n.state != stateCalling || n.closed {
			if n.state == stateCalling {
				m.on(w, i, onWithdrawn)
			}
			w.send(i, lMessage{k: lDrop})
			return
		}
		n.attached, n.joined = true, true
		m.on(w, i, onAttached)
		w.send(i, lMessage{k: lJoined})
	case lJoined:
		m.on(w, i, onHeard)
	case lLost:
		m.on(w, i, onGone)
	case lData, lShut, lPart:
		m.hear(w, i, msg)
	case lBye:
		m.on(w, i, onBye)
	case lDrop:
		m.on(w, i, onDropped)
	case lResume:
		m.resumed(w, i, msg)
	}
}

// hear is Engine.forConn.
func (m *lifeModel) hear(w *lWorld, i int, msg lMessage) {
	n, o := &w.nodes[i], &w.nodes[1-i]
	if !isListening(n.state) {
		if n.state == stateOver || n.state == stateNone {
			w.send(i, lMessage{k: lDrop})
		}
		return
	}
	if msg.stamp != n.got {
		m.bad("a message with stamp %d instead of %d", msg.stamp, n.got)
	}
	n.got++
	if n.state == stateAttached {
		m.on(w, i, onHeard)
	}
	if msg.k == lPart {
		m.on(w, i, onPart)
		return
	}
	if msg.k == lShut {
		if n.put != o.direct() && n.told == lNothing && !n.closed {
			m.bad("the peer has closed after %d messages of %d", n.put, o.direct())
		}
		w.send(i, lMessage{k: lBye})
		m.on(w, i, onPeerClosed)
		return
	}
	o.puts = false // its data has come: it is waited for
	if n.state == stateLeaving {
		return
	}
	if msg.number != n.put+1 {
		m.bad("message %d comes after %d", msg.number, n.put)
	}
	n.put = msg.number
}

// resumed is Engine.takeResume.
func (m *lifeModel) resumed(w *lWorld, i int, msg lMessage) {
	n := &w.nodes[i]
	if msg.turn <= n.heardResume && m.fault != lifeTwice {
		return
	}
	if m.table[n.state][onResume].to == stateNone {
		w.send(i, lMessage{k: lDrop})
		return
	}
	n.heardResume = msg.turn
	m.on(w, i, onResume)
	if m.fault == lifeNoRewind {
		return
	}
	if msg.number > n.taken || msg.stamp > n.said {
		m.bad("%d messages have come of %d", msg.number, n.taken)
	}
	n.taken, n.said = msg.number, msg.stamp
}

// idle reports what is wrong where nothing more happens.
func (m *lifeModel) idle(w lWorld) string {
	quiet := m.kills == 0 && m.expiries == 0 && m.ends < 2 && m.breaches == 0
	for i := range w.nodes {
		n, o := &w.nodes[i], &w.nodes[1-i]
		switch {
		case isSuspended(n.state):
			return fmt.Sprintf("node %d stays %v", i, n.state)
		case n.told == lReset && quiet && (m.ends == 0 || i == 0 || n.joined): // the client's node may end before it says that its program has attached
			return fmt.Sprintf("program %d gets a reset", i)
		case n.back > 0 && n.told != lReset && o.told == lClosed && o.put != n.direct():
			return fmt.Sprintf("program %d goes back to TCP after %d messages, and %d have come", i, n.direct(), o.put)
		case n.back > 0:
		case n.published > o.put && !o.closed && n.told != lReset && o.told != lReset:
			return fmt.Sprintf("%d messages of %d of program %d are lost, and nobody is told", n.published-o.put, n.published, i)
		case i == 1 && n.state == stateUp && !n.joined:
			return "the server does not hear that the client has attached"
		case n.carries() && o.state == stateOver:
			return fmt.Sprintf("node %d stays %v, and the other one has nothing", i, n.state)
		}
	}
	return ""
}

// explore walks through all orders of steps, up to so many states.
func (m *lifeModel) explore(limit int) (wrong string, states int) {
	start := m.start()
	r := explore.Some(limit, func(w lWorld) ([]lWorld, string) {
		m.wrong = ""
		next := m.next(w)
		if m.wrong == "" && settled(w, next) {
			m.wrong = m.idle(w)
		}
		return next, m.wrong
	}, start)
	return r.Wrong, r.States
}

// settled reports whether a world is at rest: what may come next is up to the programs and the
// link.
func settled(w lWorld, next []lWorld) bool {
	if w.link < 0 {
		return false
	}
	for _, v := range next {
		for i := range v.nodes {
			n, o := &w.nodes[i], &v.nodes[i]
			same := *n
			same.attached, same.published, same.closed = o.attached, o.published, o.closed
			cut := v.cuts != w.cuts || v.kills != w.kills || v.expiries != w.expiries || v.breaches != w.breaches
			if !cut && same != *o {
				return false
			}
		}
	}
	return true
}

var lifeModels = []lifeModel{
	{messages: [2]int8{1, 2}, cuts: 1},
	{messages: [2]int8{1, 1}, cuts: 2},
	{messages: [2]int8{0, 1}, cuts: 2, doubles: 1},
	{messages: [2]int8{1, 1}, cuts: 1, kills: 1},
	{messages: [2]int8{1, 1}, cuts: 1, expiries: 1},
	{messages: [2]int8{1, 2}, ends: 1},
	{messages: [2]int8{1, 1}, ends: 2},
	{messages: [2]int8{1, 1}, cuts: 1, ends: 1},
	{messages: [2]int8{1, 1}, kills: 1, ends: 1},
	{messages: [2]int8{1, 1}, breaches: 1, ends: 2},
	{messages: [2]int8{1, 1}, breaches: 1, cuts: 1},
	{messages: [2]int8{0, 1}, breaches: 1, cuts: 1, ends: 1},
}

// Whatever is lost, late or killed at whatever step, each program gets what the other one has sent,
// or is told.
func TestLifeModel(t *testing.T) {
	racetest.SkipModel(t)
	const most = 3_000_000
	taken := make(map[[2]uint8]bool)
	for _, m := range lifeModels {
		wrong, states := m.explore(most)
		t.Logf("%v messages, %d cuts, %d kills, %d doubled, %d waits too long, %d ends, %d breaches: %d states", m.messages, m.cuts, m.kills, m.doubles, m.expiries, m.ends, m.breaches, states)
		if states >= most {
			t.Errorf("not all of %d states", states)
		}
		if wrong != "" {
			t.Errorf("%v messages, %d cuts, %d kills, %d ends, %d breaches: %s", m.messages, m.cuts, m.kills, m.ends, m.breaches, wrong)
		}
		for step := range m.steps {
			taken[step] = true
		}
	}
	for s := range lifeStates {
		for ev := range lifeEvents {
			if lifeNext[s][ev].to != stateNone && !taken[[2]uint8{uint8(s), uint8(ev)}] {
				t.Logf("not walked: %v, %v", s, ev)
			}
		}
	}
}

// Each mistake is found, of which some were made.
func TestLifeModelFindsFaults(t *testing.T) {
	longtest.Skip(t) // 40 s
	racetest.SkipModel(t)
	for f := lifeFine + 1; f < lifeFaults; f++ {
		found := ""
		for _, m := range lifeModels {
			m.fault = f
			if found, _ = m.explore(1_000_000); found != "" {
				break
			}
		}
		t.Logf("%v: %s", f, found)
		if found == "" {
			t.Errorf("%v is not found", f)
		}
	}
}
