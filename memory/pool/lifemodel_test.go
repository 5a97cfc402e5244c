package pool

import (
	"fmt"
	"testing"

	"exnet/internal/explore"
	"exnet/memory/lease"
)

// The life of one lease, as a model of its lender, the borrower's node and the process, whose steps
// are walked through in every order. The lender may want the lease back, and take it, at each step;
// the process may return it; a node may be killed, and the session of the two may end. Both nodes
// take the steps of lease.Steps.
//
// Two modes: in the reliable one, messages come in order, as the sessions of nodes promise, and
// nobody needs a renewal. In the other, one message is lost and one comes twice, and the renewals
// and their limit (TTL) mend that.
//
// What is wrong: a process that is told something before it has the lease, or twice; that has a
// lease whose memory is gone, and is told nothing; that loses it without having been asked; memory
// that is freed twice, or never.

// leaseFault is a mistake that the model is to find.
type leaseFault struct {
	name  string
	side  int // whose table has it: mLender, mNode; -1: none
	state lease.State
	ev    lease.Event
	step  lease.Step
}

const (
	mLender = iota
	mNode
)

var leaseFaults = []leaseFault{
	{name: saysEarly, side: -1},
	{name: forgets, side: -1},
	{name: "the node " + saysEarly, side: -1},
	{name: "the node " + forgets, side: -1},
	{name: "taken without a word", side: mLender, state: lease.Wanted, ev: lease.OnTaken, step: lease.Step{To: lease.Gone, Act: lease.ActEnd}},
	{name: "the node takes it without a word", side: mNode, state: lease.Held, ev: lease.OnTaken, step: lease.Step{To: lease.Gone, Act: lease.ActEnd}},
	{name: "said to be wanted, and not freed", side: mLender, state: lease.Wanted, ev: lease.OnTaken, step: lease.Step{To: lease.Gone, Act: lease.ActWant}},
	{name: "taken without being asked for", side: mLender, state: lease.Held, ev: lease.OnWanted, step: lease.Step{To: lease.Wanted, Act: lease.ActNone}},
	{name: "what is returned is kept", side: mLender, state: lease.Held, ev: lease.OnReturned},
	{name: "what is wanted and returned is kept", side: mLender, state: lease.Wanted, ev: lease.OnReturned},
	{name: "a process that dies returns nothing", side: mNode, state: lease.Held, ev: lease.OnReturned, step: lease.Step{To: lease.Gone, Act: lease.ActNone}},
	{name: "asks twice", side: mNode, state: lease.Wanted, ev: lease.OnWanted, step: lease.Step{To: lease.Wanted, Act: lease.ActWant}},
	{name: "frees twice", side: mLender, state: lease.Gone, ev: lease.OnReturned, step: lease.Step{To: lease.Gone, Act: lease.ActEnd}},
	{name: "a holder that ended keeps it", side: mLender, state: lease.Held, ev: lease.OnLost},
	{name: "late answers are kept", side: -1},
	{name: "renewals of what is gone are not answered", side: -1},
}

// Faults of rpc.Turn.
const (
	saysEarly = "says something of a lease before the answer that gives it"
	forgets   = "forgets what it would have said before the answer"
)

// Messages.
const (
	mAnswer int8 = iota + 1 // lender ▶ node ▶ process
	mWanted
	mGone
	mRefused
	mReturn // process ▶ node ▶ lender
	mRenew
)

// mQueue are messages under way, the first first.
type mQueue [3]int8

func (q *mQueue) push(m int8) bool {
	for i := range q {
		if q[i] == 0 {
			q[i] = m
			return true
		}
	}
	return false
}

func (q *mQueue) pop() (m int8) {
	m = q[0]
	copy(q[:], q[1:])
	q[len(q)-1] = 0
	return m
}

// What a process knows.
const (
	pWaits int8 = iota
	pHas
	pAsked // it has the lease, and was asked to return it
	pGone  // it was told that the lease has ended
	pRefused
	pClosed
)

// mWorld is a state of the model.
type mWorld struct {
	life                         [2]lease.State
	toNode, toLender, toProcess  mQueue
	process                      int8
	question                     int8    // the node's: 1 it waits for the lender, 2 nobody waits any more
	knows                        bool    // the node has the lease in its table
	answers                      [2]bool // it is about to send the answer on
	after                        [2]int8 // what it says then, as rpc.Turn has it
	freed, lost, doubled         int8
	wasAsked                     bool // the lender has said that it wants the lease back
	lenderDead, nodeDead         bool
	lenderHeardEnd, nodeHeardEnd bool
	sessionOver, full, renewed   bool
	wrong                        string
}

// mModel walks through worlds.
type mModel struct {
	table    [2][lease.States][lease.Events]lease.Step
	fault    string
	reliable bool
}

// on brings a life to its next state.
func (m *mModel) on(w *mWorld, side int, ev lease.Event) lease.Act {
	step := m.table[side][w.life[side]][ev]
	if step.To == lease.None {
		return lease.ActNone
	}
	w.life[side] = step.To
	return step.Act
}

func over(s lease.State) bool { return s == lease.Gone }

// lender has the lender do an event.
func (m *mModel) lender(w *mWorld, ev lease.Event) {
	act := m.on(w, mLender, ev)
	m.say(w, mLender, act)
	if act == lease.ActEnd || act == lease.ActEndSay {
		w.freed++
	}
}

// node has the borrower's node do an event.
func (m *mModel) node(w *mWorld, ev lease.Event) {
	act := m.on(w, mNode, ev)
	m.say(w, mNode, act)
	if act == lease.ActEnd && ev == lease.OnReturned && w.knows {
		w.knows = false
		w.send(&w.toLender, mReturn)
	}
}

// says is what a step says.
var says = map[lease.Act]int8{lease.ActWant: mWanted, lease.ActEndSay: mGone}

// faulty says whether a side has a fault of rpc.Turn.
func (m *mModel) faulty(side int, fault string) bool {
	return m.fault == [...]string{mLender: "", mNode: "the node "}[side]+fault
}

// say has a side say what its step says, after its answer.
func (m *mModel) say(w *mWorld, side int, act lease.Act) {
	switch said := says[act]; {
	case said == 0:
	case !w.answers[side] || m.faulty(side, saysEarly):
		w.send(w.from(side), said)
	case !m.faulty(side, forgets):
		w.after[side] = said
	}
}

// answer has a side send its answer, and what comes after it.
func (w *mWorld) answer(side int, m int8) {
	w.answers[side] = false
	w.send(w.from(side), m)
	if w.after[side] != 0 && m == mAnswer {
		w.send(w.from(side), w.after[side])
	}
	w.after[side] = 0
}

// from is where what a side says goes.
func (w *mWorld) from(side int) *mQueue {
	if side == mLender {
		return &w.toNode
	}
	return &w.toProcess
}

// send puts a message into a queue. Between nodes whose session is over nothing comes.
func (w *mWorld) send(q *mQueue, m int8) {
	if q != &w.toProcess && w.sessionOver {
		return
	}
	w.full = w.full || !q.push(m)
}

// steps calls f with each world that follows.
func (m *mModel) steps(w mWorld, f func(name string, next mWorld)) {
	do := func(name string, step func(*mWorld)) {
		next := w
		step(&next)
		if !next.full { // there is no such room in the model; another order has it
			f(name, next)
		}
	}
	if !w.lenderDead {
		m.lenderSteps(&w, do)
	}
	if !w.nodeDead {
		m.nodeSteps(&w, do)
	}
	if w.toProcess[0] != 0 && w.process != pClosed {
		do("process hears", (*mWorld).processHears)
	}
	if w.process != pClosed && w.process != pRefused {
		do("process returns", func(n *mWorld) {
			n.process = pClosed
			if !n.nodeDead {
				m.node(n, lease.OnReturned)
			}
		})
	}
	if !w.sessionOver {
		m.troubles(&w, do)
	}
}

func (m *mModel) lenderSteps(w *mWorld, do func(string, func(*mWorld))) {
	l := w.life[mLender]
	if l == lease.None && w.question == 1 && !w.sessionOver {
		do("lender grants", func(n *mWorld) {
			n.answers[mLender] = true
			m.lender(n, lease.OnGranted)
		})
	}
	if w.answers[mLender] {
		do("lender answers", func(n *mWorld) { n.answer(mLender, mAnswer) })
	}
	if w.answers[mLender] && over(l) { // it sees that there is no memory
		do("lender refuses", func(n *mWorld) {
			n.answer(mLender, mRefused)
			m.lender(n, lease.OnReturned)
		})
	}
	if l == lease.Held {
		do("lender wants it", func(n *mWorld) {
			n.wasAsked = true
			m.lender(n, lease.OnWanted)
		})
	}
	if l == lease.Wanted {
		do("its deadline is over", func(n *mWorld) { m.lender(n, lease.OnTaken) })
	}
	if !m.reliable && l != lease.None && !over(l) && (!w.knows || w.nodeDead) {
		do("nobody renews it", func(n *mWorld) { m.lender(n, lease.OnTaken) })
	}
	if w.sessionOver && !w.lenderHeardEnd {
		do("lender hears of the session's end", func(n *mWorld) {
			n.lenderHeardEnd, n.toLender = true, mQueue{}
			m.lender(n, lease.OnLost)
		})
	}
	if w.toLender[0] != 0 && !w.lenderHeardEnd {
		do("lender hears", func(n *mWorld) { m.lenderHears(n) })
	}
}

func (m *mModel) lenderHears(n *mWorld) {
	switch n.toLender.pop() {
	case mReturn:
		if s := n.life[mLender]; s == lease.None || over(s) {
			return
		}
		if m.lender(n, lease.OnReturned); !over(n.life[mLender]) {
			n.wrong = "the lender keeps what was returned"
		}
	case mRenew:
		if over(n.life[mLender]) && m.fault != "renewals of what is gone are not answered" {
			n.send(&n.toNode, mGone)
		}
	}
}

func (m *mModel) nodeSteps(w *mWorld, do func(string, func(*mWorld))) {
	if w.question == 1 && !w.sessionOver {
		do("node waits no more", func(n *mWorld) {
			n.question = 2
			if n.process == pWaits {
				n.process = pRefused
			}
		})
	}
	if w.answers[mNode] {
		do("node answers", func(n *mWorld) { n.answer(mNode, mAnswer) })
	}
	if !m.reliable && w.knows && !w.sessionOver && !w.renewed && over(w.life[mLender]) {
		do("node renews", func(n *mWorld) {
			n.renewed = true // once is enough, unless it is lost
			n.send(&n.toLender, mRenew)
		})
	}
	if w.sessionOver && !w.nodeHeardEnd {
		do("node hears of the session's end", func(n *mWorld) {
			n.nodeHeardEnd, n.toNode = true, mQueue{}
			if n.knows {
				n.knows = false
				m.node(n, lease.OnTaken)
			}
			if n.question == 1 {
				n.question = 2
				if n.process == pWaits {
					n.process = pRefused
				}
			}
		})
	}
	if w.toNode[0] != 0 && !w.nodeHeardEnd {
		do("node hears", func(n *mWorld) { m.nodeHears(n) })
	}
}

func (m *mModel) nodeHears(n *mWorld) {
	switch n.toNode.pop() {
	case mAnswer:
		switch n.question {
		case 1:
			n.question, n.knows, n.answers[mNode] = 0, true, true
			m.node(n, lease.OnGranted)
			if n.process == pClosed { // it has died meanwhile, as its node finds now
				m.node(n, lease.OnReturned)
			}
		case 2:
			n.question = 0
			if m.fault != "late answers are kept" {
				n.send(&n.toLender, mReturn)
			}
		}
	case mRefused:
		if n.question == 1 && n.process == pWaits {
			n.process = pRefused
		}
		n.question = 0
	case mWanted:
		if n.knows {
			m.node(n, lease.OnWanted)
		}
	case mGone:
		if n.knows {
			n.knows = false
			m.node(n, lease.OnTaken)
		}
	}
}

func (w *mWorld) processHears() {
	switch m := w.toProcess.pop(); {
	case m == mAnswer && w.process == pWaits:
		w.process = pHas
	case m == mWanted && w.process == pHas:
		w.process = pAsked
	case m == mGone && (w.process == pHas || w.process == pAsked):
		w.process = pGone
	default:
		w.wrong = fmt.Sprintf("the process hears %d when it is %d", m, w.process)
	}
}

// troubles are what happens to nodes and messages.
func (m *mModel) troubles(w *mWorld, do func(string, func(*mWorld))) {
	do("the session ends", func(n *mWorld) { n.sessionOver = true })
	do("the lender is killed", func(n *mWorld) {
		n.sessionOver, n.lenderDead, n.lenderHeardEnd = true, true, true
		n.life[mLender], n.freed, n.answers[mLender], n.after[mLender] = lease.Gone, 1, false, 0
	})
	do("the borrower's node is killed", func(n *mWorld) {
		n.sessionOver, n.nodeDead, n.nodeHeardEnd = true, true, true
		n.knows, n.question, n.toProcess, n.answers[mNode] = false, 0, mQueue{}, false
		n.after[mNode] = 0
		if n.process != pClosed && n.process != pRefused { // it sees the end of its connection
			n.process = pGone
		}
	})
	if m.reliable {
		return
	}
	for _, to := range []func(*mWorld) *mQueue{
		func(n *mWorld) *mQueue { return &n.toNode }, func(n *mWorld) *mQueue { return &n.toLender },
	} {
		if q := to(w); q[0] != 0 && w.lost == 0 {
			do("a message is lost", func(n *mWorld) { n.lost++; to(n).pop(); n.renewed = false })
		}
		if q := to(w); q[0] != 0 && w.doubled == 0 {
			do("a message comes twice", func(n *mWorld) {
				n.doubled++
				n.full = !to(n).push(q[0]) // behind those that wait: late
			})
		}
	}
}

// check says what is wrong with a world; last: nothing follows but troubles.
func (m *mModel) check(w *mWorld, last bool) string {
	l := w.life[mLender]
	holds := w.process == pHas || w.process == pAsked
	switch {
	case w.wrong != "":
		return w.wrong
	case w.freed > 1:
		return "memory is freed twice"
	case over(l) != (w.freed == 1):
		return "memory is freed, or not, in the wrong state"
	case !last:
		return ""
	case holds && over(l):
		return "a process has a lease whose memory is gone, and is not told"
	case !holds && l != lease.None && !over(l) && w.process != pWaits:
		return "nobody has the lease, and its memory is not freed"
	case w.process == pHas && w.wasAsked && m.reliable:
		return "the process is not asked"
	}
	return ""
}

// explore visits all worlds.
func (m *mModel) explore() explore.Result[mWorld] {
	return explore.All(func(w mWorld) (after []mWorld, wrong string) {
		goesOn := false
		m.steps(w, func(name string, next mWorld) {
			if why := m.check(&next, false); why != "" && wrong == "" {
				wrong = fmt.Sprintf("%s: %s", name, why)
			}
			switch name {
			case "the session ends", "the lender is killed", "the borrower's node is killed", "process returns", "lender wants it",
				"its deadline is over", "a message is lost", "a message comes twice":
			default: // it comes by itself
				goesOn = true
			}
			after = append(after, next)
		})
		if !goesOn && wrong == "" {
			if why := m.check(&w, true); why != "" {
				wrong = "at the end: " + why
			}
		}
		return after, wrong
	}, mWorld{question: 1})
}

// The life of a lease is right in all orders of its steps, and the model finds planted faults.
func TestLeaseModel(t *testing.T) {
	find := func(f leaseFault, reliable bool) explore.Result[mWorld] {
		m := &mModel{table: [2][lease.States][lease.Events]lease.Step{lease.Steps(), lease.Steps()}, fault: f.name, reliable: reliable}
		if f.side >= 0 {
			m.table[f.side][f.state][f.ev] = f.step
		}
		return m.explore()
	}
	for _, reliable := range []bool{true, false} {
		r := find(leaseFault{side: -1}, reliable)
		t.Logf("reliable %v: %d states", reliable, r.States)
		if r.Wrong != "" {
			t.Errorf("reliable %v: %v", reliable, r)
		}
	}
	for _, f := range leaseFaults {
		if find(f, true).Wrong == "" && find(f, false).Wrong == "" {
			t.Errorf("the model does not find: %s", f.name)
		}
	}
}
