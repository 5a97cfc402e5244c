package relay

import (
	"fmt"
	"testing"

	"exnet/internal/explore"
	"exnet/internal/racetest"
)

// The channels between two nodes, as a model whose steps are walked through in every order: places
// that are filled, sent one by one or by a PUT, lent and used again; credits that are refused at
// any message; PUTs whose ends are told in any order; and sessions that either node forgets at any
// step. The places take the steps of placeNext. What is wrong: a message that comes out of order,
// twice, or of another session; a step that cannot be; and a walk that ends with something unsent.
//
// Each node has messages 1..n for the other one in each session. A step is what the poll list's
// owner does without looking elsewhere, or what the link does.

// fault is a mistake that the model is to find.
type fault uint8

const (
	faultNone      fault = iota
	faultFreeEarly       // the end of a PUT frees its place, although BATCH was not sent: as it was
	faultTakenFree       // TAKEN frees a place whose PUT's end is not known
	faultNoHold          // what follows a batch that has not come does not wait
	faultTakenRoom       // TAKEN needs a place of its own
	faultNoRetry         // who is refused credit is not looked at again
	faultNoRelieve       // who is refused a place is not looked at again
	faultEarlyLend       // TAKEN is sent before the batch was looked at, when its PUT has landed
	faultNoNumber        // batches are not numbered, and PUTs of a session may land in the next one
	faultSilent          // who forgets says nothing
	faultAnyHello        // HELLO for another session begins one
	faultNoHello         // messages before HELLO are taken
	faultNoWait          // something is said before the peer's number is known, and taken
	faults
)

func (f fault) String() string {
	return [...]string{"none", "free early", "TAKEN frees", "no hold", "TAKEN needs room", "no retry", "no relief",
		"lent early", "no number", "silent", "any HELLO", "no HELLO", "no wait"}[f]
}

const (
	mPlaces = 2
	mBox    = 3 // messages in a mailbox, at most
	mHeld   = 6
	mPuts   = 3
)

// mMessage is a VELO message.
type mMessage struct {
	k           int8 // one of those below; 0: none
	place       int8
	from, to    int8 // BATCH, single: messages
	number      int8 // BATCH, TAKEN: of the batch
	own, far    int8 // HELLO
	session     int8 // of the sender when it was sent: what the model knows, and no node
	peerSession int8
}

const (
	mBatch int8 = iota + 1
	mTaken
	mSingle
	mHello
)

// mContent is what is in a place: messages of a session.
type mContent struct{ from, to, session, peerSession int8 }

type mPlace struct {
	state  placeState
	has    mContent
	number int8
	tells  int8 // faultTakenRoom: TAKEN of this place is in it, and 1
}

type mPut struct {
	state       int8 // 0: none, 1: under way, 2: landed, its end is not known here
	place       int8
	number      int8
	session     int8
	peerSession int8
}

type mStage struct {
	state stageState
	has   mContent
}

// mNode is one node.
type mNode struct {
	own, far         int8 // sessions
	next             int8 // message that is to be sent next
	got              int8 // the last message that has come in this session
	places           [mPlaces]mPlace
	order            [mPlaces]int8 // places to be sent, and 1
	puts             [mPuts]mPut
	batches, arrived int8 // numbers of the next batches
	credits          int8
	greeted          int8 // far of the last HELLO, and 1
	met              bool
	answered         bool
	touched          bool // the channel is looked at at the end of the poll
	refused          bool // a message was, so that OnCredit is due
	starved          bool // messages were refused a place, and wait
	stage            [mPlaces]mStage
	owed             [mPlaces]mMessage // TAKENs to be sent
	held             [mHeld]mMessage
	box              [mBox]mMessage // what has come and was not read
	forgets          int8           // how often it may forget yet
}

type mWorld struct {
	nodes [2]mNode
}

type chanModel struct {
	messages, forgets [2]int8
	credits           int8
	fault             fault
	wrong             string
}

func (m *chanModel) start() (w mWorld) {
	for i := range w.nodes {
		w.nodes[i] = mNode{own: 1, next: 1, credits: m.credits, forgets: m.forgets[i]}
	}
	return w
}

func (m *chanModel) bad(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
	}
}

func push[T comparable](list []T, v T) bool {
	var none T
	for i := range list {
		if list[i] == none {
			list[i] = v
			return true
		}
	}
	return false
}

func pop[T any](list []T) {
	var none T
	copy(list, list[1:])
	list[len(list)-1] = none
}

// next returns the worlds that a step leads to.
func (m *chanModel) next(w mWorld) (all []mWorld) {
	for i := range w.nodes {
		n := &w.nodes[i]
		try := func(step func(v *mWorld, n *mNode) bool) {
			v := w
			if step(&v, &v.nodes[i]) {
				all = append(all, v)
			}
		}
		try(func(_ *mWorld, n *mNode) bool { return m.produce(n, m.messages[i]) })
		if n.touched {
			for _, batch := range []bool{false, true} {
				try(func(v *mWorld, n *mNode) bool { m.flush(v, i, batch); return true })
			}
		}
		for p := range n.puts {
			switch n.puts[p].state {
			case 1:
				try(func(v *mWorld, _ *mNode) bool { m.land(v, i, p); return true })
			case 2:
				try(func(v *mWorld, n *mNode) bool { m.ended(n, p); return true })
			}
		}
		if n.box[0].k != 0 {
			try(func(v *mWorld, _ *mNode) bool { m.read(v, i); return true })
		}
		if n.refused && n.credits > 0 && m.fault != faultNoRetry { // OnCredit
			try(func(_ *mWorld, n *mNode) bool { n.refused, n.touched = false, true; return true })
		}
		if n.forgets > 0 {
			try(func(_ *mWorld, n *mNode) bool {
				n.forgets--
				m.renew(n, n.own+1, 0)
				n.touched = m.fault != faultSilent
				return true
			})
		}
	}
	return all
}

// renew begins a session.
func (m *chanModel) renew(n *mNode, own, far int8) {
	*n = mNode{own: own, far: far, next: 1, credits: n.credits, box: n.box, forgets: n.forgets, refused: n.refused,
		puts: n.puts, touched: true}
}

func (m *chanModel) step(n *mNode, p *mPlace, e placeEvent) {
	next := placeNext[p.state][e]
	if next == placeNever {
		m.bad("%v in state %v", e, p.state)
		return
	}
	if p.state = next; next == placeFree {
		*p = mPlace{}
		m.relieve(n)
	}
}

func (m *chanModel) relieve(n *mNode) {
	if m.fault != faultNoRelieve {
		n.starved = false
	}
}

// room is Engine.room; -1: there is none.
func (n *mNode) room() int {
	for i, o := range n.order {
		last := o != 0 && (i == mPlaces-1 || n.order[i+1] == 0)
		if last && n.places[o-1].state == placeFilling && n.places[o-1].tells == 0 {
			return int(o - 1)
		}
	}
	for i := range n.places {
		if n.places[i].state == placeFree && push(n.order[:], int8(i+1)) {
			n.places[i].state = placeFilling
			return i
		}
	}
	return -1
}

// produce has a node get a message for the other one.
func (m *chanModel) produce(n *mNode, messages int8) bool {
	if n.next > messages || n.starved {
		return false
	}
	i := n.room()
	if i < 0 {
		n.starved = true
		return true
	}
	p := &n.places[i]
	if p.has.from == 0 {
		p.has = mContent{n.next, n.next, n.own, n.far}
	}
	p.has.to = n.next
	n.next++
	n.touched = true
	return true
}

// send is Engine.sendVELO.
func (m *chanModel) send(w *mWorld, i int, msg mMessage) bool {
	n, o := &w.nodes[i], &w.nodes[1-i]
	if n.credits == 0 {
		n.refused = true
		return false
	}
	msg.session, msg.peerSession = n.own, n.far
	n.credits--
	if !push(o.box[:], msg) {
		panic("the model's mailbox is too small")
	}
	return true
}

// idle reports what is left undone where nothing more happens.
func (m *chanModel) idle(w mWorld) string {
	for i := range w.nodes {
		n, o := &w.nodes[i], &w.nodes[1-i]
		if n.far != o.own || o.far != n.own {
			return fmt.Sprintf("node %d is in session %d with %d of %d", i, n.own, n.far, o.own)
		}
		if o.got != m.messages[i] {
			return fmt.Sprintf("node %d has got %d messages of %d", 1-i, o.got, m.messages[i])
		}
		if n.places != ([mPlaces]mPlace{}) {
			return fmt.Sprintf("node %d does not get its places back", i)
		}
	}
	return ""
}

// explore walks through all orders of steps, up to so many states.
func (m *chanModel) explore(limit int) (wrong string, states int) {
	start := m.start()
	r := explore.Some(limit, func(w mWorld) ([]mWorld, string) {
		m.wrong = ""
		next := m.next(w)
		if m.wrong == "" && len(next) == 0 {
			m.wrong = m.idle(w)
		}
		return next, m.wrong
	}, start)
	return r.Wrong, r.States
}

// Whatever the order of steps, each message comes once and in order, and nothing is left.
func TestChannelModel(t *testing.T) {
	racetest.SkipModel(t)
	const most = 300_000
	for _, c := range []chanModel{
		{messages: [2]int8{3, 0}, credits: 1},
		{messages: [2]int8{2, 1}, credits: 1},
		{messages: [2]int8{2, 1}, credits: 2},
		{messages: [2]int8{2, 2}, credits: 1},
		{messages: [2]int8{1, 0}, credits: 1, forgets: [2]int8{1, 1}},
		{messages: [2]int8{1, 1}, credits: 1, forgets: [2]int8{1, 0}},
		{messages: [2]int8{1, 1}, credits: 2, forgets: [2]int8{1, 0}},
	} {
		wrong, states := c.explore(most)
		t.Logf("%v messages, %d credits, forgets %v: %d states", c.messages, c.credits, c.forgets, states)
		if states >= most {
			t.Errorf("not all of %d states", states)
		}
		if wrong != "" {
			t.Errorf("%v messages, %d credits, forgets %v: %s", c.messages, c.credits, c.forgets, wrong)
		}
	}
}

// Each mistake is found, of which the first one was made.
func TestChannelModelFindsFaults(t *testing.T) {
	racetest.SkipModel(t)
	for f := faultNone + 1; f < faults; f++ {
		found := ""
		for _, c := range []chanModel{
			{messages: [2]int8{3, 0}, credits: 1, fault: f},
			{messages: [2]int8{2, 2}, credits: 1, fault: f},
			{messages: [2]int8{1, 0}, credits: 1, forgets: [2]int8{1, 1}, fault: f},
			{messages: [2]int8{1, 1}, credits: 1, forgets: [2]int8{1, 1}, fault: f},
		} {
			if found, _ = c.explore(60_000); found != "" {
				break
			}
		}
		t.Logf("%v: %s", f, found)
		if found == "" {
			t.Errorf("%v is not found", f)
		}
	}
}
