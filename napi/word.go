package napi

import "math/bits"

// word is the scheduling state of a Context. It changes as a whole, by
// compare-and-swap, through the pure functions below, so a test can enumerate what
// concurrent goroutines may do to it.
//
//	bit  0..31  poll list: source i must be polled (NAPI_STATE_SCHED)
//	bit  32     owned: a goroutine runs the poll list
//	bit  33     thread: that goroutine is Run's, or Run's has been woken for it
//	bit  34     alive: Run was called
//	bit  35,36  mode
//	bit  37     closed
type word uint64

// MaxSources is the number of sources that a Context can have: one bit each.
// EXN uses two, VELO and RMA.
const MaxSources = 32

const (
	listMask  word = 1<<MaxSources - 1
	ownedBit  word = 1 << 32
	threadBit word = 1 << 33
	aliveBit  word = 1 << 34
	busyBit   word = 1 << 35 // ModeBusyPoll
	irqBit    word = 1 << 36 // ModeInterrupt
	closedBit word = 1 << 37

	modeMask = busyBit | irqBit
)

// action is what the goroutine that changed the word must do next.
type action uint8

const (
	actNone action = iota
	actRun         // it owns the poll list now: run it
	actWake        // Run's goroutine owns the poll list now: wake it
	actDone        // the Context is closed and nobody owns the list: finish it
)

// schedule puts the sources in list on the poll list. If nobody owns the list, the
// caller becomes its owner. If Run is there and inline is false, or in ModeInterrupt,
// Run's goroutine becomes the owner instead.
func (w word) schedule(list word, inline bool) (word, action) {
	if w&closedBit != 0 {
		return w, actNone
	}
	w |= list
	if w&ownedBit != 0 {
		return w, actNone // the owner looks at the list before it gives it up
	}
	w |= ownedBit
	if w&aliveBit != 0 && (!inline || w&irqBit != 0) {
		return w | threadBit, actWake
	}
	return w, actRun
}

// step is what the owner of the poll list does next.
type step uint8

const (
	stepPoll     step = iota // poll the source that was taken off the list
	stepIdle                 // the list was empty: the caller owns it no longer
	stepHandOver             // Run's goroutine owns the list now, and waits for its event: wake it
	stepBusy                 // poll everything until the mode changes
	stepClosed               // the Context is closed, the caller owns the list no longer: finish it
)

// nextAction returns what the owner does next; it is called before each poll. thread says that
// the owner is Run's goroutine; over, that the run has exceeded its limits (in ModeInterrupt one
// poll, also in Run's goroutine); last is the source polled before. With stepPoll, next also
// returns the source to poll and takes it off the list: an interrupt during its Poll puts it
// there again, so nothing announced after the Poll began is missed.
func (w word) nextAction(thread, over bool, last int) (word, step, int) {
	list := w & listMask
	switch {
	case w&closedBit != 0:
		return w &^ (listMask | ownedBit | threadBit), stepClosed, 0
	case w&busyBit != 0 && thread:
		return w, stepBusy, 0
	case w&busyBit != 0 && w&aliveBit != 0:
		return w | threadBit, stepHandOver, 0
	case list == 0:
		return w &^ (ownedBit | threadBit), stepIdle, 0
	case over && (!thread || w&irqBit != 0) && w&aliveBit != 0:
		return w | threadBit, stepHandOver, 0
	}
	after := list &^ (1<<(last+1) - 1)
	if after == 0 {
		after = list
	}
	i := bits.TrailingZeros64(uint64(after))
	return w &^ (1 << i), stepPoll, i
}

// setMode sets the mode. Busy polling starts at once if Run is there: its goroutine
// takes over an idle list here, and a running one when its owner calls next.
func (w word) setMode(m Mode) (word, action) {
	w &^= modeMask
	switch m {
	case ModeInterrupt:
		w |= irqBit
	case ModeBusyPoll:
		w |= busyBit
	}
	return w.claimBusy()
}

// threadAttached records that Run's goroutine is there.
func (w word) threadAttached() (word, action) {
	w |= aliveBit
	return w.claimBusy()
}

// claimBusy gives an idle list to Run's goroutine if it is to poll all the time.
func (w word) claimBusy() (word, action) {
	if w&busyBit != 0 && w&aliveBit != 0 && w&(ownedBit|closedBit) == 0 {
		return w | ownedBit | threadBit, actWake
	}
	return w, actNone
}

// close ends the Context. The owner of the list, if there is one, finishes it
// (stepClosed); otherwise the caller does.
func (w word) close() (word, action) {
	if w&closedBit != 0 {
		return w, actNone
	}
	w |= closedBit
	if w&ownedBit != 0 {
		return w, actNone
	}
	return w &^ listMask, actDone
}

func (w word) mode() Mode {
	switch {
	case w&busyBit != 0:
		return ModeBusyPoll
	case w&irqBit != 0:
		return ModeInterrupt
	}
	return ModeNAPI
}
