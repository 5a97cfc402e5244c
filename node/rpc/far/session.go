package far

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"exnet/fabric"
)

// A session is what two Engines have said to each other, and how far each has heard it. It
// outlives the link: what the other Engine has not acknowledged is sent once more on the next
// one.
//
// Only enter writes the state, and transitions has what it may become:
//
//	greeting   this end has said who it is, and waits to hear that the other end knows it. Messages
//	           wait.
//	up         the other end knows this one. Messages are sent as they come.
//	away       there is no link. Messages wait, for Config.Resume at most.
//	over       the end: the other Engine is a new one, or was away or silent for too long, or one of
//	           both was closed. Messages that wait are lost, and the owner of the Engine is told.
//
// Concurrency: the Engine's mu guards all fields.
type session struct {
	node         fabric.NodeID
	number       uint64 // among those of this Engine, for its owner; it does not change
	state        state
	mine, theirs uint64 // random: the two ends of the session; theirs is 0 until it is known

	// What is sent: sentTo is the number of the last message that was sent on this link.
	waiting [][]byte // not acknowledged: messages acked+1 and so on
	bytes   int      // in waiting
	acked   uint32
	sentTo  uint32

	// What is heard: the number of the last message, the one that the other end knows, and the
	// one after which it was asked to send what is missing.
	heard, told, asked uint32
	size               int // bytes heard since told

	link     uint64    // of the node, by Engine.links
	patience patience  // of greeting and away
	since    time.Time // of up: when it began
}

type state uint8

const (
	stateGreeting state = iota
	stateUp
	stateAway
	stateOver
)

func (s state) String() string { return [...]string{"greeting", "up", "away", "over"}[s] }

// event is what changes a session.
type event uint8

const (
	eventLinked    event = iota // there is a link
	eventUnlinked               // and there is none any more
	eventKnown                  // the other end has said that it knows this one
	eventOther                  // it is not
	eventLate                   // it has said nothing for too long
	eventLeft                   // its node has said that it leaves the fabric
	eventClosed                 // this Engine is closed
	eventAbandoned              // the owner of this Engine has ended it
)

func (e event) String() string {
	return [...]string{"linked", "unlinked", "known", "other", "late", "left", "closed", "abandoned"}[e]
}

// transitions has each state's successors. An event that a state does not have changes nothing.
var transitions = [...]map[event]state{
	stateGreeting: {eventLinked: stateGreeting, eventUnlinked: stateAway, eventKnown: stateUp, eventOther: stateOver, eventLate: stateOver, eventClosed: stateOver, eventAbandoned: stateOver},
	stateUp:       {eventLinked: stateGreeting, eventUnlinked: stateAway, eventKnown: stateUp, eventOther: stateOver, eventLate: stateOver, eventClosed: stateOver, eventAbandoned: stateOver},
	stateAway:     {eventLinked: stateGreeting, eventKnown: stateUp, eventOther: stateOver, eventLate: stateOver, eventLeft: stateOver, eventClosed: stateOver, eventAbandoned: stateOver},
	stateOver:     {},
}

const (
	// waitingBytes is how much may wait for a node's acknowledgement: beyond that Send waits,
	// too.
	waitingBytes = 8 << 20
	// ackMessages and ackBytes are after how much an acknowledgement is sent.
	ackMessages, ackBytes = 32, 64 << 10
)

// Controls are messages of one piece between Engines: kind, flags, 2 bytes reserved, how many
// messages were heard (32 bits), the sender's end of the session, and the receiver's as the
// sender knows it (64 bits each).
const (
	controlSize = 24

	kindHello = 1
	kindAck   = 2
	kindBye   = 3

	flagAsk = 1 // of a hello: it wants one in return
)

type control struct {
	kind, flags uint8
	heard       uint32
	mine, yours uint64
}

func (c control) bytes() []byte {
	b := make([]byte, controlSize)
	b[0], b[1] = c.kind, c.flags
	binary.LittleEndian.PutUint32(b[4:], c.heard)
	binary.LittleEndian.PutUint64(b[8:], c.mine)
	binary.LittleEndian.PutUint64(b[16:], c.yours)
	return b
}

func readControl(b []byte) (c control, ok bool) {
	if len(b) != controlSize {
		return c, false
	}
	return control{b[0], b[1], binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])}, true
}

// newSessionLocked begins a session with a node.
//
// +checklocks:e.mu
func (e *Engine) newSessionLocked(n fabric.NodeID) *session {
	e.begun++
	s := &session{node: n, number: e.begun, mine: rand.Uint64() | 1, link: e.links[n]}
	s.patience.timer = time.AfterFunc(e.stall, func() { e.expireSession(s) })
	s.patience.beginWait(e.stall)
	e.sessions[n] = s
	return s
}

// applyEvent does what an event does to a session. It returns whether the session is over by it:
// then the caller calls e.over without the lock.
//
// +checklocks:e.mu
func (e *Engine) applyEvent(s *session, ev event) (ended bool) {
	to, ok := transitions[s.state][ev]
	if !ok {
		return false
	}
	from := s.state
	s.state = to
	switch to {
	case stateGreeting:
		s.patience.beginWait(e.stall)
	case stateUp:
		if s.patience.end(); from != stateUp {
			s.since = time.Now()
		}
	case stateAway:
		s.patience.beginWait(e.resume)
	case stateOver:
		s.patience.end()
		s.waiting, s.bytes = nil, 0
		if e.sessions[s.node] == s {
			delete(e.sessions, s.node)
		}
	}
	e.credit.Broadcast()
	return to == stateOver
}

// expireSession ends a session that has waited for too long.
func (e *Engine) expireSession(s *session) {
	e.mu.Lock()
	waits := s.state == stateGreeting || s.state == stateAway // else it became another state just then
	if !waits || !s.patience.endPart() {
		e.mu.Unlock()
		return
	}
	if s.state == stateGreeting {
		e.stalled[s.node] = time.Now().Add(e.stall)
	}
	ended := e.giveUpLocked(s, eventLate)
	e.mu.Unlock()
	if ended {
		e.ended(s.node, s.number)
	}
}

// Abandon ends a session with a node of which its owner can make nothing any more. The other end
// learns it as soon as it says something.
func (e *Engine) Abandon(n fabric.NodeID, session uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[n]; s != nil && s.number == session {
		e.giveUpLocked(s, eventAbandoned)
	}
}

// giveUpLocked ends a session that the other end may take for one that goes on. It returns what
// enter does.
//
// +checklocks:e.mu
func (e *Engine) giveUpLocked(s *session, why event) (ended bool) {
	if ended = e.applyEvent(s, why); ended {
		e.givenUp[s.node] = struct{}{}
	}
	return ended
}

// greetNode begins a session with a node that may not know that the last one is over: its
// messages would be heard by nobody, and it would wait for ever.
func (e *Engine) greetNode(n fabric.NodeID) {
	e.mu.Lock()
	if e.closed || e.sessions[n] != nil {
		e.mu.Unlock()
		return
	}
	hello := e.newSessionLocked(n).helloLocked(flagAsk)
	e.mu.Unlock()
	_ = e.sendControl(n, hello) // without a link, the next one does
}

// helloLocked is what this end says of itself.
// The lock of the Engine is held.
func (s *session) helloLocked(flags uint8) control {
	s.told, s.size = s.heard, 0
	return control{kindHello, flags, s.heard, s.mine, s.theirs}
}

// Linked reports a link to a node; the function that it returns reports that link's end.
func (e *Engine) Linked(n fabric.NodeID) (down func()) {
	e.mu.Lock()
	e.links[n]++
	link := e.links[n]
	s := e.sessions[n]
	var hello control
	if s != nil {
		s.link = link
		e.applyEvent(s, eventLinked)
		hello = s.helloLocked(flagAsk)
	}
	e.mu.Unlock()
	if s != nil {
		_ = e.sendControl(n, hello) // without a link, the next one does
	}
	return func() {
		e.mu.Lock()
		s := e.sessions[n]
		ended := s != nil && s.link == link && (e.applyEvent(s, eventUnlinked) || e.resume == 0 && e.applyEvent(s, eventLate))
		e.mu.Unlock()
		if ended {
			e.ended(n, s.number)
		}
	}
}

// Left reports that a node has said that it leaves the fabric: without a link, its session is
// over. The farewell of its Engine may have been lost with the link.
func (e *Engine) Left(n fabric.NodeID) {
	e.mu.Lock()
	s := e.sessions[n]
	ended := s != nil && e.applyEvent(s, eventLeft)
	e.mu.Unlock()
	if ended {
		e.ended(n, s.number)
	}
}

// hearControl works off what another Engine says of a session.
//
// +checklocks:e.receiving
func (e *Engine) hearControl(n fabric.NodeID, b []byte) {
	c, ok := readControl(b)
	if !ok {
		return
	}
	e.mu.Lock()
	delete(e.stalled, n)
	s := e.sessions[n]
	switch {
	case c.kind == kindHello:
		e.greetedLocked(n, s, c) // it unlocks
		return
	case s == nil || s.theirs != c.mine || s.mine != c.yours: // of another session
	case c.kind == kindAck:
		ok = s.acknowledgeLocked(c.heard)
		e.credit.Broadcast()
	case c.kind == kindBye:
		ok = false
	}
	ended := !ok && e.applyEvent(s, eventOther)
	e.mu.Unlock()
	if ended {
		e.ended(n, s.number)
	}
}

// acknowledgeLocked frees what the other end has heard. It returns false if it cannot have. The
// lock of the Engine is held.
func (s *session) acknowledgeLocked(heard uint32) bool {
	n := heard - s.acked
	if n > uint32(len(s.waiting)) {
		return int32(n) < 0 // an older acknowledgement says nothing new
	}
	for _, b := range s.waiting[:n] {
		s.bytes -= len(b)
	}
	clear(s.waiting[:n])
	s.waiting = s.waiting[n:]
	s.acked = heard
	if int32(s.sentTo-heard) < 0 {
		s.sentTo = heard
	}
	return true
}

// greetedLocked works off a hello: both ends go on where they were, or the session is over and
// another one begins. It unlocks e.mu.
//
// +checklocksrelease:e.mu
// +checklocks:e.receiving
func (e *Engine) greetedLocked(n fabric.NodeID, s *session, c control) {
	// It has begun anew, or has lost what this end knows that it had.
	fresh := s == nil || s.theirs != 0 && (s.theirs != c.mine || c.yours != 0 && c.yours != s.mine) || c.yours == 0 && s.acked > 0 ||
		c.yours == s.mine && !s.acknowledgeLocked(c.heard)
	var over *session
	if fresh {
		if s != nil && e.applyEvent(s, eventOther) {
			over = s
		}
		s = e.newSessionLocked(n)
	}
	var answer control
	switch {
	case c.yours != 0 && c.yours != s.mine: // it speaks of a session that is over
		answer = s.helloLocked(flagAsk)
	case c.yours == 0: // it does not know this end yet, and would not hear a message
		s.theirs = c.mine
		answer = s.helloLocked(flagAsk)
	default:
		s.theirs, s.sentTo, s.asked = c.mine, s.acked, s.heard-1
		if c.flags&flagAsk != 0 {
			answer = s.helloLocked(0)
		}
		e.applyEvent(s, eventKnown)
	}
	rest := len(s.waiting) > 0
	e.mu.Unlock()
	if over != nil {
		e.ended(n, over.number) // before anything of the new session is heard
	}
	if answer.kind != 0 {
		_ = e.sendControl(n, answer) // the next link says it again
	}
	if rest {
		go e.resendQueued(s)
	}
}

// hasRoom returns whether n bytes more may wait.
func (s *session) hasRoom(n int) bool { return s.bytes == 0 || s.bytes+n <= waitingBytes }

// pushMessage adds a copy of a message to what waits.
func (s *session) pushMessage(b []byte) {
	s.waiting = append(s.waiting, bytes.Clone(b))
	s.bytes += len(b)
}

// resendQueued sends what waits.
func (e *Engine) resendQueued(s *session) {
	m := e.sendingTo(s.node)
	m.Lock()
	defer m.Unlock()
	e.flushSession(s)
}

// heardLocked takes note of message number of a session. It returns whether the message is the
// next one, and what to say. The lock of the Engine is held.
func (s *session) heardLocked(number uint32, size int) (next bool, answer control) {
	switch number - s.heard {
	case 1:
		s.heard++
		s.size += size
		if s.heard-s.told >= ackMessages || s.size >= ackBytes {
			s.told, s.size = s.heard, 0
			answer = control{kindAck, 0, s.heard, s.mine, s.theirs}
		}
		return true, answer
	case 0:
		return false, answer
	}
	// Before it: sent once more. Behind it: some are missing, and are asked for once.
	if int32(number-s.heard) > 0 && s.asked != s.heard {
		s.asked = s.heard
		answer = s.helloLocked(flagAsk)
	}
	return false, answer
}

// errOver says that a session is over.
var errOver = fmt.Errorf("far: the other node has ended, or was away for too long: %w", fabric.ErrPeerDown)
