package ofi

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"exnet/internal/explore"
)

// The stages of operations, as a model of an initiator that writes twice to one region of a target.
// Each write has two parts, and one of them, or none, tells the target. Every step comes at any
// time: a message or an answer that waits as for a link that was cut, a part that is copied, a gate
// that the target shuts, a region that ends, an endpoint that ends. An answer may be lost, come
// twice, come for an operation that has ended, or for one that has not begun. The stages change as
// state.c has them.
//
// What is wrong: a write that ends twice or never, that ends well without its bytes, or without the
// target having been told once; bytes that come after those of a later write, or after their region
// has ended; a target that is told before the bytes are there; a stage without the step that is
// needed.

// oStages are the steps of state.c by stage and event.
type oStages map[[2]string]string

// stages returns the table of state.c.
func stages(t *testing.T) oStages {
	t.Helper()
	build(t, "plain/states")
	out, err := exec.CommandContext(t.Context(), filepath.Join(buildDir, "plain/states"), "operation").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := make(oStages)
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			t.Fatalf("a step says %q", line)
		}
		all[[2]string{f[0], f[1]}] = f[2]
	}
	return all
}

const (
	oOps   = 2
	oParts = 2
	oAll   = 1<<oParts - 1 // the parts as bits
)

// oKind is what a message is.
type oKind int8

const (
	oNothing oKind = iota
	oBegin         // to the target: an operation with its bytes
	oTell          // to the target: its bytes were copied
	oDone          // to the initiator: the answer
	oGrant         // to the initiator: a gate
	oCredit        // to the initiator: how many messages were taken
)

// oMessage is a message on its way. cookie is 1 and the operation; gate is of a grant.
type oMessage struct {
	kind               oKind
	cookie, gate, used int8
	refused            bool
	lie                bool // an answer that is none
}

// oOp is an operation.
type oOp struct {
	stage        string
	seq          int8 // of its message; 0: it was not sent
	copied       int8 // parts
	landed       int8 // parts that are in the region, as bits
	told         int8 // how often the target was told
	ended, wrong int8 // how often it has ended, and how often with an error
}

// oWorld is a state of the model.
type oWorld struct {
	ops                [oOps]oOp
	current            int8 // the operation that is sent now
	toTarget           [3]oMessage
	toInitiator        [4]oMessage
	sent, acked        int8
	used               int8
	gate, open, knows  int8 // the target's last gate; the one that is open; the one that the initiator has a grant of
	call               int8 // 1 and the operation that is being copied: the call has passed the gate
	ending, over, down bool // the region is to end, and has ended; the endpoint has ended
	toTell             int8 // the write that tells the target; -1: none
	lost, tricks       int8 // answers that were lost; how often the target may lie yet
}

// oFault is a planted fault.
type oFault int8

const (
	oSound      oFault = iota
	oOvertakes         // copies while a message of an earlier write is on its way
	oHasty             // a write ends when it was sent
	oAnyCookie         // an answer ends whatever operation waits
	oAnyStage          // an answer ends an operation that has not begun
	oUnsettled         // a region ends while a call copies to it
	oSilent            // the target is not told
	oTellsEarly        // the target is told when the first part was copied
	oEndsTwice         // the end of the endpoint ends the current operation twice
	oForgets           // the end of the endpoint forgets what waits for an answer
	oIgnores           // a call that the gate has refused counts as copied
	oFaults
)

type oModel struct {
	stages oStages
	fault  oFault
	bad    string
	taken  map[[2]string]bool
}

func (m *oModel) fail(format string, args ...any) {
	if m.bad == "" {
		m.bad = fmt.Sprintf(format, args...)
	}
}

// step is tx_step.
func (m *oModel) step(o *oOp, event string) {
	at := [2]string{o.stage, event}
	to, ok := m.stages[at]
	if !ok {
		m.fail("stage %s has no step for %s", o.stage, event)
		return
	}
	m.taken[at] = true
	o.stage = to
}

// tells reports whether the target is to be told of an operation.
func (w *oWorld) tells(i int8) bool { return w.toTell == i }

// put adds a message to what is on its way. It returns false if there is no room.
func put(queue []oMessage, x oMessage) bool {
	i := slices.IndexFunc(queue, func(m oMessage) bool { return m.kind == oNothing })
	if i >= 0 {
		queue[i] = x
	}
	return i >= 0
}

func take(queue []oMessage) oMessage {
	x := queue[0]
	copy(queue, queue[1:])
	queue[len(queue)-1] = oMessage{}
	return x
}

// end is tx_complete. lie: the target says what is not so, which costs its own bytes only.
func (m *oModel) end(w *oWorld, i int8, wrong, lie bool) {
	o := &w.ops[i]
	o.ended++
	if wrong {
		o.wrong++
	}
	switch {
	case o.ended > 1:
		m.fail("write %d ends twice", i)
	case wrong || lie:
	case o.landed != oAll:
		m.fail("write %d ends well, with parts %b of it", i, o.landed)
	case w.tells(i) && o.told != 1:
		m.fail("write %d ends well, and its target was told %d times", i, o.told)
	}
}

// breach has the endpoint end: all operations end.
func (m *oModel) breach(w *oWorld) {
	w.down, w.toTarget, w.toInitiator = true, [3]oMessage{}, [4]oMessage{}
	for i := range int8(oOps) {
		o := &w.ops[i]
		if o.ended == 0 && (m.fault != oForgets || o.stage != "begun") {
			m.end(w, i, true, false)
		}
		if m.fault == oEndsTwice && i == w.current && o.stage == "placing" {
			m.end(w, i, true, false)
		}
		if o.ended == 0 {
			m.fail("write %d never ends", i)
		}
	}
}

// land has a part of a write come to the region.
func (m *oModel) land(w *oWorld, i, part int8) {
	if w.over {
		m.fail("part %d of write %d comes after its region has ended", part, i)
	}
	for j := i + 1; j < oOps; j++ {
		if w.ops[j].landed&(1<<part) != 0 {
			m.fail("part %d of write %d comes after that of write %d", part, i, j)
		}
	}
	w.ops[i].landed |= 1 << part
}

// message sends the current operation, or that it was copied. It returns false if there is no room.
func (m *oModel) message(w *oWorld, kind oKind) bool {
	i := w.current
	if !put(w.toTarget[:], oMessage{kind: kind, cookie: 1 + i}) {
		return false
	}
	w.sent++
	w.ops[i].seq = w.sent
	m.step(&w.ops[i], "sent")
	w.current++
	if m.fault == oHasty && kind == oBegin {
		m.end(w, i, false, false)
	}
	return true
}

// advance is advance of out.c, and place. It returns false if it has to wait.
func (m *oModel) advance(w *oWorld) bool {
	if w.down || w.call != 0 || w.current == oOps {
		return false
	}
	o := &w.ops[w.current]
	switch o.stage {
	case "queued":
		if w.knows == 0 {
			return m.message(w, oBegin)
		}
		waits, last := false, int8(0)
		for _, before := range w.ops[:w.current] {
			if before.ended == 0 {
				waits, last = true, before.seq
			}
		}
		switch {
		case m.fault == oOvertakes:
		case waits && (w.acked == w.sent || last == w.sent):
			return false
		case w.acked != w.sent:
			return m.message(w, oBegin)
		}
		m.step(o, "grant")
	case "placing":
		switch {
		case w.open != 0 && w.open == w.knows:
			w.call = 1 + w.current
		case m.fault == oIgnores:
			o.copied = oParts
			m.copied(w)
		default:
			m.step(o, "refuse")
			o.copied, w.knows = 0, 0
		}
	case "refused":
		return m.message(w, oBegin)
	case "telling":
		return m.message(w, oTell)
	default:
		return false
	}
	return true
}

// copied goes on after a part of the current operation was copied.
func (m *oModel) copied(w *oWorld) {
	i := w.current
	o := &w.ops[i]
	switch {
	case o.copied < oParts && (m.fault != oTellsEarly || !w.tells(i)):
	case w.tells(i) && m.fault != oSilent:
		m.step(o, "tells")
	default:
		m.step(o, "copied")
		w.current++
		m.end(w, i, false, false)
	}
}

// hear has the target take a message.
func (m *oModel) hear(w *oWorld) {
	x := take(w.toTarget[:])
	i := x.cookie - 1
	w.used++
	answer := oMessage{kind: oDone, cookie: x.cookie, used: w.used, refused: w.ending}
	switch {
	case x.kind == oTell:
		answer.refused = false
		if w.ops[i].told++; w.ops[i].landed != oAll {
			m.fail("the target is told of write %d, and has parts %b", i, w.ops[i].landed)
		}
	case w.ending:
	default:
		for part := range int8(oParts) {
			m.land(w, i, part)
		}
		if w.tells(i) {
			w.ops[i].told++
		}
		if w.open == 0 && w.gate < 2 {
			w.gate++
			w.open = w.gate
			put(w.toInitiator[:], oMessage{kind: oGrant, gate: w.gate, used: w.used})
		}
	}
	if !put(w.toInitiator[:], answer) {
		panic("the model has too little room for answers")
	}
}

// told has the initiator take a message.
func (m *oModel) told(w *oWorld) {
	x := take(w.toInitiator[:])
	w.acked = max(w.acked, x.used)
	switch x.kind {
	case oGrant:
		w.knows = x.gate
	case oDone:
		i := x.cookie - 1
		if m.fault == oAnyCookie {
			i = int8(slices.IndexFunc(w.ops[:], func(o oOp) bool { return o.ended == 0 && o.stage == "begun" }))
		}
		if i < 0 || w.ops[i].ended > 0 || w.ops[i].stage != "begun" && (m.fault != oAnyStage || i != w.current) {
			m.breach(w)
			return
		}
		if i == w.current {
			w.current++
		}
		m.end(w, i, x.refused, x.lie && w.ops[i].seq > 0)
	}
}

// next returns the worlds that follow, and whether anything has to follow: what the target may do
// or not does not.
func (m *oModel) next(w oWorld) (all []oWorld, goesOn bool) {
	add := func(has bool, f func(*oWorld)) {
		if has {
			n := w
			f(&n)
			all = append(all, n)
		}
	}
	n := w
	if m.advance(&n) {
		all = append(all, n)
	}
	add(w.call != 0, func(n *oWorld) { // the call ends
		i := n.call - 1
		m.land(n, i, n.ops[i].copied)
		n.ops[i].copied++
		n.call = 0
		if !n.down {
			m.copied(n)
		}
	})
	add(w.toTarget[0].kind != oNothing && w.toInitiator[1].kind == oNothing, m.hear)
	add(w.toInitiator[0].kind != oNothing, m.told)
	add(w.used > w.acked && w.toInitiator[0].kind == oNothing && !w.down, func(n *oWorld) {
		put(n.toInitiator[:], oMessage{kind: oCredit, used: n.used})
	})
	add(w.ending && !w.over && (w.call == 0 || m.fault == oUnsettled), func(n *oWorld) { n.over = true })
	goesOn = len(all) > 0
	add(!w.ending, func(n *oWorld) { n.ending, n.open = true, 0 })
	add(w.open != 0, func(n *oWorld) { n.open = 0 }) // for other grants
	add(!w.down && w.call == 0, m.breach)
	if w.tricks > 0 && !w.down {
		trick := func(cookie int8) func(*oWorld) {
			return func(n *oWorld) {
				n.tricks--
				put(n.toInitiator[:], oMessage{kind: oDone, cookie: cookie, used: n.acked, lie: true})
			}
		}
		add(w.toInitiator[0].kind == oDone && w.toInitiator[1].kind == oNothing, trick(w.toInitiator[0].cookie)) // twice
		for i := range int8(oOps) {                                                                              // late, or early
			add(w.toInitiator[1].kind == oNothing && w.call == 0, trick(1+i))
		}
		add(w.toInitiator[0].kind == oDone, func(n *oWorld) {
			n.tricks--
			n.lost++
			take(n.toInitiator[:])
		})
	}
	return all, goesOn
}

// explore visits all states.
func (m *oModel) explore() explore.Result[oWorld] {
	m.taken = make(map[[2]string]bool)
	var begin []oWorld
	for _, grant := range []oMessage{{}, {kind: oGrant, gate: 1}} { // none yet, or it is on its way
		for _, known := range []int8{0, grant.gate} { // or it is there
			for toTell := int8(-1); toTell < oOps; toTell++ {
				w := oWorld{tricks: 1, toTell: toTell, gate: grant.gate, open: grant.gate, knows: known}
				if known == 0 {
					w.toInitiator[0] = grant
				}
				for i := range w.ops {
					w.ops[i].stage = "queued"
				}
				begin = append(begin, w)
			}
		}
	}
	return explore.All(func(w oWorld) ([]oWorld, string) {
		m.bad = ""
		all, goesOn := m.next(w)
		for i, o := range w.ops {
			if !goesOn && o.ended == 0 && w.lost == 0 {
				m.fail("write %d is %s, and nothing goes on: %+v", i, o.stage, w)
			}
		}
		return all, m.bad
	}, begin...)
}

// The stages of state.c do what they should, whatever comes when; and the model finds each planted
// fault, and each step that is missing.
func TestStagesModel(t *testing.T) {
	table := stages(t)
	m := &oModel{stages: table}
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
	for f := oSound + 1; f < oFaults; f++ {
		m := &oModel{stages: table, fault: f}
		if r := m.explore(); r.Wrong == "" {
			t.Errorf("the model does not find fault %d", f)
		} else {
			t.Logf("fault %d: %s", f, r.Wrong)
		}
	}
	for at := range table {
		less := maps.Clone(table)
		delete(less, at)
		m := &oModel{stages: less}
		if m.explore().Wrong == "" {
			t.Errorf("the model does not miss %v", at)
		}
	}
}
