package lease

// State is where a lease is in its life. Its lender has one for the loan, the node of its borrower
// has one for the process, and the process has one for the Segment. All have this table, and
// SPEC.md (4.1) has it as well. Only Life.On changes it.
//
//	none ─▶ held ─▶ wanted ─▶ gone
//	          └───────────────▶
//
// Nothing is said of a lease before the answer that gives it: an rpc.Turn sees to that.
type State uint8

const (
	// None: there is no memory yet.
	None State = iota
	// Held: there is memory.
	Held
	// Wanted: the lender wants it back.
	Wanted
	// Gone: the end.
	Gone

	States
)

func (s State) String() string {
	return [...]string{"none", "held", "wanted", "gone"}[s]
}

// Event is what changes the state of a lease.
type Event uint8

const (
	OnGranted  Event = iota // the lender has made the memory, or its answer has come
	OnWanted                // the lender wants it back, or it is time
	OnReturned              // it was given back
	OnTaken                 // the lender has ended it, or is gone
	OnLost                  // nobody is left who could be told

	Events
)

func (e Event) String() string {
	return [...]string{"granted", "wanted", "returned", "taken", "lost"}[e]
}

// Act is what a step does beside the change of the state.
type Act uint8

const (
	ActNone   Act = iota
	ActWant       // says that it is wanted back
	ActEnd        // ends it: the lender frees the memory, the other two say that they return it
	ActEndSay     // ends it, and says that it has ended
)

func (a Act) String() string {
	return [...]string{"", "want", "end", "end, say"}[a]
}

// Step is a step of a lease's life. The zero step cannot be.
type Step struct {
	To  State
	Act Act
}

// next has the step of each event in each state. An event that has no step there changes
// nothing: it comes a second time, or too late.
var next = [States][Events]Step{
	None: {
		OnGranted: {Held, ActNone},
	},
	Held: {
		OnWanted:   {Wanted, ActWant},
		OnReturned: {Gone, ActEnd},
		OnTaken:    {Gone, ActEndSay},
		OnLost:     {Gone, ActEnd},
	},
	Wanted: {
		OnReturned: {Gone, ActEnd},
		OnTaken:    {Gone, ActEndSay},
		OnLost:     {Gone, ActEnd},
	},
}

// Steps returns the step of each event in each state, as SPEC.md (4.1) has it.
func Steps() [States][Events]Step { return next }

// Life is the state of a lease. Its owner guards it by a lock.
type Life struct{ state State }

// May says whether an event changes anything.
func (l *Life) May(ev Event) bool { return next[l.state][ev].To != None }

// On brings a lease to its next state. It returns what its owner does then.
func (l *Life) On(ev Event) Act {
	step := next[l.state][ev]
	if step.To == None {
		return ActNone
	}
	l.state = step.To
	return step.Act
}

// Ended says whether a lease has no memory any more.
func (l *Life) Ended() bool { return l.state == Gone }
