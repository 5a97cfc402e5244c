package udp

// outPhase is the state of the sender's end of a flow (SPEC.md, 10.7): where the datagrams to one
// receiver go. Its owner is the outflow's mutex; on alone changes it. Whether the receiver is
// armed is no part of it: the sender reads that from the receiver's block for each datagram, and a
// copy would be old.
type outPhase uint8

const (
	outKernel  outPhase = iota // there is no flow: datagrams are counted; tx is nil, and only here and in outEnded
	outOffered                 // the receiver has not attached: the kernel carries all
	outUp                      // each datagram goes the way that the receiver says
	outStalled                 // there is no room: datagrams are dropped until the receiver takes something
	outEnded                   // no flow leads there any more; for good
)

func (p outPhase) String() string {
	return [...]string{"kernel", "offered", "up", "stalled", "ended"}[p]
}

// outEvent is what moves it.
type outEvent uint8

const (
	outOffer    outEvent = iota // the segment is made, and with the broker
	outAttached                 // the receiver has attached
	outRefused                  // the broker or the receiver does not want it
	outFull                     // the receiver has taken nothing for as long as the sender waits
	outRoom                     // it has taken something
	outMoved                    // another socket has the receiver's address, or none has
	outGone                     // the receiver has closed, is gone, or has broken the rules
	outLeave                    // this socket hands its datagrams over to the kernel
	outClose                    // this socket is closed, or the destination is forgotten
	outEvents
)

func (e outEvent) String() string {
	return [...]string{"offer", "attached", "refused", "full", "room", "moved", "gone", "leave", "close"}[e]
}

// outStep is an event in a state.
type outStep struct {
	from outPhase
	what outEvent
}

// outNext are all steps of the sender's end.
var outNext = map[outStep]outPhase{
	{outKernel, outOffer}:     outOffered,
	{outKernel, outClose}:     outEnded,
	{outOffered, outAttached}: outUp,
	{outOffered, outRefused}:  outKernel,
	{outOffered, outGone}:     outKernel,
	{outOffered, outLeave}:    outKernel,
	{outUp, outFull}:          outStalled,
	{outUp, outMoved}:         outKernel,
	{outUp, outGone}:          outKernel,
	{outUp, outLeave}:         outKernel,
	{outStalled, outRoom}:     outUp,
	{outStalled, outMoved}:    outKernel,
	{outStalled, outGone}:     outKernel,
	{outStalled, outLeave}:    outKernel,
}

// on moves the sender's end. A step that there is not is a fault of this package; the flow ends
// then, as no datagram may depend on it.
//
// +checklocks:f.mu
func (f *outflow) on(what outEvent) {
	next, ok := outTable[f.phase][what].get()
	if steps.out != nil {
		steps.out(outStep{f.phase, what}, ok)
	}
	switch {
	case ok:
		f.phase = outPhase(next)
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
	inArmed    inPhase = iota // the sender uses the kernel, and nothing is in memory: no look is needed
	inRung                    // it is armed, and may hold records: it is looked at
	inMemory                  // it is not armed: it is looked at
	inDraining                // the sender is no more, or not the one that it was: what is there is taken, and no more
	inEnded                   // it is closed
)

func (p inPhase) String() string {
	return [...]string{"armed", "rung", "memory", "draining", "ended"}[p]
}

// inEvent is what moves it.
type inEvent uint8

const (
	inRing  inEvent = iota // a datagram of the sender's came by the kernel while a goroutine sleeps there, or bells end
	inWake                 // one came, or a record, and no goroutine sleeps there
	inArm                  // a goroutine is about to sleep
	inEmpty                // a look has found nothing
	inMoved                // another socket has the sender's address, or none has
	inClose                // the flow is closed, and what is there is still taken (the C library)
	inDrop                 // the flow is closed
	inEvents
)

func (e inEvent) String() string {
	return [...]string{"ring", "wake", "arm", "empty", "moved", "close", "drop"}[e]
}

// inStep is an event in a state.
type inStep struct {
	from inPhase
	what inEvent
}

// inNext are all steps of the receiver's end.
var inNext = map[inStep]inPhase{
	{inArmed, inRing}:     inRung,
	{inArmed, inWake}:     inMemory,
	{inArmed, inMoved}:    inDraining,
	{inArmed, inClose}:    inDraining,
	{inArmed, inDrop}:     inEnded,
	{inRung, inWake}:      inMemory,
	{inRung, inEmpty}:     inArmed,
	{inRung, inMoved}:     inDraining,
	{inRung, inClose}:     inDraining,
	{inRung, inDrop}:      inEnded,
	{inMemory, inArm}:     inRung,
	{inMemory, inMoved}:   inDraining,
	{inMemory, inClose}:   inDraining,
	{inMemory, inDrop}:    inEnded,
	{inDraining, inEmpty}: inEnded,
	{inDraining, inDrop}:  inEnded,
}

// on moves the receiver's end, and has the socket look at it, or not. A step that there is not is a
// fault of this package; the flow stays armed then, so that its datagrams come by the kernel. The
// caller has the mutex of in.
func (f *inflow) on(in *inbound, what inEvent) {
	next, ok := inTable[f.phase][what].get()
	if steps.in != nil {
		steps.in(inStep{f.phase, what}, ok)
	}
	if !ok {
		return
	}
	before := f.looked()
	f.phase = inPhase(next)
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

// cell is a place of a table: 0 if there is no such step, or 1 + the next state.
type cell uint8

func (c cell) get() (next uint8, ok bool) { return uint8(c - 1), c != 0 }

// outTable and inTable have the steps for a quick look.
var (
	outTable = func() (t [outEnded + 1][outEvents]cell) {
		for s, next := range outNext {
			t[s.from][s.what] = cell(next) + 1
		}
		return t
	}()
	inTable = func() (t [inEnded + 1][inEvents]cell) {
		for s, next := range inNext {
			t[s.from][s.what] = cell(next) + 1
		}
		return t
	}()
)

// steps are told of each step, and whether the table has it, by tests.
var steps struct {
	out func(outStep, bool)
	in  func(inStep, bool)
}
