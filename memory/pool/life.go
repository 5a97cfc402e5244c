package pool

// leaseState is where a lease is in its life. Its lender has one for the loan, and the node of its
// borrower has one for the process. Both have this table (leaseNext), and SPEC.md (4.1) has it as
// well. Only on changes it; the server's lock guards it.
//
//	none ─▶ asked ─▶ held ─▶ wanted ─▶ gone
//	         │ │               ▲         ▲
//	         │ └─▶ due ────────┘         │
//	         └──────┴─▶ lapsed ──────────┘
type leaseState uint8

const (
	// leaseNone: there is no memory yet.
	leaseNone leaseState = iota
	// leaseAsked: there is memory, and the answer that gives it was not sent on. Nothing is said of
	// the lease before.
	leaseAsked
	// leaseDue: the same, and the lender wants it back already.
	leaseDue
	// leaseHeld: the answer was sent on.
	leaseHeld
	// leaseWanted: and so was that the lender wants it back.
	leaseWanted
	// leaseLapsed: it has ended before the answer was sent on. That it has is said after the
	// answer.
	leaseLapsed
	// leaseGone: the end.
	leaseGone

	leaseStates
)

func (s leaseState) String() string {
	return [...]string{"none", "asked", "due", "held", "wanted", "lapsed", "gone"}[s]
}

// leaseEvent is what changes the state of a lease.
type leaseEvent uint8

const (
	onGranted  leaseEvent = iota // the lender has made the memory, or its answer has come
	onAnswered                   // the answer that gives the lease was sent on
	onWanted                     // the lender wants it back, or it is time
	onReturned                   // it was given back
	onTaken                      // the lender has ended it, or is gone
	onLost                       // nobody is left who could be told

	leaseEvents
)

func (e leaseEvent) String() string {
	return [...]string{"granted", "answered", "wanted", "returned", "taken", "lost"}[e]
}

// leaseAct is what a step does beside the change of the state.
type leaseAct uint8

const (
	actNone   leaseAct = iota
	actWant            // says that it is wanted back
	actEnd             // ends it: the lender frees the memory, the borrower's node says that it is returned
	actSay             // says that it has ended
	actEndSay          // both
)

func (a leaseAct) String() string {
	return [...]string{"", "want", "end", "say", "end, say"}[a]
}

// leaseStep is a step of a lease's life. The zero step cannot be.
type leaseStep struct {
	to  leaseState
	act leaseAct
}

// leaseNext has the step of each event in each state. An event that has no step there changes
// nothing: it comes a second time, or too late.
var leaseNext = [leaseStates][leaseEvents]leaseStep{
	leaseNone: {
		onGranted: {leaseAsked, actNone},
	},
	leaseAsked: {
		onAnswered: {leaseHeld, actNone},
		onWanted:   {leaseDue, actNone},
		onReturned: {leaseGone, actEnd},
		onTaken:    {leaseLapsed, actEnd},
		onLost:     {leaseGone, actEnd},
	},
	leaseDue: {
		onAnswered: {leaseWanted, actWant},
		onReturned: {leaseGone, actEnd},
		onTaken:    {leaseLapsed, actEnd},
		onLost:     {leaseGone, actEnd},
	},
	leaseHeld: {
		onWanted:   {leaseWanted, actWant},
		onReturned: {leaseGone, actEnd},
		onTaken:    {leaseGone, actEndSay},
		onLost:     {leaseGone, actEnd},
	},
	leaseWanted: {
		onReturned: {leaseGone, actEnd},
		onTaken:    {leaseGone, actEndSay},
		onLost:     {leaseGone, actEnd},
	},
	leaseLapsed: {
		onAnswered: {leaseGone, actSay},
		onReturned: {leaseGone, actNone},
		onLost:     {leaseGone, actNone},
	},
}

// life is the state of a lease.
type life struct{ state leaseState }

// may says whether an event changes anything.
func (l *life) may(ev leaseEvent) bool { return leaseNext[l.state][ev].to != leaseNone }

// on brings a lease to its next state. It returns what its owner does then.
func (l *life) on(ev leaseEvent) leaseAct {
	step := leaseNext[l.state][ev]
	if step.to == leaseNone {
		return actNone
	}
	l.state = step.to
	return step.act
}

// ended says whether a lease has no memory any more.
func (l *life) ended() bool { return l.state == leaseLapsed || l.state == leaseGone }
