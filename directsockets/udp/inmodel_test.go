package udp

import "fmt"

// A model of SPEC 10.3 and 10.8: one sender, its ring, the kernel, and a receiver with up to two
// threads, as the C library has them (preload/conn/dgin.c, dgrecv.c, dgsleep.c, and dgset.c of
// preload/fd). A step is what no other party can see the middle of; all orders of steps are tried.
// At each step
//
//   - the kernel may lose a datagram, bring it twice, or later than the sender expects
//   - the sender may be killed, also while it publishes, or lose its address to another socket
//   - a thread may jump out of a call that waits
//   - the receiver may hand its socket to another process, which takes datagrams from then on, or
//     close it
//
// What is wrong: a datagram that comes twice, never, or out of order, one that was written to the
// ring after its sender had lost its address, a peek that does not show what comes next, a step
// that the table does not have, a thread that is counted as a sleeper and is none, and a thread
// that waits for ever while there is something for it.
//
// Not in it: several flows, a ring that is full (10.5), and the order in which two threads get
// datagrams. One thing is known, and not held to be wrong: a thread sleeps, another hands the
// socket to a process, and that one takes the bell. The first sleeps on, over what follows the
// bell, until the next datagram.

// mFault is a mistake that the model is to find.
type mFault uint8

const (
	mFine        mFault = iota
	mNoLook             // the receiver does not look into the ring when it has armed
	mNoWait             // it does not wait until the sender is not busy
	mTakesBell          // a receive takes the bell of a thread that sleeps
	mNotCounted         // a thread that has the bell is no sleeper any more, and has not counted it
	mNoKick             // a set is not told of what another thread's receive has made due
	mWakesAnyway        // a flow wakes though a thread sleeps
	mNeverLost          // what the kernel has lost is waited for
	mNoStop             // what is written after the flow was closed is taken
	mJumpCounted        // a jump leaves the count of those that sleep
	mDropsRing          // a receiver that hands its socket on takes nothing more out of the ring
	mUnsettled          // the sender writes to the ring though its datagrams are on their way by the kernel
	mNoAfter            // its records do not say what they wait for
	mMissed             // it does not look whether the receiver has closed while it published
	mFaults
)

func (f mFault) String() string {
	return [...]string{"none", "no look after arming", "no wait for the sender", "takes the bell of a sleeper", "no sleeper before the bell is counted",
		"a set is not told", "wakes over a sleeper", "waits for what is lost", "takes what comes after the end", "a jump leaves a count", "drops the ring",
		"not settled", "no AFTER", "a missed record"}[f]
}

// What a thread of the receiver does, over and over.
const (
	mReceives int8 = iota // it receives, and waits
	mTries                // it receives without waiting, a few times
	mPolls                // it waits in poll, and receives what there is
	mSets                 // the same in epoll
	mEdges                // the same by edges (EPOLLET): it receives until there is nothing
	mPeeks                // it peeks, waiting, and then receives
	mNobody
)

// Where a thread is. Those from mPick to mOverdue have the lock.
const (
	mIdle int8 = iota
	mLock
	mYields
	mNaps     // until what made it nap has changed
	mSpins    // it has looked at the ring in vain, and asks the kernel
	mWaits    // in the kernel, in a receive
	mWoke     // with a datagram that is not counted
	mCount    // the same, and it is no sleeper any more
	mReturns  // from the receive
	mReady    // poll: it looks
	mSleeper  // it is to be counted
	mRest     // it is counted, and arms
	mLast     // a last look
	mWaitPoll // in the kernel
	mCollect  // epoll: it looks
	mAsleep   // it is to be counted
	mLastSet
	mWaitSet
	mNapsSet
	mGone

	mPick // with the lock
	mBefore
	mAsk
	mTook
	mOverdue
	mSleeps
	mArmed
	mEarly
	mRestArm
	mRestEarly
	mHand
	mHanded
	// Within one of those: it returns to the place that it was called from.
	mArm
	mBusy
	mLook
	mEndBells
	mNoBells
	mShut
	mShutLook
	mShutFinal
)

// What the datagram that the kernel is asked for is wanted for.
const (
	mNow int8 = iota
	mAgain
	mSpin
	mInstead
)

type mThread struct {
	kind, pc   int8
	ret        [3]int8
	depth      int8
	mode       int8
	n          int8 // the datagram that it has
	shown      int8 // what it has peeked at
	left       int8
	how        int8 // armed
	seen       int8 // edges
	nowait     bool
	peek       bool
	spun       bool
	slept      bool
	bells      bool
	brought    bool // by the kernel
	kicked     bool
	naps, edge bool
}

// Where the sender is.
const (
	mProgram int8 = iota // about to send the next datagram
	mBegun               // busy is 1
	mPublish             // the receiver is not armed
	mPublished
	mMissedLook // busy is 0
	mKernel     // the kernel is to send it
	mSent       // it has, and that is not counted
	mOver       // there is no sender any more, or nothing to send
)

const (
	mMost    = 5
	mAll     = 1
	mBell    = 2
	mShownK  = 1
	mShownM  = 2
	mUnknown = int8(100) // lost
)

type mRecord struct {
	n          int8
	says       bool
	after, lot int8 // by_kernel, base
}

type mWorld struct {
	// The sender, and what it says.
	at, next, byKernel, lost, told, base int8
	dead, moved                          bool
	busy                                 bool
	published                            int8 // by_kernel, as the receiver reads it
	ring                                 [mMost]mRecord
	put                                  int8
	// The receiver, as it says.
	armed, consumed, taken, dry int8
	after, closed, final        bool
	// The kernel.
	transit, queue   [mMost]int8
	nTransit, nQueue int8
	// The receiver.
	phase               cPhase
	place, stop         int8 // in the ring
	gaveUp, dLost, dLot int8
	read                int8
	sleepers, uncounted int8
	asleep              int8
	queued, noBells     bool
	shown               int8
	lock                int8
	hard, gone          bool
	late                int8 // put, when its sender's address was found to be another's
	threads             [2]mThread
	// What has become of the datagrams: a bit for each.
	got, lostOnes, twice int8
	last                 int8
	shared, lazy         bool // another socket has the sender's address; the kernel may be late
	// What may come yet.
	sends, drops, doubles, kills, moves, jumps, hands, closes, slow int8
}

// String is what a trace says of it.
func (w mWorld) String() string {
	return fmt.Sprintf("sender %d next %d by_kernel %d lost %d told %d busy %v | armed %d taken %d dry %d after %v closed %v consumed %d | ring %v | %v %v | %v place %d stop %d lost %d | sleepers %d uncounted %d asleep %d no bells %v shown %d lock %d hard %v | %d/%d %d/%d",
		w.at, w.next, w.byKernel, w.lost, w.told, w.busy, w.armed, w.taken, w.dry, w.after, w.closed, w.consumed, w.ring[:w.put],
		w.transit[:w.nTransit], w.queue[:w.nQueue], w.phase, w.place, w.stop, w.dLost, w.sleepers, w.uncounted, w.asleep, w.noBells, w.shown, w.lock, w.hard,
		w.threads[0].pc, w.threads[0].n, w.threads[1].pc, w.threads[1].n)
}

type inModel struct {
	fault mFault
	rows  map[string]bool
	wrong string
}

func (m *inModel) bad(format string, a ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, a...)
	}
}

func (m *inModel) on(w *mWorld, what cEvent) {
	next, ok := cSteps.Next(w.phase, what)
	if !ok {
		m.bad("no step %v in %v", what, w.phase)
		return
	}
	m.rows[fmt.Sprint(w.phase, " ", what, " ", next)] = true
	w.phase = next
}

// listed reports whether the receiver looks at the ring.
func (w *mWorld) listed() bool { return w.phase >= cRung && w.phase <= cDraining }

// missing is how many datagrams by the kernel the next record waits for.
func (w *mWorld) missing() int8 {
	if r := w.ring[w.place]; r.says {
		return r.after - r.lot - (w.taken + w.dLost)
	}
	return 0
}

func (w *mWorld) holds() bool { return w.phase != cEnded && w.place < w.put && w.place < w.stop }
func (w *mWorld) early() bool { return w.listed() && w.holds() && w.missing() > 0 }
func (w *mWorld) due() bool   { return w.listed() && w.holds() && w.missing() <= 0 }

func (w *mWorld) waiting() int8   { return w.sleepers + w.asleep }
func (w *mWorld) arrivals() int8  { return w.put + w.gaveUp }
func (w *mWorld) settled() bool   { return w.lost != mUnknown && w.taken+w.lost >= w.byKernel }
func (w *mWorld) quiet() bool     { return w.nTransit == 0 || w.lazy } // nothing was sent by the kernel for a while
func (w *mWorld) alone() bool     { return w.threads[1].kind == mNobody }
func (w *mWorld) says() bool      { return w.lost != mUnknown && w.after }
func (w *mWorld) unsettled() bool { return w.after && w.armed != mAll }

// overdue reports whether what the next record waits for may be given up: the queue has nothing,
// and what was sent before the record has had its time.
func (w *mWorld) overdue() bool {
	if !w.early() || w.nQueue > 0 {
		return false
	}
	for _, n := range w.transit[:w.nTransit] {
		if n < w.ring[w.place].n && !w.lazy {
			return false
		}
	}
	return true
}

func (m *inModel) giveUp(w *mWorld) {
	w.dLot = w.ring[w.place].lot
	w.dLost += w.missing()
	w.gaveUp++
}

// deliver gives the program a datagram.
func (m *inModel) deliver(w *mWorld, t *mThread, n int8) {
	if t.peek {
		t.shown = n
		return
	}
	bit := int8(1) << n
	switch {
	case w.got&bit != 0 && w.twice&bit == 0:
		m.bad("datagram %d comes twice", n)
	case w.alone() && n < w.last && !w.lazy && w.twice == 0 && w.lostOnes == 0 && !w.shared && !w.hard:
		m.bad("datagram %d comes after %d", n, w.last)
	case t.shown != 0 && t.shown != n && w.alone() && !w.hard:
		m.bad("datagram %d was shown, and %d comes", t.shown, n)
	}
	w.got |= bit
	if w.alone() {
		w.last = max(w.last, n)
	}
	t.shown = 0
}

// pop takes the first datagram of the kernel's queue.
func (w *mWorld) pop() int8 { return takeFirst(w.queue[:], &w.nQueue) }

// popTransit takes the first datagram that is on its way.
func (w *mWorld) popTransit() int8 { return takeFirst(w.transit[:], &w.nTransit) }

// takeFirst takes the first of n datagrams of a queue, whose other places are zero.
func takeFirst(queue []int8, n *int8) int8 {
	first := queue[0]
	copy(queue, queue[1:])
	*n--
	queue[*n] = 0
	return first
}

// arrive puts a datagram into the kernel's queue.
func (w *mWorld) arrive(n int8) {
	w.queue[w.nQueue] = n
	w.nQueue++
	for i := range w.threads {
		w.threads[i].edge = w.threads[i].kind == mEdges
	}
}

// next returns what may come next.
func (m *inModel) next(w mWorld) (all []mWorld) {
	m.wrong = ""
	try := func(f func(v *mWorld) bool) {
		if v := w; f(&v) && v != w {
			all = append(all, v)
		}
	}
	m.sender(try, &w)
	if w.nTransit > 0 {
		try(func(v *mWorld) bool { v.arrive(v.popTransit()); return true })
		if w.drops > 0 {
			try(func(v *mWorld) bool { v.drops--; v.lostOnes |= 1 << v.popTransit(); return true })
		}
		if w.doubles > 0 && w.nQueue < mMost-1 {
			try(func(v *mWorld) bool {
				v.doubles--
				n := v.popTransit()
				v.twice |= 1 << n
				v.arrive(n)
				v.arrive(n)
				return true
			})
		}
	}
	if w.kills > 0 && !w.dead {
		try(func(v *mWorld) bool {
			v.kills--
			v.dead = true
			if written := v.at == mPublished || v.at == mMissedLook; v.at != mProgram && v.at != mSent && (!written || v.closed) {
				v.lostOnes |= 1 << v.next // which it was about to send, or to send again
			}
			v.at = mOver
			return true
		})
	}
	if w.moves > 0 && !w.moved && !w.dead {
		try(func(v *mWorld) bool { v.moves--; v.moved = true; return true })
	}
	if w.hard && w.nQueue > 0 { // the other process
		try(func(v *mWorld) bool { v.got |= 1 << v.pop(); return true })
	}
	for i := range w.threads {
		if w.threads[i].kind != mNobody && !w.gone {
			m.thread(try, &w, i)
		}
	}
	if len(all) == 0 {
		m.end(&w)
	}
	return all
}

// end looks at a walk that has come to its end.
func (m *inModel) end(w *mWorld) {
	var sleepers, uncounted, asleep int8
	reads := false
	for i := range w.threads {
		t := &w.threads[i]
		sleeps := t.pc == mWaits || t.pc == mWaitPoll
		if sleeps {
			sleepers++
		}
		if t.pc == mWaits {
			uncounted++
		}
		if t.pc == mWaitSet {
			asleep++
		}
		reads = reads || t.kind != mNobody && t.pc != mGone
		if t.kind != mNobody && t.pc != mGone && !sleeps && t.pc != mWaitSet && !w.gone {
			m.bad("a thread is at %d for ever", t.pc)
		}
	}
	switch sent := int8(1)<<(w.next+1) - 2; {
	case w.gone:
	case w.lock != 0:
		m.bad("the lock is held for ever")
	case w.sleepers != sleepers || w.uncounted != uncounted || w.asleep != asleep:
		m.bad("%d sleepers, %d uncounted, %d asleep: %d, %d, %d", sleepers, uncounted, asleep, w.sleepers, w.uncounted, w.asleep)
	case !reads:
	case w.nQueue > 0 && w.threads[0].kind != mEdges && w.threads[1].kind != mEdges:
		m.bad("threads sleep, and the kernel has a datagram")
	case w.holds() && w.lostOnes == 0 && !w.hard:
		m.bad("threads sleep, and the ring has datagram %d", w.ring[w.place].n)
	case w.lostOnes == 0 && !w.moved && w.got&sent != sent && !w.holds():
		m.bad("of datagrams %b there came %b", sent, w.got)
	}
}
