package udp

import "exnet/internal/steps"

// outPhase is the state of the sender's end of a flow (SPEC.md, 10.7): where the datagrams to one
// receiver go. Its owner is the outflow's mutex; on alone changes it. Whether the receiver is
// armed is no part of it: the sender reads that from the receiver's block for each datagram, and a
// copy would be old.
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
	outKernel: {
		outOffer: outOffered,
		outClose: outEnded,
	},
	outOffered: {
		outAttached: outUp,
		outRefused:  outKernel,
		outGone:     outKernel,
		outLeave:    outKernel,
	},
	outUp: {
		outFull:  outStalled,
		outMoved: outKernel,
		outGone:  outKernel,
		outLeave: outKernel,
	},
	outStalled: {
		outRoom:  outUp,
		outMoved: outKernel,
		outGone:  outKernel,
		outLeave: outKernel,
	},
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

// flowing reports whether there is a segment.
func (f *outflow) flowing() bool { return f.phase != outKernel && f.phase != outEnded }

// inPhase is the state of the receiver's end of a flow (SPEC.md, 10.8). Its owner is the mutex of
// the socket's inbound; on alone changes it.
type inPhase uint8

const (
	inArmed    inPhase = iota // the sender uses the kernel, and the ring is empty: nobody looks
	inRung                    // the sender uses the kernel, and the ring may have records: the socket looks
	inMemory                  // the sender uses the ring: the socket looks
	inDraining                // the sender has lost its address: the socket takes what was in the ring then
	inEnded                   // the flow is closed
)

func (p inPhase) String() string {
	return [...]string{"armed", "rung", "memory", "draining", "ended"}[p]
}

// inEvent is what moves it.
type inEvent uint8

const (
	inRing  inEvent = iota // a datagram of the sender came by the kernel while a goroutine sleeps there, or bells end
	inWake                 // a datagram or a record came, and no goroutine sleeps in the kernel
	inArm                  // a goroutine is about to sleep
	inEmpty                // the ring is empty
	inMoved                // another socket has the sender's address, or no socket has it
	inClose                // the flow is closed, and what is in the ring is still taken (the C library)
	inDrop                 // the flow is closed
)

func (e inEvent) String() string {
	return [...]string{"ring", "wake", "arm", "empty", "moved", "close", "drop"}[e]
}

// inSteps are all steps of the receiver's end.
var inSteps = steps.New(map[inPhase]map[inEvent]inPhase{
	inArmed: {
		inRing:  inRung,
		inWake:  inMemory,
		inMoved: inDraining,
		inClose: inDraining,
		inDrop:  inEnded,
	},
	inRung: {
		inWake:  inMemory,
		inEmpty: inArmed,
		inMoved: inDraining,
		inClose: inDraining,
		inDrop:  inEnded,
	},
	inMemory: {
		inArm:   inRung,
		inMoved: inDraining,
		inClose: inDraining,
		inDrop:  inEnded,
	},
	inDraining: {
		inEmpty: inEnded,
		inDrop:  inEnded,
	},
})

// on moves the receiver's end, and has the socket look at it, or not. A step that there is not is a
// fault of this package; the flow stays armed then, so that its datagrams come by the kernel. The
// caller has the mutex of in.
func (f *inflow) on(in *inbound, what inEvent) {
	next, ok := inSteps.Next(f.phase, what)
	if !ok {
		return
	}
	before := f.looked()
	f.phase = next
	switch after := f.looked(); {
	case after && !before:
		in.active = append(in.active, f)
	case before && !after:
		remove(&in.active, f)
	}
}

// looked reports whether the socket looks at the flow: it is in active.
func (f *inflow) looked() bool {
	return f.phase == inRung || f.phase == inMemory || f.phase == inDraining
}
