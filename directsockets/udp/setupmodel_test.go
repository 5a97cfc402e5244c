package udp

import (
	"fmt"
	"testing"
)

// A model of SPEC 10.4 over the tables of 10.7 and 10.9: one sender, one receiver, the broker
// between them. At every step an answer may come twice, the broker may end with all that is on its
// way, and start again, and the receiver may fork, or be killed and started anew. All orders are
// tried. Whatever came before, the sender gets a flow once nothing more of this happens.

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
	setupFaults
)

const (
	mostOffers = 3
	mostEvents = 3 // of those that nobody wants
)

// setupState is all that there is, comparable.
type setupState struct {
	out    outPhase
	offer  int8 // the sender's last one, from 1
	events int8

	up, knows bool // the broker, and whether it knows the receiver
	held      int8 // the offer that it has
	asked     bool // a CLAIM is on its way to it
	answers   [2]int8
	n         int8 // answers on their way to the receiver: 0 is NONE, else the offer

	in      setupPhase
	granted int8 // the offer that it has, but has not begun
	flow    int8 // the one that it has begun
	kept    int8 // an offer whose end it has kept: a planted fault
	none    int8 // the last offer when the broker had none
	shared  bool
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
	return s.held == s.offer || s.granted == s.offer || s.flow == s.offer || s.kept == s.offer
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
	case s.out == outOffered && s.flow == s.offer:
		add(func(n *setupState) { n.send(outAttached) })
	case (s.out == outOffered || s.out == outUp) && !s.has(fault):
		add(func(n *setupState) { n.send(outGone) })
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
		add(func(n *setupState) { n.up = true; n.knows = n.in != setupQuiet && fault != faultForgotten })
	case s.in == setupQuiet:
		add(func(n *setupState) { n.receive(setupListen); n.knows = true })
	case s.in == setupAnnounced && s.held != 0 && s.none != s.offer && !s.shared:
		add(func(n *setupState) { n.receive(setupClaim); n.asked = true })
	case s.in == setupGranted:
		add(func(n *setupState) {
			n.receive(setupBegin)
			if n.shared && fault != faultForked {
				n.giveBack(n.granted, fault)
			} else {
				n.flow = n.granted
			}
			n.granted = 0
		})
	}
	if s.n > 0 {
		add(func(n *setupState) {
			a := n.answers[0]
			n.answers = [2]int8{n.answers[1]}
			n.n--
			switch {
			case a == 0:
				if n.receive(setupNone) {
					n.none = n.offer
				}
			case n.receive(setupGrant):
				n.granted = a
			case fault == faultDoubled:
				n.flow = a
			default:
				n.giveBack(a, fault)
			}
		})
	}
	if s.shared {
		add(func(n *setupState) { n.shared = false })
	}
	return to
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
			n.up, n.knows, n.held, n.asked, n.answers, n.n = false, false, 0, false, [2]int8{}, 0
			if fault != faultUnanswered && n.in == setupClaiming {
				n.receive(setupNone)
			}
		})
	}
	if s.n == 1 {
		add(func(n *setupState) { n.answer(n.answers[0]) })
	}
	add(func(n *setupState) { n.shared, n.flow = true, 0 })
	add(func(n *setupState) { // killed, and started anew at its port
		n.in, n.granted, n.flow, n.kept, n.none, n.shared = setupQuiet, 0, 0, 0, 0, false
		n.knows, n.asked, n.answers, n.n = false, false, [2]int8{}, 0
	})
	return to
}

// wrong says what must not be.
func (s setupState) wrong() string {
	switch {
	case s.shared && s.flow != 0:
		return "a flow begins at a socket that two processes have"
	case s.out == outUp && s.flow != s.offer && s.flow != 0:
		return "the receiver has another flow than the sender"
	case s.in == setupGranted && s.granted == 0:
		return "what was granted is lost"
	case s.flow != 0 && s.granted == s.flow:
		return "a flow begins twice"
	}
	return ""
}

// ends reports whether the sender gets a flow when nothing more happens.
func (s setupState) ends(fault setupFault) bool {
	for range 60 {
		if s.out == outUp && s.flow == s.offer {
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

func exploreSetup(fault setupFault) (states int, wrong string) {
	seen := map[setupState]bool{{}: true}
	for todo := []setupState{{}}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if why := s.wrong(); why != "" {
			return len(seen), why
		}
		if !s.ends(fault) {
			return len(seen), fmt.Sprintf("no flow comes after %+v", s)
		}
		for _, next := range append(s.steps(fault, false), s.accidents(fault)...) {
			if !seen[next] {
				seen[next] = true
				todo = append(todo, next)
			}
		}
	}
	return len(seen), ""
}

// TestSetupModel explores the set-up, and finds each fault.
func TestSetupModel(t *testing.T) {
	for fault := range setupFaults {
		states, wrong := exploreSetup(fault)
		if (wrong == "") != (fault == setupFine) {
			t.Errorf("fault %d: %q", fault, wrong)
		}
		t.Logf("fault %d: %d states: %s", fault, states, wrong)
	}
}
