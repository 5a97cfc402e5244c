package udp

import "exnet/internal/steps"

// outPhase is the state of the sender's end of a flow (SPEC.md, 10.7): where the datagrams to
// one receiver go. Its owner is the outflow's mutex; on alone changes it. Whether the receiver
// is armed is no part of it: the sender reads that from the receiver's block for each datagram,
// and a copy would be old.
type outPhase uint8

const (
	outKernel  outPhase = iota // there is no flow (tx is nil): datagrams are counted
	outOffered                 // the receiver has not attached: the kernel carries all
	outUp                      // each datagram goes the way that the receiver says
	outStalled                 // there is no room: datagrams are dropped until the receiver takes something
	outEnded                   // there will be no flow (tx is nil)
)

func (p outPhase) String() string {
	return [...]string{"kernel", "offered", "up", "stalled", "ended"}[p]
}

// outEvent is what moves it.
type outEvent uint8

const (
	outOffer    outEvent = iota // the segment is made, and with the broker
	outAttached                 // the receiver has attached
	outRefused                  // the broker or the receiver refuses the offer
	outFull                     // the receiver has taken nothing for as long as the sender waits
	outRoom                     // it has taken something
	outMoved                    // another socket has the receiver's address, or no socket has it
	outGone                     // the receiver closes the flow, ends, or breaks the rules
	outLeave                    // this socket sends by the kernel from now on
	outClose                    // this socket is closed, or the destination is forgotten
)

func (e outEvent) String() string {
	return [...]string{"offer", "attached", "refused", "full", "room", "moved", "gone", "leave", "close"}[e]
}

// outSteps are all steps of the sender's end.
var outSteps = steps.New(map[outPhase]map[outEvent]outPhase{
	outKernel:  {outOffer: outOffered, outClose: outEnded},
	outOffered: {outAttached: outUp, outRefused: outKernel, outGone: outKernel, outLeave: outKernel},
	outUp:      {outFull: outStalled, outMoved: outKernel, outGone: outKernel, outLeave: outKernel},
	outStalled: {outRoom: outUp, outMoved: outKernel, outGone: outKernel, outLeave: outKernel},
})

// on moves the sender's end. A step that there is not is a fault of this package; the flow ends
// then, as no datagram may depend on it.
//
// +checklocks:f.mu
func (f *outflow) on(what outEvent) {
	next, ok := outSteps.Next(f.phase, what)
	switch {
	case ok:
		f.phase = next
	case f.phase != outEnded:
		f.phase = outKernel
	}
}

// hasSegment reports whether there is a segment.
func (f *outflow) hasSegment() bool { return f.phase != outKernel && f.phase != outEnded }

// inPhase is the state of the receiver's end of a flow (SPEC.md, 10.8, less what C alone has).
// Its owner is the mutex of the socket's inbound; on alone changes it.
type inPhase uint8

const (
	inArmed  inPhase = iota // the sender uses the kernel, and the ring is empty: nobody looks
	inRung                  // the sender uses the kernel, and the ring may have records: the socket looks
	inMemory                // the sender uses the ring: the socket looks
	inEnded                 // the flow is closed; what was in the ring is kept
)

func (p inPhase) String() string {
	return [...]string{"armed", "rung", "memory", "ended"}[p]
}

// inEvent is what moves it.
type inEvent uint8

const (
	inRing  inEvent = iota // a datagram of the sender came by the kernel while a goroutine sleeps there, or bells end
	inWake                 // a datagram or a record came, and no goroutine sleeps in the kernel
	inArm                  // a goroutine is about to sleep
	inEmpty                // the ring is empty
	inDrop                 // the flow is closed
)

func (e inEvent) String() string {
	return [...]string{"ring", "wake", "arm", "empty", "drop"}[e]
}

// inSteps are all steps of the receiver's end.
var inSteps = steps.New(map[inPhase]map[inEvent]inPhase{
	inArmed:  {inRing: inRung, inWake: inMemory, inDrop: inEnded},
	inRung:   {inWake: inMemory, inEmpty: inArmed, inDrop: inEnded},
	inMemory: {inArm: inRung, inDrop: inEnded},
})

// on moves the receiver's end, and has the socket look at it, or not. A step that there is not
// is a fault of this package; the flow stays armed then, so that its datagrams come by the
// kernel. The caller has the mutex of in.
func (f *inflow) on(in *inbound, what inEvent) {
	next, ok := inSteps.Next(f.phase, what)
	if !ok {
		return
	}
	before := f.isActive()
	f.phase = next
	switch after := f.isActive(); {
	case after && !before:
		in.active = append(in.active, f)
	case before && !after:
		removeFlow(&in.active, f)
	}
}

// isActive reports whether the socket looks at the flow: it is in active.
func (f *inflow) isActive() bool { return f.phase == inRung || f.phase == inMemory }

// setupPhase is how far a socket has come as a receiver of flows, before there is one (SPEC.md,
// 10.9). Its owner is the mutex of the socket's inbound; on alone changes it.
type setupPhase uint8

const (
	setupQuiet     setupPhase = iota // the broker does not know the socket
	setupAnnounced                   // it does: the client repeats LISTEN with each broker
	setupClaiming                    // CLAIM was sent, and is not answered
	setupExcluded                    // it takes no flows: by a rule, or as it cannot know its senders
	setupEnded                       // the socket has left
)

func (p setupPhase) String() string {
	return [...]string{"quiet", "announced", "claiming", "excluded", "ended"}[p]
}

// setupEvent is what moves it.
type setupEvent uint8

const (
	setupListen  setupEvent = iota // the socket is announced
	setupExclude                   // it is not, for good
	setupClaim                     // the page shows an offer for its port
	setupGrant                     // the broker has answered with a flow, which begins or is given back
	setupNone                      // or that there is none, or it has ended
	setupEnd                       // the socket leaves
)

func (e setupEvent) String() string {
	return [...]string{"listen", "exclude", "claim", "grant", "none", "end"}[e]
}

// setupSteps are all steps of a receiver's set-up.
var setupSteps = steps.New(map[setupPhase]map[setupEvent]setupPhase{
	setupQuiet:     {setupListen: setupAnnounced, setupExclude: setupExcluded, setupEnd: setupEnded},
	setupAnnounced: {setupClaim: setupClaiming, setupEnd: setupEnded},
	setupClaiming:  {setupGrant: setupAnnounced, setupNone: setupAnnounced, setupEnd: setupEnded},
	setupExcluded:  {setupEnd: setupEnded},
})

// on makes a step of the set-up. False: there is none, as the answer to a claim has come when
// the socket had left, or another claim is under way. The caller has the mutex of in.
func (in *inbound) on(what setupEvent) bool {
	next, ok := setupSteps.Next(in.phase, what)
	if ok {
		in.phase = next
	}
	return ok
}
