package relay

import (
	"fmt"
	"testing"

	"exnet/internal/explore"
	"exnet/internal/racetest"
)

// One direction of a connection between two hosts that is switched off and on, as a model: a sender
// and a receiver, whose steps are those of SPEC.md, 5, and their nodes, walked through in every
// order. At each step the link may be cut, with any number of the messages on it lost, and come
// back; the receiver may fall back; a node may be killed, or the sender's program.
//
// What is wrong: a byte that comes twice, out of order, or never, a message that cannot be, and a
// walk that ends where the direction should be direct again, or with something undone; a reset
// where no node was killed, or where the direction was off and nothing was left to do.

// pFault is a mistake that the model is to find.
type pFault uint8

const (
	pFine        pFault = iota
	pStands             // STANDS of a PAUSE is not taken back at PROMOTE, as it was: flags were only added
	pOldMark            // a MARK that was read before PROMOTE says STANDS after it
	pBackFirst          // the node tells that PAUSE was consumed before it tells of FALLEN_BACK
	pBackLate           // it tells that only with a quarter of the queue
	pRewind             // after RESUME the lane takes PROMOTE for impossible
	pNoRewind           // and nothing is taken again
	pOpen               // after the first PAUSE all packets pass at once, for good
	pShut               // they do from PAUSE on, until PROMOTE, although it has not come
	pTellsOff           // the node tells that PAUSE was consumed although the direction is off, as it was
	pHolds              // and HOLDS is not taken back when it tells that it was consumed
	pOffLate            // PAUSE does not say OFF: only a later MARK does
	pNoHolds            // a program whose node was killed does not look at HOLDS
	pClosedFirst        // the node says CLOSED before it has taken all that a killed program has sent
	pNoReset            // one that has fallen back reads the queue up to PAUSE, and goes on, though the sender may have returned, as it was
	pLeaves             // a receiver that finds CLOSED does not read the queue
	pNoStay             // a sender that has not promoted since it was switched off says nothing, as it was
	pNoBell             // nor does its doorbell ring when it is switched on, as it was
	pFaults
)

func (f pFault) String() string {
	return [...]string{"none", "STANDS stays", "an old MARK", "BACK before MARK", "BACK is late", "no PROMOTE after RESUME", "no rewind",
		"the gate stays open", "silent too early", "PAUSE counts while it is off", "HOLDS stays", "OFF is late",
		"HOLDS is not looked at", "CLOSED too early", "twice after FALLEN_BACK", "the queue is not read after CLOSED",
		"no PAUSE from the shadow", "no doorbell for OFF"}[f]
}

// Messages. Those up to pPause are of the queue.
const (
	pData int8 = iota + 1
	pPromote
	pPause
	pMark
	pBack
)

// pMessage is a message: DATA's byte, PROMOTE's number, what MARK says, how many were consumed.
type pMessage struct {
	k, n             int8
	stands, returned bool
	off, closed      bool
	fell             int8 // 1 + where
}

const (
	pQueue = 10
	pWire  = 5
	pBytes = 6
)

// Phases of the sender and the receiver.
const (
	pShadow int8 = iota
	pCatchUp
	pDirect
	pPaused
	pFallenBack
	pReturning
	pOnTCP
)

// pWorld is the sender and its node, the receiver and its node, and what is between them.
type pWorld struct {
	queue            [pQueue]pMessage
	published, sent  int8
	tx, at           int8 // the sender's phase; the message from which it returns
	paused           int8 // messages up to the last PAUSE
	stands, returned bool
	off              bool
	switches         int8
	killed           bool // the sender's program
	consumed         int8 // that the sender's node has told it of
	saw              int8 // FALLEN_BACK of which it has told: 1 + where

	taken, promoted int8 // by the node; the number of the last PROMOTE
	lane            int8
	read, asleep    bool // the node has read the mark; it waits for the doorbell
	mark, told      pMessage
	quiet           int8
	free            bool

	wire, back [pWire]pMessage

	shadow      [pBytes]int8 // bytes of the shadow
	wrote, came int8

	put                int8 // by the receiver's node
	saysStands         bool
	saysReturned       bool
	saysOff            bool
	saysClosed         bool
	holds              bool // HOLDS
	gave, heard        int8 // what it has told the sender's node: consumed, FALLEN_BACK
	rx, before         int8
	rxTaken, start     int8 // messages; the one that is PROMOTE, or will be
	fell               int8
	given, carried, rd int8 // bytes that its program has; what PROMOTE said; bytes of the shadow
	due                int8
	lost, steadyThen   bool // a node was killed; what steady said then
	reset              bool // the receiver has reset the connection
	cuts, falls        int8
	kills, deaths      int8
}

type pModel struct {
	bytes, switches, cuts, falls int8
	kills, deaths                int8 // of a node, of the sender's program
	fault                        pFault
	wrong                        string
}

func (m *pModel) bad(format string, a ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, a...)
	}
}

func (m *pModel) start() pWorld {
	return pWorld{told: pMessage{k: pMark}, switches: m.switches, cuts: m.cuts, falls: m.falls, kills: m.kills, deaths: m.deaths}
}

func (w *pWorld) publish(k, n int8) {
	w.queue[w.published] = pMessage{k: k, n: n}
	w.published++
	w.asleep = false
}

// next returns what may come next.
func (m *pModel) next(w pWorld) (all []pWorld) {
	try := func(f func(v *pWorld) bool) {
		v := w
		if f(&v) && v != w {
			all = append(all, v)
		}
	}
	if w.reset {
		return nil
	}
	if !w.killed {
		try(m.look)
		try(m.send)
		try(m.stay)
		try(m.pause)
		try(m.stand)
	}
	if !w.lost {
		try(m.pump)
		try(m.hearForward)
		try(m.hearBack)
		try(m.giveBack)
	}
	try(m.pass)
	try(m.receive)
	if w.switches > 0 && w.tx != pReturning && !w.killed {
		try(func(v *pWorld) bool {
			v.switches--
			v.off = !v.off
			v.asleep = v.asleep && m.fault == pNoBell
			return true
		})
	}
	if w.deaths > 0 && w.published > 0 {
		try(func(v *pWorld) bool { v.deaths--; v.killed, v.asleep = true, false; return true })
	}
	if w.kills > 0 {
		for keep := range pWire + 1 {
			try(func(v *pWorld) bool { return m.kill(v, keep) })
		}
	}
	if w.lost {
		return all
	}
	if w.falls > 0 && w.rx <= pDirect && w.fell == 0 {
		try(func(v *pWorld) bool {
			v.falls--
			v.fell, v.before, v.rx = 1+v.rxTaken, v.rx, pFallenBack
			return true
		})
	}
	if w.cuts > 0 {
		for keep := range pWire + 1 { // the first messages on their way have come
			for keepBack := range pWire + 1 {
				try(func(v *pWorld) bool { return m.cut(v, keep, keepBack) })
			}
		}
	}
	return all
}

// look is what the sender does when it looks at what the receiver has said.
func (m *pModel) look(w *pWorld) bool {
	switch {
	case w.lost && w.tx == pDirect: // it resets the connection
		w.reset = true
	case w.lost && w.tx < pReturning:
		w.tx = pOnTCP
	case w.tx == pReturning:
		if w.at == w.published || w.queue[w.at].k == pPause {
			w.tx = pOnTCP
			return true
		}
		if b := w.queue[w.at]; b.k == pData {
			m.write(w, b.n)
		}
		w.at++
	case w.tx == pPaused && w.saw > 0 && w.saw-1 < w.paused: // it reads up to PAUSE
		w.tx = pOnTCP
	case (w.tx == pPaused || w.tx == pShadow) && w.saw > 0:
		w.returned, w.tx, w.asleep = true, pOnTCP, false
	case w.tx == pDirect && w.saw > 0:
		w.returned, w.tx, w.at, w.asleep = true, pReturning, w.saw-1, false
	case w.tx == pPaused && w.consumed >= w.paused:
		w.stands, w.tx = false, pShadow
	default:
		return false
	}
	return true
}

// write writes a byte to the shadow: a packet.
func (m *pModel) write(w *pWorld, b int8) {
	w.shadow[w.wrote] = b
	w.wrote++
	if w.came == w.wrote-1 && m.passes(w) {
		w.came++
	} else {
		w.asleep = false // the gate asks the node
	}
}

// passes reports whether a packet passes at once: Gate.
func (m *pModel) passes(w *pWorld) bool {
	return w.free || w.published <= w.quiet || w.lost || w.saysClosed
}

// send sends a byte, or promotes.
func (m *pModel) send(w *pWorld) bool {
	if w.sent == m.bytes && !(w.tx == pShadow && !w.off) || w.published >= pQueue-1 {
		return false
	}
	switch w.tx {
	case pShadow:
		if !w.off {
			if w.saw > 0 || w.lost { // it looks before
				return false
			}
			w.publish(pPromote, w.wrote)
			w.tx = pDirect
			return true
		}
		fallthrough
	case pPaused, pOnTCP:
		w.sent++
		m.write(w, w.sent)
	case pDirect:
		if w.saw > 0 || w.lost || w.queue[w.published-1].k == pPause { // it looks before
			return false
		}
		w.sent++
		w.publish(pData, w.sent)
	default:
		return false
	}
	return true
}

// stay is what a sender does that is on the shadow and switched off: it promotes for PAUSE alone,
// which follows.
func (m *pModel) stay(w *pWorld) bool {
	if w.tx != pShadow || !w.off || w.saw > 0 || w.lost || w.published >= pQueue-2 || m.fault == pNoStay {
		return false
	}
	w.publish(pPromote, w.wrote)
	w.tx = pDirect
	return true
}

// pause sends PAUSE; the sender looks for FALLEN_BACK after it, in stand.
func (m *pModel) pause(w *pWorld) bool {
	if w.tx != pDirect || !w.off || w.saw > 0 || w.queue[w.published-1].k == pPause {
		return false
	}
	w.publish(pPause, 0)
	return true
}

func (m *pModel) stand(w *pWorld) bool {
	if w.tx != pDirect || w.queue[w.published-1].k != pPause || w.saw > 0 {
		return false
	}
	w.tx, w.paused, w.stands, w.asleep = pPaused, w.published, true, false
	return true
}

// pump is Engine.pumpConn of the sender's node, in steps: it reads the mark, takes the messages,
// says the mark.
func (m *pModel) pump(w *pWorld) bool {
	mark := pMessage{k: pMark, stands: w.stands, returned: w.returned, off: w.off, closed: w.killed}
	switch {
	case w.asleep:
		return false
	case !w.read:
		w.read, w.mark = true, mark
		return true
	case w.taken < w.published:
		msg := w.queue[w.taken]
		if (w.lane == pDirect) == (msg.k == pPromote) {
			m.bad("the lane finds %d impossible", msg.k)
		}
		if w.mark.closed && m.fault == pClosedFirst {
			return push(w.wire[:], w.mark) && func() bool { w.taken = w.published; w.told = w.mark; return true }()
		}
		if msg.k == pPause && m.fault != pOffLate {
			msg.off = w.off
		}
		if !push(w.wire[:], msg) {
			return false
		}
		switch msg.k {
		case pPromote:
			w.lane, w.promoted = pDirect, w.taken
			if m.fault != pStands && m.fault != pOldMark {
				w.mark.stands, w.told.stands = false, false
			}
		case pPause:
			w.lane = pShadow
			w.mark.off, w.told.off = w.mark.off || msg.off, w.told.off || msg.off
		}
		w.taken++
		return true
	}
	if w.mark != w.told {
		if !push(w.wire[:], w.mark) {
			return false
		}
		w.told = w.mark
	} else if w.wire[0].k == 0 || m.fault == pShut { // all has come
		switch {
		case w.mark.returned, w.mark.stands && m.fault == pOpen:
			w.free = true
		case w.mark.stands && w.lane == pShadow:
			w.quiet = w.taken
		}
	}
	w.read, w.asleep = false, mark == w.told // it looks once more after it has armed
	return true
}

// pass lets a packet pass that is held, when all that was published before has come.
func (m *pModel) pass(w *pWorld) bool {
	if w.came == w.wrote {
		return false
	}
	if w.lost || w.saysClosed {
		w.came++
		return true
	}
	arrived := w.taken == w.published && w.wire[0].k == 0 && w.told.returned == w.returned && w.told.stands == w.stands
	if !arrived && !m.passes(w) {
		return false
	}
	w.came++
	return true
}

// hearForward is Engine.actOn of the receiver's node.
func (m *pModel) hearForward(w *pWorld) bool {
	msg := w.wire[0]
	if msg.k == 0 {
		return false
	}
	pop(w.wire[:])
	if msg.k == pMark {
		w.saysReturned = w.saysReturned || msg.returned
		w.saysStands = msg.stands || m.fault == pStands && w.saysStands
		w.saysOff, w.saysClosed = msg.off, w.saysClosed || msg.closed
		return true
	}
	if msg.k == pPause {
		w.saysOff, w.holds = w.saysOff || msg.off, true
		msg.off = false
	}
	if msg != w.queue[w.put] {
		m.bad("message %d comes in the place of %d", msg.k, w.queue[w.put].k)
	}
	if msg.k == pPromote && m.fault != pStands {
		w.saysStands = false
	}
	w.put++
	return true
}

// hearBack is Engine.actOn of the sender's node.
func (m *pModel) hearBack(w *pWorld) bool {
	msg := w.back[0]
	if msg.k == 0 {
		return false
	}
	pop(w.back[:])
	if msg.k == pMark {
		w.saw, w.asleep = msg.fell, false
	} else {
		w.consumed = max(w.consumed, msg.n)
	}
	return true
}

// giveBack is Engine.sendMarks and Engine.giveBack of the receiver's node.
func (m *pModel) giveBack(w *pWorld) bool {
	holds := w.put > 0 && w.queue[w.put-1].k == pPause && w.gave < w.put && w.rxTaken >= w.put
	if holds && w.holds && w.saysOff && m.fault != pTellsOff {
		holds = false
	}
	if holds && m.fault != pBackLate && (w.heard == w.fell || m.fault == pBackFirst) {
		if push(w.back[:], pMessage{k: pBack, n: w.rxTaken}) {
			w.gave, w.holds = w.rxTaken, m.fault == pHolds
			return true
		}
		return false
	}
	if w.heard != w.fell && push(w.back[:], pMessage{k: pMark, fell: w.fell}) {
		w.heard = w.fell
		return true
	}
	return false
}

// cut takes the link away, and brings it back: both nodes have said RESUME.
func (m *pModel) cut(w *pWorld, keep, keepBack int) bool {
	if keep > 0 && w.wire[keep-1].k == 0 || keepBack > 0 && w.back[keepBack-1].k == 0 {
		return false
	}
	w.cuts--
	for range keep {
		m.hearForward(w)
	}
	for range keepBack {
		m.hearBack(w)
	}
	clear(w.wire[:])
	clear(w.back[:])
	w.read, w.asleep, w.mark, w.told = false, false, pMessage{}, pMessage{} // no mark: the first one is said
	w.gave, w.heard = 0, 0
	if m.fault == pNoRewind {
		return true
	}
	switch w.put {
	case w.taken:
	case w.promoted:
		if w.lane = pShadow; m.fault == pRewind {
			w.lane = pDirect
		}
	default:
		w.lane = pDirect
	}
	w.taken = w.put
	return true
}

// kill has a node end. So many of the messages on their way have come.
func (m *pModel) kill(w *pWorld, keep int) bool {
	if keep > 0 && w.wire[keep-1].k == 0 {
		return false
	}
	steady := m.steady(w)
	w.kills--
	for range keep {
		m.hearForward(w)
	}
	clear(w.wire[:])
	clear(w.back[:])
	w.lost, w.steadyThen = true, steady
	return true
}

// steady reports whether the sender is off, and neither it nor a node has anything left to do.
func (m *pModel) steady(w *pWorld) bool {
	if !w.off || w.rxTaken != w.published {
		return false
	}
	for _, step := range []func(*pWorld) bool{m.look, m.stay, m.pause, m.stand, m.hearForward, m.hearBack, m.giveBack} {
		if v := *w; step(&v) {
			return false
		}
	}
	v := *w
	for range 3 { // as in rests
		m.pump(&v)
	}
	v.read, v.mark = w.read, w.mark
	return v == *w
}

// left is what a receiver does that has read its queue, and finds that the connection is over
// there.
func (m *pModel) left(w *pWorld, direct bool) bool {
	switch {
	case w.lost && (direct || !w.holds || m.fault == pNoHolds):
		w.reset = true
		if w.steadyThen {
			m.bad("a reset where nothing is under way")
		}
	case w.lost, w.saysClosed:
		w.rx = pOnTCP
	default:
		return false
	}
	return true
}

// take is a byte that the receiver's program gets.
func (m *pModel) take(w *pWorld, b int8) {
	if w.given++; b != w.given {
		m.bad("byte %d comes in the place of %d", b, w.given)
	}
}

// over is the first message from i on that is PAUSE, or put.
func (w *pWorld) over(i int8) int8 {
	for i < w.put && w.queue[i].k != pPause {
		i++
	}
	return i
}

// receive is a step of the receiver.
func (m *pModel) receive(w *pWorld) bool {
	var next pMessage
	if w.rxTaken < w.put {
		next = w.queue[w.rxTaken]
	}
	byTCP := func(limit int8) bool {
		if w.rd == min(limit, w.came) {
			return false
		}
		m.take(w, w.shadow[w.rd])
		w.rd++
		return true
	}
	switch w.rx {
	case pShadow:
		if next.k == pPromote {
			if w.carried = next.n; w.carried < w.rd {
				m.bad("PROMOTE says %d, and %d were read", w.carried, w.rd)
			}
			w.rxTaken++
			w.rx = pCatchUp
			return true
		}
		if (w.lost || w.saysClosed) && m.left(w, false) {
			return true
		}
		return byTCP(w.came)
	case pCatchUp:
		if w.rd == w.carried {
			w.rx = pDirect
			return true
		}
		return byTCP(w.carried)
	case pDirect:
		if w.saysClosed && m.fault == pLeaves {
			w.rx = pOnTCP
			return true
		}
		switch next.k {
		case 0:
			return m.left(w, true)
		case pData:
			m.take(w, next.n)
			w.rxTaken++
			return true
		case pPause:
			w.rxTaken++
			if w.rx = pShadow; w.fell > 0 { // it takes PAUSE for DEMOTE
				w.rx = pOnTCP
				w.reset = w.lost && !w.saysStands && m.fault != pNoReset
			}
			w.start = w.rxTaken
			return true
		case pPromote:
			m.bad("PROMOTE where it is direct")
		}
	case pFallenBack:
		switch end := w.over(w.rxTaken); {
		case w.saysReturned:
			w.due = w.carried
			switch p := w.fell - 1; {
			case w.before != pShadow:
			case p < w.put && w.queue[p].k == pPromote:
				w.due = w.queue[p].n
			default:
				w.due = 0
			}
			if w.due > 0 || w.before != pShadow || w.fell-1 < w.put {
				for i := w.fell - 1; i < w.over(w.fell-1); i++ {
					if w.queue[i].k == pData {
						w.due++
					}
				}
			}
			w.rx = pOnTCP
			return true
		case end < w.put && w.saysStands, w.lost:
			w.rx = w.before
			return true
		}
	case pOnTCP:
		return byTCP(w.came)
	}
	return false
}

// short is a world in one line.
func (w *pWorld) short() string {
	list := func(all []pMessage) (s string) {
		for _, msg := range all {
			if msg.k > 0 {
				s += fmt.Sprintf(" %c%d", " dPpmb"[msg.k], msg.n+msg.fell)
			}
			if msg.stands {
				s += "S"
			}
			if msg.returned {
				s += "R"
			}
			if msg.off {
				s += "O"
			}
			if msg.closed {
				s += "C"
			}
		}
		return s
	}
	return fmt.Sprintf("lost %v killed %v holds %v saysOff %v | ", w.lost, w.killed, w.holds, w.saysOff) + fmt.Sprintf("tx %d off %v stands %v returned %v saw %d consumed %d queue%s | lane %d taken %d read %v quiet %d | wire%s back%s | shadow %d of %d | put %d stands %v returned %v gave %d | rx %d taken %d fell %d given %d rd %d", w.tx, w.off, w.stands, w.returned, w.saw, w.consumed, list(w.queue[:]), w.lane, w.taken, w.read, w.quiet, list(w.wire[:]), list(w.back[:]), w.came, w.wrote, w.put, w.saysStands, w.saysReturned, w.gave, w.rx, w.rxTaken, w.fell, w.given, w.rd)
}

// idle reports what is wrong where nothing more happens.
func (m *pModel) idle(w *pWorld) string {
	switch {
	case w.reset:
	case w.given != w.sent:
		return fmt.Sprintf("the receiver waits for ever with %d of %d bytes: tx %d, rx %d", w.given, w.sent, w.tx, w.rx)
	case !w.off && w.fell == 0 && !w.lost && !w.killed && (w.tx != pDirect || w.rx != pDirect):
		return fmt.Sprintf("the direction is not direct again: tx %d, rx %d", w.tx, w.rx)
	}
	return ""
}

func (m *pModel) explore(limit int) (wrong string, states int) {
	r := explore.Some(limit, func(w pWorld) ([]pWorld, string) {
		m.wrong = ""
		next := m.next(w)
		if m.wrong == "" && m.rests(w, next) {
			m.wrong = m.idle(&w)
		}
		return next, m.wrong
	}, m.start())
	if m.fault == pFine && r.Wrong != "" {
		way, _ := r.Trace()
		for _, w := range way {
			r.Wrong += "\n" + w.short()
		}
	}
	return r.Wrong, r.States
}

// rests reports whether only the operator, the link and the node's own looks may change a world.
func (m *pModel) rests(w pWorld, next []pWorld) bool {
	pumped := w
	for range 3 { // it reads the mark, and does what there is to do
		if !w.lost {
			m.pump(&pumped)
		}
	}
	for _, v := range append(next, pumped) {
		v.read, v.mark = w.read, w.mark
		if v.switches == w.switches && v.cuts == w.cuts && v.falls == w.falls && v.kills == w.kills && v.deaths == w.deaths && v != w {
			return false
		}
	}
	return true
}

var pauseModels = []pModel{ // the small ones first
	{bytes: 3, switches: 2},
	{bytes: 2, switches: 2, deaths: 1},
	{bytes: 2, switches: 2, cuts: 1},
	{bytes: 1, switches: 3, kills: 1},
	{bytes: 1, switches: 2, cuts: 1, deaths: 1},
	{bytes: 1, switches: 2, falls: 1, kills: 1},
	{bytes: 1, switches: 2, falls: 1, cuts: 1},
	{bytes: 2, switches: 4},
	{bytes: 3, switches: 2, falls: 1},
	{bytes: 2, switches: 3, falls: 1},
}

// Whatever is lost or late at whatever step, each byte comes once, and the direction is direct
// again when it is switched on.
func TestPauseModel(t *testing.T) {
	racetest.SkipModel(t)
	const most = 3_000_000
	for _, m := range pauseModels {
		wrong, states := m.explore(most)
		t.Logf("%d bytes, %d switches, %d cuts, %d falls, %d nodes and %d programs killed: %d states", m.bytes, m.switches, m.cuts, m.falls, m.kills, m.deaths, states)
		if states >= most {
			t.Errorf("not all of %d states", states)
		}
		if wrong != "" {
			t.Errorf("%d bytes, %d switches, %d cuts, %d falls, %d nodes and %d programs killed: %s", m.bytes, m.switches, m.cuts, m.falls, m.kills, m.deaths, wrong)
		}
	}
}

// Each mistake is found, in the model that finds it soonest.
func TestPauseModelFindsFaults(t *testing.T) {
	racetest.SkipModel(t)
	soonest := map[pFault]pModel{
		pStands:      {bytes: 2, switches: 3, falls: 1},
		pOldMark:     {bytes: 2, switches: 3, falls: 1},
		pBackFirst:   {bytes: 1, switches: 2, falls: 1, kills: 1},
		pBackLate:    {bytes: 3, switches: 2},
		pRewind:      {bytes: 2, switches: 2, cuts: 1},
		pNoRewind:    {bytes: 2, switches: 2, cuts: 1},
		pClosedFirst: {bytes: 2, switches: 2, deaths: 1},
		pNoReset:     {bytes: 1, switches: 2, falls: 1, kills: 1},
		pLeaves:      {bytes: 2, switches: 2, deaths: 1},
	}
	for f := pFine + 1; f < pFaults; f++ {
		m, ok := soonest[f]
		if !ok {
			m = pModel{bytes: 1, switches: 3, kills: 1}
		}
		m.fault = f
		found, _ := m.explore(1_000_000)
		t.Logf("%v: %s", f, found)
		if found == "" {
			t.Errorf("%v is not found", f)
		}
	}
}
