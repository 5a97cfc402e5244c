package udp

import (
	"fmt"
	"testing"

	"exnet/internal/explore"
)

// A model of SPEC 10.4 over the tables of 10.7 and 10.9: one sender, one receiver, the broker
// between them. At every step these may happen:
//
//   - an answer comes twice; an offer is not sent; the receiver's connection to the broker breaks,
//     with all that is on its way there
//   - the broker ends with all that is on its way, and starts again
//   - the sender is killed and started anew, or connects to another address and back
//   - the receiver is killed and started anew, forks, hands its socket on, or closes it, and another
//     socket of its process binds the port
//
// All orders are tried. Whatever came before, the sender gets a flow once nothing more of this
// happens, or sends by the kernel if the receiver's socket was handed on.

// setupFault is what the model does otherwise than SPEC 10.4 says.
type setupFault int

const (
	setupFine       setupFault = iota
	faultKeepsEnd              // the sender keeps the receiver's end of the liveness pair
	faultKeeps                 // the receiver keeps what it does not take
	faultOnce                  // the sender offers once
	faultForgotten             // the receiver is not announced to the next broker
	faultUnanswered            // it waits for an answer that the broker has taken with it
	faultDoubled               // it takes each answer for that of its claim
	faultForked                // it begins a flow though another process has the socket
	faultStale                 // it keeps the flow that it has, and refuses a later one of the same sender
	faultNamed                 // it takes an answer to the socket that it has closed for one to the next
	faultHandsOn               // it hands its socket on, and keeps its flow
	faultLeaves                // the sender connects elsewhere, and goes on by its offer when it is back
	faultUnsent                // it takes an offer that was not sent for one on its way
	faultBroken                // the receiver is not announced again when its connection has broken
	setupFaults
)

const (
	mostOffers = 3
	mostEvents = 3 // of those that nobody wants
)

// answers are those on their way to the receiver. One socket waits for one at a time: what comes
// beside is repeated, or for a socket that is closed.
type answers [mostEvents + 1]int8

// setupState is all that there is, comparable.
type setupState struct {
	out    outPhase
	offer  int8 // the sender's last one, from 1
	events int8

	up, knows bool // the broker, and whether it knows the receiver
	held      int8 // the offer that it has
	asked     bool // a CLAIM is on its way to it
	answers   answers
	n         int8 // answers on their way to the receiver: 0 is NONE, else the offer
	late      int8 // of those, how many are to a socket that is closed

	in     setupPhase
	flow   int8 // the one that it has begun
	twice  bool // it has begun one that it had
	kept   int8 // an offer whose end it has kept: a planted fault
	none   int8 // the last offer when the broker had none
	shared bool
	handed bool // its socket was handed on: it is the kernel's for good
	left   int8 // the sender's offers up to here have no sender's end any more
	others int8 // the last offer that was granted to a socket that is closed
}

func (s *setupState) receive(what setupEvent) bool {
	next, ok := setupSteps.Next(s.in, what)
	if ok {
		s.in = next
	}
	return ok
}

func (s *setupState) send(what outEvent) {
	next, ok := outSteps.Next(s.out, what)
	if !ok {
		panic(fmt.Sprint("no step ", what, " from ", s.out))
	}
	s.out = next
}

// has reports whether somebody has the receiver's end of the sender's offer.
func (s *setupState) has(fault setupFault) bool {
	if fault == faultKeepsEnd && s.out == outOffered {
		return true
	}
	for _, a := range s.answers[:s.n] {
		if a == s.offer {
			return true
		}
	}
	if fault == faultUnsent && s.out == outOffered {
		return true
	}
	return s.held == s.offer || s.flow == s.offer || s.kept == s.offer
}

func (s *setupState) giveBack(offer int8, fault setupFault) {
	if fault == faultKeeps {
		s.kept = offer
	}
}

func (s *setupState) answer(a int8) {
	if int(s.n) < len(s.answers) {
		s.answers[s.n] = a
		s.n++
	}
}

// steps are what may happen next without anything that nobody wants. last: offers are not counted.
func (s setupState) steps(fault setupFault, last bool) (to []setupState) {
	add := func(change func(*setupState)) {
		next := s
		change(&next)
		to = append(to, next)
	}
	if s.held != 0 { // it expires, and the sender is not told
		add(func(n *setupState) { n.held = 0 })
	}
	switch {
	case s.out == outKernel && s.up && s.knows && (last || s.offer < mostOffers) && (fault != faultOnce || s.offer == 0):
		add(func(n *setupState) { n.send(outOffer); n.offer++; n.held = n.offer })
	case s.out == outOffered && s.flow == s.offer && s.offer > s.left:
		add(func(n *setupState) { n.send(outAttached) })
	case (s.out == outOffered || s.out == outUp) && !s.has(fault):
		add(func(n *setupState) { n.send(outGone); n.left = n.offer })
	}
	if s.up && s.asked {
		add(func(n *setupState) {
			n.asked = false
			if n.knows {
				n.answer(n.held)
				n.held = 0
			} else {
				n.answer(0)
			}
		})
	}
	switch {
	case !s.up:
		add(func(n *setupState) { n.up = true; n.knows = n.in != setupQuiet && !n.handed && fault != faultForgotten })
	case s.in != setupQuiet && !s.knows && !s.handed && fault != faultBroken && fault != faultForgotten:
		add(func(n *setupState) { n.knows = true }) // its connection is made again, and LISTEN repeated
	case s.in == setupQuiet:
		add(func(n *setupState) { n.receive(setupListen); n.knows = true })
	case s.in == setupAnnounced && s.knows && s.held != 0 && s.none != s.offer && !s.shared:
		add(func(n *setupState) { n.receive(setupClaim); n.asked = true })
	}
	if s.n > 0 {
		add(func(n *setupState) {
			a := n.answers[0]
			copy(n.answers[:], append(n.answers[1:len(n.answers):len(n.answers)], 0))
			n.n--
			old := n.late > 0
			if n.late = max(n.late-1, 0); old && a != 0 {
				n.others = a
			}
			switch {
			case old && fault != faultNamed:
				n.giveBack(a, fault)
			case a == 0:
				if n.receive(setupNone) {
					n.none = n.offer
				}
			case n.receive(setupGrant):
				if n.shared && fault != faultForked || fault == faultStale && n.flow != 0 {
					n.giveBack(a, fault)
				} else {
					n.begin(a)
				}
			case fault == faultDoubled:
				n.begin(a)
			default:
				n.giveBack(a, fault)
			}
		})
	}
	if s.shared {
		add(func(n *setupState) { n.shared = false })
	}
	if s.flow != 0 && s.flow <= s.left && fault != faultStale {
		add(func(n *setupState) { n.flow = 0 }) // its sender has closed its end
	}
	return to
}

// leave has the sender's end closed.
func (s *setupState) leave() {
	if s.out == outOffered || s.out == outUp {
		s.send(outLeave)
	}
	s.left = s.offer
}

// begin begins a flow that was granted.
func (s *setupState) begin(offer int8) {
	s.twice = s.flow == offer && offer > s.left
	s.flow = offer
}

// forgets has the receiver's socket leave.
func (s *setupState) forgets(fault setupFault) {
	if !s.receive(setupEnd) {
		panic(fmt.Sprint("no end of ", s.in))
	}
	s.knows, s.asked = false, false
	s.late = s.n
}

// accidents are what may happen that nobody wants.
func (s setupState) accidents(fault setupFault) (to []setupState) {
	if s.events == mostEvents {
		return nil
	}
	add := func(change func(*setupState)) {
		next := s
		next.events++
		change(&next)
		to = append(to, next)
	}
	if s.up {
		add(func(n *setupState) {
			n.up, n.knows, n.held, n.asked, n.answers, n.n, n.late = false, false, 0, false, answers{}, 0, 0
			if fault != faultUnanswered && n.in == setupClaiming {
				n.receive(setupNone)
			}
		})
	}
	if s.n == 1 {
		add(func(n *setupState) { n.answer(n.answers[0]); n.late *= 2 })
	}
	if s.out == outKernel && s.up && s.knows && s.offer < mostOffers { // no message, or no memory, for an offer
		add(func(n *setupState) {
			n.send(outOffer)
			n.offer++
			if fault != faultUnsent {
				n.send(outRefused)
				n.left = n.offer
			}
		})
	}
	if s.knows { // its connection to the broker breaks
		add(func(n *setupState) {
			n.knows, n.asked, n.answers, n.n, n.late = false, false, answers{}, 0, 0
			if fault != faultUnanswered && n.in == setupClaiming {
				n.receive(setupNone)
			}
		})
	}
	add(func(n *setupState) { // the sender is killed, and started anew: the broker drops what it has offered
		n.out, n.left, n.held = outKernel, n.offer, 0
	})
	add(func(n *setupState) { // the sender connects to another address, and back
		if fault != faultLeaves {
			n.leave()
		}
		n.left = n.offer
	})
	if s.handed {
		return to
	}
	add(func(n *setupState) { n.shared, n.flow = true, 0 })
	add(func(n *setupState) { // killed, and started anew at its port
		n.in, n.flow, n.kept, n.none, n.shared = setupQuiet, 0, 0, 0, false
		n.knows, n.asked, n.answers, n.n, n.late = false, false, answers{}, 0, 0
	})
	add(func(n *setupState) { // closed, and another socket binds the port
		n.forgets(fault)
		n.in, n.flow, n.none, n.shared = setupQuiet, 0, 0, false
	})
	add(func(n *setupState) { // handed on
		n.forgets(fault)
		n.handed = true
		if fault != faultHandsOn {
			n.flow = 0
		}
	})
	return to
}

// wrong says what must not be.
func (s setupState) wrong() string {
	switch {
	case s.shared && s.flow != 0:
		return "a flow begins at a socket that two processes have"
	case s.handed && s.flow != 0:
		return "a flow at a socket that was handed on"
	case s.flow != 0 && s.flow == s.others:
		return "a flow that a closed socket was granted"
	case s.out == outUp && s.offer == s.left:
		return "the sender sends by a flow that it has left"
	case s.out == outUp && s.flow != s.offer && s.flow != 0:
		return "the receiver has another flow than the sender"
	case s.twice:
		return "a flow begins twice"
	}
	return ""
}

// ends reports whether the sender gets a flow when nothing more happens, or is the kernel's.
func (s setupState) ends(fault setupFault) bool {
	for range 60 {
		if s.handed && s.out == outKernel || s.out == outUp && s.flow == s.offer {
			return true
		}
		to := s.steps(fault, true)
		if len(to) == 0 {
			return false
		}
		s = to[len(to)-1] // what is on its way comes first
	}
	return false
}

func exploreSetup(fault setupFault) explore.Result[setupState] {
	return explore.All(func(s setupState) ([]setupState, string) {
		wrong := s.wrong()
		if wrong == "" && !s.ends(fault) {
			wrong = "no flow comes any more"
		}
		return append(s.steps(fault, false), s.accidents(fault)...), wrong
	}, setupState{})
}

// TestSetupModel explores the set-up, and finds each fault.
func TestSetupModel(t *testing.T) {
	for fault := range setupFaults {
		r := exploreSetup(fault)
		if (r.Wrong == "") != (fault == setupFine) {
			t.Errorf("fault %d: %v", fault, r)
		}
		t.Logf("fault %d: %d states: %s", fault, r.States, r.Wrong)
	}
}
