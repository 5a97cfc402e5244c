package relay

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"exnet/directsockets/segment"
)

// lifeState is where a connection is in its life. Only on, in this file, changes it, by the table
// lifeNext, which SPEC.md (5.9) has as well. Any code of the poll list's owner may read it.
//
//	new ─▶ calling ───────────────────┐
//	                                  ├─▶ up ─▶ leaving ─▶ over
//	offered ─▶ attached ── heard ─────┘   │        │
//	               └──────────────────────┴────────┴─ the session ends ─▶ cut
//
//	cut ─┬─ RESUME was sent ───▶ resuming ── RESUME has come ──▶ up
//	     └─ RESUME has come ─▶ answering ── RESUME was sent ──▶ up
//
//	up ── this node ends ────▶ ending ── PART was sent ──▶ ended ── PART has come ──▶ finished ── BYE has come ──▶ over
//	 └─── PART has come ───▶ yielding ── PART was sent ──▶ yielded ── BYE has come ──▶ over
type lifeState uint8

const (
	// stateNone: nobody knows of it yet.
	stateNone lifeState = iota
	// stateNew: the program here is the client, and OPEN is to be sent. The client sends nothing in
	// the segment before it hears that the server has attached.
	stateNew
	// stateCalling: OPEN was sent, and the server's program has not attached, as far as is known
	// here.
	stateCalling
	// stateOffered: the program here is the server, and its node has not seen it attach. It may
	// have.
	stateOffered
	// stateAttached: the server has attached, the client's node was told, and has said nothing. So
	// the client may never hear of it, and the server sends nothing in the segment yet.
	stateAttached
	// stateUp: messages go both ways.
	stateUp
	// stateLeaving: the program here has closed, all that it sent was sent on, and so was CLOSED.
	// What comes for it is thrown away.
	stateLeaving
	// stateCut: the session is over. What was under way is lost, or not; it all is in the segments.
	// Nothing is taken from the program, and nothing for it is taken from the peer.
	stateCut
	// stateResuming: the same, and the peer was told where to go on.
	stateResuming
	// stateAnswering: the same, the peer has said where to go on, and is to be told.
	stateAnswering
	// stateEnding: this node is about to end. The program here is to go back to TCP, what it has
	// sent before is sent on, and PART is to be sent after that.
	stateEnding
	// stateEnded: PART was sent. What the far program has sent still comes.
	stateEnded
	// stateFinished: PART was sent, and has come: all of the far program is here. BYE was said, and
	// is to come: then all of the program here is there.
	stateFinished
	// stateFinishedCut: the same, and the session is over. The far node has had BYE, and has the
	// connection no more, or has it, and goes on with it.
	stateFinishedCut
	// stateFinishedResuming: the same, and the peer was told where to go on.
	stateFinishedResuming
	// stateYielding: PART has come, so the far node is about to end. The rest is as in stateEnding.
	stateYielding
	// stateYielded: PART has come, and was sent. The far node has not said that it has all.
	stateYielded
	// stateOver: it is in no table any more, and its memory is being given back.
	stateOver

	lifeStates
)

// lifeEvent is what brings a connection from one state to the next.
type lifeEvent uint8

const (
	onOffer      lifeEvent = iota // a program here offers it to one on another host
	onOpen                        // OPEN has come
	onCalled                      // OPEN was sent
	onWithdrawn                   // the client has taken its offer back
	onAttached                    // ATTACHED has come, and the client was told
	onRefused                     // DROP has come: the server takes no such segment
	onTaken                       // the server has attached, and ATTACHED was sent
	onDeclined                    // the server refuses it, or nobody takes it; DROP was sent
	onHeard                       // the client has attached: JOINED has come, or a message of it
	onClosed                      // the program here has closed, and CLOSED was sent
	onPeerClosed                  // CLOSED has come, and BYE was sent
	onPeerReset                   // the same, and the far program has closed abortively
	onBye                         // BYE has come
	onDropped                     // DROP has come: the peer has no such connection
	onLost                        // the session is over
	onShunned                     // the peer has refused a PUT: it has ended the connection or the session, and is about to say so
	onTold                        // RESUME was sent
	onResume                      // RESUME has come
	onGone                        // the far node has ended, or was away for too long
	onBroken                      // an end has broken the protocol, or this node ends
	onEnd                         // this node is about to end, and lets the programs go back to TCP
	onPart                        // PART has come
	onParted                      // PART was sent

	lifeEvents
)

// lifeAct is what a step does beside the change of the state.
type lifeAct uint8

const (
	actNone     lifeAct = iota
	actSuspend          // forgets what is under way
	actLeave            // ends it: the client may offer the segment and the doorbell again
	actClose            // ends it: the program finds that its peer has closed
	actReset            // ends it: the program gets a reset
	actRefuse           // ends it: the client's offer is refused for good
	actDrop             // actClose if the client has not attached, else actReset
	actBye              // says BYE: all that the far program has sent is here
	actByeClose         // actBye, then actClose
)

// lifeStep is a step of a connection's life. The zero step cannot be.
type lifeStep struct {
	to  lifeState
	act lifeAct
}

// lifeNext has the step of each event in each state. An event that cannot be changes nothing: on
// says so, and its caller decides what that means.
var lifeNext = [lifeStates][lifeEvents]lifeStep{
	stateNone: {
		onOffer: {stateNew, actNone},
		onOpen:  {stateOffered, actNone},
	},
	stateNew: {
		onCalled:    {stateCalling, actNone},
		onWithdrawn: {stateOver, actLeave},
		onLost:      {stateOver, actLeave},
		onGone:      {stateOver, actLeave},
		onBroken:    {stateOver, actLeave},
	},
	stateCalling: {
		onAttached:  {stateUp, actNone},
		onWithdrawn: {stateOver, actLeave},
		onRefused:   {stateOver, actRefuse},
		onDropped:   {stateOver, actLeave},
		onLost:      {stateOver, actLeave},
		onGone:      {stateOver, actLeave},
		onBroken:    {stateOver, actLeave},
	},
	stateOffered: {
		onTaken:    {stateAttached, actNone},
		onDeclined: {stateOver, actClose},
		onDropped:  {stateOver, actClose},
		onLost:     {stateOver, actClose},
		onGone:     {stateOver, actClose},
		onBroken:   {stateOver, actClose},
	},
	stateAttached: {
		onHeard:   {stateUp, actNone},
		onClosed:  {stateLeaving, actNone},
		onDropped: {stateOver, actClose},
		onLost:    {stateCut, actSuspend},
		onResume:  {stateAnswering, actSuspend},
		onGone:    {stateOver, actReset},
		onBroken:  {stateOver, actReset},
		onEnd:     {stateEnding, actNone},
	},
	stateUp: {
		onClosed:     {stateLeaving, actNone},
		onPeerClosed: {stateOver, actClose},
		onPeerReset:  {stateOver, actReset},
		onDropped:    {stateOver, actReset},
		onLost:       {stateCut, actSuspend},
		onShunned:    {stateCut, actSuspend},
		onResume:     {stateAnswering, actSuspend},
		onGone:       {stateOver, actReset},
		onBroken:     {stateOver, actReset},
		onEnd:        {stateEnding, actNone},
		onPart:       {stateYielding, actNone},
	},
	stateEnding: {
		onClosed:     {stateLeaving, actNone},
		onPeerClosed: {stateOver, actClose},
		onPeerReset:  {stateOver, actReset},
		onDropped:    {stateOver, actReset},
		onLost:       {stateCut, actSuspend},
		onResume:     {stateAnswering, actSuspend},
		onShunned:    {stateCut, actSuspend},
		onGone:       {stateOver, actReset},
		onBroken:     {stateOver, actReset},
		onPart:       {stateYielding, actNone},
		onParted:     {stateEnded, actNone},
	},
	stateEnded: {
		onPeerClosed: {stateOver, actClose},
		onPeerReset:  {stateOver, actReset},
		onDropped:    {stateOver, actReset},
		onLost:       {stateCut, actSuspend},
		onResume:     {stateAnswering, actSuspend},
		onShunned:    {stateCut, actSuspend},
		onGone:       {stateOver, actReset},
		onBroken:     {stateOver, actReset},
		onPart:       {stateFinished, actBye},
	},
	stateFinished: {
		onBye:     {stateOver, actClose},
		onDropped: {stateOver, actClose},
		onLost:    {stateFinishedCut, actSuspend},
		onShunned: {stateFinishedCut, actSuspend},
		onResume:  {stateAnswering, actSuspend},
		onGone:    {stateOver, actClose},
		onBroken:  {stateOver, actReset},
	},
	stateFinishedCut: {
		onBye:     {stateOver, actClose},
		onDropped: {stateOver, actClose},
		onLost:    {stateFinishedCut, actNone},
		onTold:    {stateFinishedResuming, actNone},
		onResume:  {stateAnswering, actNone},
		onGone:    {stateOver, actClose},
		onBroken:  {stateOver, actReset},
	},
	stateFinishedResuming: {
		onDropped: {stateOver, actClose},
		onLost:    {stateFinishedCut, actSuspend},
		onResume:  {stateUp, actNone},
		onGone:    {stateOver, actClose},
		onBroken:  {stateOver, actReset},
	},
	stateYielding: {
		onClosed:  {stateLeaving, actNone},
		onDropped: {stateOver, actReset},
		onLost:    {stateCut, actSuspend},
		onResume:  {stateAnswering, actSuspend},
		onShunned: {stateCut, actSuspend},
		onGone:    {stateOver, actReset},
		onBroken:  {stateOver, actReset},
		onParted:  {stateYielded, actNone},
	},
	stateYielded: {
		onBye:     {stateOver, actByeClose},
		onDropped: {stateOver, actReset},
		onLost:    {stateCut, actSuspend},
		onShunned: {stateCut, actSuspend},
		onResume:  {stateAnswering, actSuspend},
		onGone:    {stateOver, actReset},
		onBroken:  {stateOver, actReset},
	},
	stateLeaving: {
		onPeerClosed: {stateOver, actClose},
		onPeerReset:  {stateOver, actClose},
		onBye:        {stateOver, actClose},
		onDropped:    {stateOver, actClose},
		onLost:       {stateCut, actSuspend},
		onShunned:    {stateCut, actSuspend},
		onResume:     {stateAnswering, actSuspend},
		onGone:       {stateOver, actClose},
		onBroken:     {stateOver, actReset},
	},
	stateCut: {
		onBye:     {stateOver, actClose},
		onDropped: {stateOver, actDrop},
		onLost:    {stateCut, actNone},
		onTold:    {stateResuming, actNone},
		onResume:  {stateAnswering, actNone},
		onGone:    {stateOver, actReset},
		onBroken:  {stateOver, actReset},
	},
	stateResuming: {
		onDropped: {stateOver, actDrop},
		onLost:    {stateCut, actSuspend},
		onResume:  {stateUp, actNone},
		onGone:    {stateOver, actReset},
		onBroken:  {stateOver, actReset},
	},
	stateAnswering: {
		onDropped: {stateOver, actReset},
		onLost:    {stateCut, actSuspend},
		onTold:    {stateUp, actNone},
		onResume:  {stateAnswering, actNone},
		onGone:    {stateOver, actReset},
		onBroken:  {stateOver, actReset},
	},
}

// on brings a connection to its next state. False: the event cannot be, and nothing has changed.
func (e *Engine) on(c *conn, ev lifeEvent) bool {
	step := lifeNext[c.state][ev]
	if step.to == stateNone {
		return false
	}
	if e.cfg.stepping != nil {
		e.cfg.stepping(c, ev)
	}
	if step.act == actDrop {
		if step.act = actReset; c.relay.Alone() {
			step.act = actClose
		}
	}
	// A program of an older library may have sent before the client has attached: that is lost.
	if step.act == actClose && c.relay.Alone() && !c.relay.Silent() {
		step.act = actReset
	}
	if ev == onHeard || ev == onResume {
		c.relay.Join()
	}
	// The program has sent what may be lost, and is told so.
	if step.act == actReset && (ev == onDropped || ev == onGone) {
		if m, err := c.relay.Mark(); err == nil && !m.Has(segment.MarkClosed) {
			e.stats.Lost.Add(1)
		}
	}
	if isSuspended(step.to) && !isSuspended(c.state) {
		owing := c.mayOwe()
		if c.owes = (time.Time{}); owing {
			c.owes = time.Now()
		}
		c.gate.stop()
		e.watchSuspended()
	}
	if step.to == stateUp && isSuspended(c.state) {
		c.cutIn = nil
		e.stats.Resumed.Add(1)
	}
	if c.state = step.to; c.state == stateAttached || c.state == stateUp {
		c.gate.start(c.node.port)
	}
	switch step.act {
	case actNone:
	case actSuspend:
		e.suspendConn(c)
	case actRefuse:
		c.relay.Refuse()
		e.endConn(c, actClose)
	case actBye:
		e.sendBye(c)
	case actByeClose:
		e.sendBye(c)
		e.endConn(c, actClose)
	default:
		e.endConn(c, step.act)
	}
	return true
}

// isSuspended reports whether the two nodes do not know, or have not told each other, what of a
// connection has come.
func isSuspended(s lifeState) bool {
	return isCut(s) || s == stateResuming || s == stateFinishedResuming || s == stateAnswering
}

// isCut reports whether a connection's session is over, and nothing of another was said or heard.
func isCut(s lifeState) bool { return s == stateCut || s == stateFinishedCut }

// isCarrying reports whether messages of the program here are taken, and those of the far one.
func (c *conn) isCarrying() bool {
	return c.state == stateAttached || c.state == stateUp || c.isParting()
}

// isListening reports whether what the peer says for a connection is taken. After PART only BYE is.
func isListening(s lifeState) bool {
	return s == stateAttached || s == stateUp || s == stateLeaving || s == stateEnding || s == stateEnded
}

// isParting reports whether the program here is to go back to TCP, as a node is about to end.
func (c *conn) isParting() bool { return c.state == stateEnding || c.state == stateYielding }

// nothingTold is no Mark: the first one is said, also if it only takes back what was said before.
var nothingTold = segment.Mark{Flags: ^segment.MarkFlags(0)}

// suspendConn forgets what is under way or waits for a connection: it is still in the segments,
// and is sent again after RESUME.
func (e *Engine) suspendConn(c *conn) {
	c.cutIn = c.node
	e.forgetTransfers(c)
	c.told, c.gave = nothingTold, back{} // both are said again
	c.events++                           // so that what the gate holds asks again
	c.before, c.asked = 0, 0
	c.fences++
}

// forgetTransfers forgets PUTs under way and messages that wait, on either way.
func (e *Engine) forgetTransfers(c *conn) {
	c.epoch++
	for _, en := range c.queue {
		if !en.isMoving() {
			e.recycleEntry(en)
		}
	}
	c.queue, c.joining, c.blocked, c.due = nil, nil, false, false
	c.held, c.heldLen = nil, 0
	if b := e.channelOf(c.node, c.device); b.awaited[c.awaits] == c {
		delete(b.awaited, c.awaits)
	}
}

// retry is the time between two checks of suspended connections, and of those that have sent what
// may not have arrived.
const retry = 250 * time.Millisecond

// endPatience is how long a connection waits for its link when this node is about to end.
const endPatience = 2 * time.Second

// hasWaitedTooLong reports whether a suspended connection has waited for its link for as long as
// TCP waits for an acknowledgement, which the program may set (TCP_USER_TIMEOUT). Like TCP, it
// waits for ever while nothing is under way. A program that has closed gets no error any more:
// what it has sent is kept until the far node has given up, so that the far program cannot read
// an end of file in its place.
func (e *Engine) hasWaitedTooLong(c *conn, patience func() time.Duration) bool {
	m, err := c.relay.Mark()
	if err != nil {
		return true
	}
	closed := m.Has(segment.MarkClosed)
	if c.owes.IsZero() && (closed || c.relay.Waiting() || e.ends) {
		c.owes = time.Now()
	}
	var limit time.Duration
	switch d := c.relay.UserTimeout(); {
	case c.owes.IsZero():
		return false
	case e.ends:
		limit = min(patience(), endPatience)
	case closed:
		limit = 2 * max(patience(), defaultPatience) // the far node may have the default
	case d > 0:
		limit = d
	default:
		limit = patience()
	}
	return time.Since(c.owes) > limit
}

// tellLost tells the peer that a connection is reset here. If the peer does not hear it, since the
// link is away, it hears it when it wants to go on: it may not conclude then that the program has
// never attached.
func (e *Engine) tellLost(c *conn) {
	if c.far == 0 {
		return
	}
	if c.node.port != nil {
		e.postDrop(c.node, c.device, tagLost, c.far)
	}
	now := time.Now()
	if len(e.given) >= mostGiven {
		maps.DeleteFunc(e.given, func(_ givenKey, at time.Time) bool { return now.Sub(at) > givenTime })
	}
	if len(e.given) < mostGiven {
		e.given[givenKey{c.id, c.key}] = now
	}
}

// givenKey names a connection that was reset here, as its peer does.
type givenKey struct{ id, key uint32 }

// Connections that were reset here are remembered for givenTime, and for longer as long as they are
// less than mostGiven.
const (
	mostGiven = 1 << 14
	givenTime = time.Hour
)

// watchSuspended has these connections, and sessions whose HELLO was not answered, checked again
// until there are none.
func (e *Engine) watchSuspended() {
	if !e.watches {
		e.watches = true
		time.AfterFunc(retry, func() { _ = e.doLater(e.lookAgain) }) // closed: all are over
	}
}

// lookAgain looks whether suspended connections can go on, and ends those that have waited for too
// long. It asks whether all has arrived of the others.
func (e *Engine) lookAgain() {
	e.watches = false
	e.greetUnanswered()
	patience := sync.OnceValue(e.cfg.Patience)
	for _, c := range e.conns {
		if !isSuspended(c.state) {
			e.confirmArrival(c)
			continue
		}
		if e.hasWaitedTooLong(c, patience) {
			e.tellLost(c)
			if !e.ends {
				c.relay.Late()
			}
			e.on(c, onGone)
			continue
		}
		e.watchSuspended()
		e.findLink(c.node)
		e.activateConn(c)
	}
}

// sendResume tells the peer where a suspended connection is to go on, if that can be said now.
func (e *Engine) sendResume(c *conn) {
	n := c.node
	if n.port == nil || n.down || isCut(c.state) && c.cutIn == n { // that peer is about to say why
		return
	}
	// Nothing of former sessions comes into the ring any more. A transfer that runs still is waited
	// for.
	nla, err := c.in.Lend(n.id)
	if err != nil {
		return
	}
	r := resume{id: c.far, key: c.farKey, from: c.id, number: c.resumes + 1, got: c.got, nla: nla}
	r.messages, r.advances = c.relay.Position()
	var p [resumeLen]byte
	if e.postClass(n, c.device, c.class, kindStage, tagResume, r.append(p[:0])) != nil {
		e.blockConn(c)
		return
	}
	c.resumes++
	e.lendPlaces(n, c.device)
	e.on(c, onTold)
	if c.state == stateUp {
		e.activateConn(c)
	}
}

// takeResume takes a RESUME, which says where a connection goes on.
func (e *Engine) takeResume(n *node, box int, r resume) {
	c := e.conns[r.id]
	if c == nil || c.node != n || c.device != box || c.key != r.key || c.far != r.from {
		why := uint8(tagGone)
		if _, lost := e.given[givenKey{r.id, r.key}]; lost {
			why = tagLost
		}
		e.postDrop(n, box, why, r.from)
		return
	}
	if r.number <= c.heardResume { // it was said before
		return
	}
	if !e.on(c, onResume) {
		e.failConn(c, fmt.Errorf("%w: RESUME in state %v", errPeer, c.state))
		return
	}
	c.heardResume = r.number
	again, err := c.relay.Rewind(r.messages, r.advances)
	if err == nil && r.got > c.said {
		err = fmt.Errorf("%w: %d messages have come of %d", errPeer, r.got, c.said)
	}
	if err != nil {
		if !errors.Is(err, segment.ErrCorrupt) {
			err = fmt.Errorf("%w: %w", errPeer, err)
		}
		e.failConn(c, err)
		return
	}
	c.wentOut -= again
	c.said, c.remote = r.got, r.nla
	e.activateConn(c)
}

func (s lifeState) String() string {
	return [...]string{"none", "new", "calling", "offered", "attached", "up", "leaving", "cut", "resuming", "answering", "ending", "ended", "finished", "finished-cut", "finished-resuming", "yielding", "yielded", "over"}[s]
}

func (e lifeEvent) String() string {
	return [...]string{"offer", "open", "called", "withdrawn", "attached", "refused", "taken", "declined", "heard", "closed",
		"peer-closed", "peer-reset", "bye", "dropped", "lost", "shunned", "told", "resume", "gone", "broken", "end", "part", "parted"}[e]
}

func (a lifeAct) String() string {
	return [...]string{"-", "suspend", "leave", "close", "reset", "refuse", "close or reset", "bye", "bye and close"}[a]
}
