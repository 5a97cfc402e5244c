package ports

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"exnet/internal/explore"
)

// A port of the library, as a model: its program connects to a VPID, keeps a handle or lets it go,
// and takes what comes. At the other end of the fabric ports with that VPID begin and end, one
// after the other; each may send. The node says so in messages that wait as long as they like, and
// may end at any time. The states of the port, and of its grants and flows, change as state.c has
// them.
//
// What is wrong: a connect that finds a peer that the port knows to have ended, or that never
// returns; the end of a peer that is there; one that is never told; a message that is not taken; a
// grant that is freed while the program has a handle; a dead port with peers that are there.

// lSteps are the steps of state.c by state and event.
type lSteps map[[2]string]string

const (
	lLives  = 2 // ports with the VPID, one after the other
	lGrants = 3
	lQueue  = 7
)

// lKind is what a message of the node is.
type lKind int8

const (
	lNothing lKind = iota
	lFlow
	lGone
	lAnswer
)

// lMessage is a message of the node. peer counts from 1; an answer of 0 is a refusal.
type lMessage struct {
	kind lKind
	peer int8
}

// lGrant is a grant; peer 0: none.
type lGrant struct {
	peer   int8
	state  string
	handle bool
}

// lPeer is one that had the VPID.
type lPeer struct {
	flow       string // the state of its flow at the port; "": it has none
	opened     bool   // the port was sent the flow, or will be
	sent, took bool   // its message
	known      bool   // the port was told of its end
	ended      bool   // it has ended
}

// lWorld is a state of the model.
type lWorld struct {
	port   string
	node   bool // it lives
	asked  bool // it has a request to answer
	waits  bool // the program waits in connect for the answer
	live   int8 // the peer that is there; 0: none
	late   int8 // the peer whose end the node is still to tell (lLateEnd)
	lives  int8
	peers  [lLives + 1]lPeer
	grants [lGrants]lGrant
	queue  [lQueue]lMessage
}

// lFault is a planted fault.
type lFault int8

const (
	lSound        lFault = iota
	lTakesAnswer         // a callback's look takes messages while the port asks
	lFindsEnded          // connect forgets nothing
	lFreesHandles        // connect frees grants that the program has handles of
	lDropsUnread         // the flow of a peer that has ended is dropped with what is in it
	lLateEnd             // the node tells of an end after it has told of the next peer
	lKeepsPeers          // the node's end ends no peer
	lEndsFlows           // the end of a peer ends its flow, and not the grant
	lFaults
)

type lModel struct {
	steps lSteps
	fault lFault
	bad   string
	taken map[[2]string]bool
}

func (m *lModel) fail(format string, args ...any) {
	if m.bad == "" {
		m.bad = fmt.Sprintf(format, args...)
	}
}

// step does what an event does to a state.
func (m *lModel) step(at *string, event string) {
	key := [2]string{*at, event}
	if to, ok := m.steps[key]; ok {
		m.taken[key] = true
		*at = to
	}
}

// push queues a message of the node; false: there is no room, and it has to wait.
func (w *lWorld) push(k lKind, peer int8) bool {
	for i := range w.queue {
		if w.queue[i].kind == lNothing {
			w.queue[i] = lMessage{k, peer}
			return true
		}
	}
	return false
}

// pop takes the first message.
func (w *lWorld) pop() lMessage {
	first := w.queue[0]
	copy(w.queue[:], w.queue[1:])
	w.queue[lQueue-1] = lMessage{}
	return first
}

// end ends a grant.
func (m *lModel) end(w *lWorld, g *lGrant) {
	before := g.state
	m.step(&g.state, "end")
	if g.state != before && g.peer == w.live && w.node {
		m.fail("peer %d is there, and its grant is %s: %+v", g.peer, g.state, *w)
	}
}

// handle is handle of port.c.
func (m *lModel) handle(w *lWorld, msg lMessage) {
	switch msg.kind {
	case lFlow:
		w.peers[msg.peer].flow = "there"
	case lGone:
		w.peers[msg.peer].known = true
		for i := range w.peers { // all have one VPID
			if p := &w.peers[i]; p.flow != "" {
				before := p.flow
				if m.step(&p.flow, "end"); p.flow != before && int8(i) == w.live {
					m.fail("peer %d is there, and its flow is %s: %+v", i, p.flow, *w)
				}
			}
		}
		for i := range w.grants {
			if g := &w.grants[i]; g.peer != 0 && m.fault != lEndsFlows {
				m.end(w, g)
			}
		}
	}
}

// dead is node_is_gone of port.c.
func (m *lModel) dead(w *lWorld) {
	m.step(&w.port, "death")
	for i := range w.grants {
		if g := &w.grants[i]; g.peer != 0 && m.fault != lKeepsPeers {
			m.end(w, g)
		}
	}
	if w.port != "dead" {
		m.fail("the node has ended, and the port is %s: %+v", w.port, *w)
	}
	for _, g := range w.grants {
		if g.peer != 0 && g.state == "there" {
			m.fail("the node has ended, and peer %d has not: %+v", g.peer, *w)
		}
	}
}

// look is one message of look of port.c.
func (m *lModel) look(w *lWorld) {
	if w.port == "asking" && m.fault != lTakesAnswer || w.port == "dead" {
		return
	}
	if w.queue[0].kind != lNothing {
		m.handle(w, w.pop())
	} else if !w.node {
		m.dead(w)
	}
}

// connect is exn_port_connect, until the port asks. The program keeps the handle.
func (m *lModel) connect(w *lWorld) {
	if m.fault != lFindsEnded {
		for i := range w.grants {
			switch g := &w.grants[i]; {
			case g.peer == 0:
			case g.state != "there" && (!g.handle || m.fault == lFreesHandles):
				if g.handle {
					m.fail("a grant of peer %d is freed that has a handle: %+v", g.peer, *w)
				}
				*g = lGrant{}
			default:
				m.step(&g.state, "forget")
			}
		}
	}
	for i := range w.grants {
		if g := &w.grants[i]; g.peer != 0 && g.state != "forgotten" {
			if g.state != "there" || w.peers[g.peer].known {
				m.fail("connect finds peer %d, which has ended: %+v", g.peer, *w)
			}
			g.handle = true
			return
		}
	}
	m.step(&w.port, "ask")
	if !w.node {
		m.dead(w)
		m.step(&w.port, "answer")
		return
	}
	w.asked, w.waits = true, true
}

// answered is the end of exn_port_ask, and of exn_port_connect.
func (m *lModel) answered(w *lWorld, peer int8) {
	w.waits = false
	m.step(&w.port, "answer")
	if w.port == "asking" {
		m.fail("the answer has come, and the port asks: %+v", *w)
	}
	for i := range w.grants {
		if g := &w.grants[i]; peer != 0 && g.peer == 0 {
			*g = lGrant{peer, "there", true}
			return
		}
	}
}

// take is exn_port_take for the flow of one peer.
func (m *lModel) take(w *lWorld, peer int8) {
	p := &w.peers[peer]
	if p.sent && !p.took && !(m.fault == lDropsUnread && p.flow == "ended") {
		p.took = true
		return
	}
	if p.flow == "ended" {
		if p.flow = ""; p.sent && !p.took {
			m.fail("the message of peer %d is lost: %+v", peer, *w)
		}
	}
}

// next returns the states that may follow.
func (m *lModel) next(w lWorld) (all []lWorld) {
	add := func(may bool, do func(n *lWorld)) {
		if may && m.bad == "" {
			n := w
			do(&n)
			all = append(all, n)
		}
	}
	room := w.queue[lQueue-2].kind == lNothing // for two
	add(w.node && w.live == 0 && w.lives < lLives, func(n *lWorld) { n.lives++; n.live = n.lives })
	if p := w.peers[w.live]; w.live != 0 && w.node {
		add(!p.opened && room, func(n *lWorld) { n.peers[n.live].opened = n.push(lFlow, n.live) })
		add(p.opened && !p.sent, func(n *lWorld) { n.peers[n.live].sent = true })
		add(room, func(n *lWorld) {
			n.peers[n.live].ended = true
			if gone := n.live; m.fault == lLateEnd {
				n.late = gone
			} else {
				n.push(lGone, gone)
			}
			n.live = 0
		})
	}
	add(w.node && w.late != 0 && room, func(n *lWorld) { n.push(lGone, n.late); n.late = 0 })
	add(w.node && w.asked && room, func(n *lWorld) { n.asked = !n.push(lAnswer, n.live) })
	add(w.node, func(n *lWorld) { n.node = false })
	free := false
	for i, g := range w.grants {
		free = free || g.peer == 0
		add(g.handle && !w.waits, func(n *lWorld) { n.grants[i].handle = false })
		add(g.handle && !w.waits && w.peers[g.peer].ended, func(n *lWorld) { m.end(n, &n.grants[i]) }) // its bell says so
	}
	switch {
	case w.port == "dead":
	case w.waits:
		switch {
		case w.queue[0].kind == lAnswer:
			add(true, func(n *lWorld) { m.answered(n, n.pop().peer) })
		case w.queue[0].kind != lNothing:
			add(true, func(n *lWorld) { m.handle(n, n.pop()) })
			add(w.queue[0].kind == lGone, func(n *lWorld) { m.handle(n, n.pop()); m.look(n) }) // the callback looks
		case !w.node:
			add(true, func(n *lWorld) { n.asked, n.waits = false, false; m.dead(n); m.step(&n.port, "answer") })
		case !w.asked:
			m.fail("the program waits, and nobody answers: %+v", w)
		}
	default:
		add(w.queue[0].kind != lNothing || !w.node, m.look)
		add(free, m.connect)
		for i, p := range w.peers {
			add(p.flow != "", func(n *lWorld) { m.take(n, int8(i)) })
		}
		m.quiet(w)
	}
	return all
}

// quiet checks a port that has read all that the node has sent.
func (m *lModel) quiet(w lWorld) {
	if w.queue[0].kind != lNothing || w.late != 0 || !w.node {
		return
	}
	for _, g := range w.grants {
		if g.peer != 0 && g.peer != w.live && g.state == "there" {
			m.fail("peer %d has ended, and nobody has said so: %+v", g.peer, w)
		}
	}
}

// explore visits all states.
func (m *lModel) explore() explore.Result[lWorld] {
	m.taken = make(map[[2]string]bool)
	return explore.All(func(w lWorld) ([]lWorld, string) {
		m.bad = ""
		return m.next(w), m.bad
	}, lWorld{port: "idle", node: true})
}

// The states of a port of the library do what they should, whatever comes when; and the model finds
// each planted fault, and each step that is missing.
func TestLibraryModel(t *testing.T) {
	testProgram(t, "plain", "states")
	out, err := exec.CommandContext(t.Context(), filepath.Join(buildDir, "plain", "states")).Output()
	if err != nil {
		t.Fatal(err)
	}
	table := make(lSteps)
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			t.Fatalf("a step says %q", line)
		}
		table[[2]string{f[0], f[1]}] = f[2]
	}
	m := &lModel{steps: table}
	r := m.explore()
	if r.Wrong != "" {
		t.Fatal(r)
	}
	t.Logf("%d states", r.States)
	for at := range table {
		if !m.taken[at] {
			t.Errorf("the model never takes %v", at)
		}
	}
	for f := lSound + 1; f < lFaults; f++ {
		m := &lModel{steps: table, fault: f}
		if r := m.explore(); r.Wrong == "" {
			t.Errorf("the model does not find fault %d", f)
		} else {
			t.Logf("fault %d: %s", f, r.Wrong)
		}
	}
	for at := range table {
		less := maps.Clone(table)
		delete(less, at)
		m := &lModel{steps: less}
		if m.explore().Wrong == "" {
			t.Errorf("the model does not miss %v", at)
		}
	}
}
