package velo

import (
	"fmt"
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/profile"
)

const maxFlow = 1<<16 - 1

var (
	errNoCredit      = fmt.Errorf("velo: no credit: %w", fabric.ErrAgain)
	errFull          = fmt.Errorf("velo: mailbox full: %w", fabric.ErrAgain)
	errMailboxClosed = fmt.Errorf("velo: mailbox closed: %w", fabric.ErrPeerDown)
	errFlows         = fmt.Errorf("velo: mailbox has no flow numbers left: %w", fabric.ErrPeerDown)
	errNoRoute       = fmt.Errorf("velo: send: %w", fabric.ErrNoRoute)
	errClosed        = fmt.Errorf("velo: endpoint: %w", fabric.ErrClosed)
)

// outflow is the source's side of a flow: its credits, and the episode of refusal.
// It has three cache lines: one is only read, senders write the second, and the
// target writes the third.
type outflow struct {
	ep     atomic.Pointer[Endpoint] // nil when the endpoint is closed
	dst    fabric.NodeID
	vpid   fabric.VPID
	dead   atomic.Bool
	target link.Flow
	limit  uint64
	word   uint64      // the bits that all status words of the flow share
	remote link.Remote // target, if the source must ask it for credit

	sent     atomic.Uint64 // messages, including those about to be sent
	ackedOld atomic.Uint64 // an acked that was true once
	tally    profile.Tally // counts sent for the NIC's profile
	_        [32]byte

	acked    atomic.Uint64 // messages consumed
	episode  atomic.Uint64 // episode of refusal, or 0; see awaitCredit
	episodes atomic.Uint64 // begun so far
	watch    sync.Mutex    // makes one step of reading sent and calling Watch
	_        [32]byte
}

// An episode of refusal is one word:
//
//	 63   62   61        32 31             0
//	┌────┬────┬────────────┬────────────────┐
//	│told│slot│ number  30 │ credits     32 │
//	└────┴────┴────────────┴────────────────┘
//
// The number tells episodes apart: a sender must not join the successor of the
// episode that it saw.
const (
	wantTold        = 1 << 63 // a caller was told ErrAgain: OnCredit is due
	wantSlot        = 1 << 62 // the mailbox was full: only Resume ends the episode
	wantNumberShift = 32
	wantNumberMask  = 1<<30 - 1
	wantCredits     = 1<<wantNumberShift - 1 // so many credits end the episode
)

// freeCredits returns how many messages may be sent now. A remote target may claim to have
// consumed messages that were never sent.
func (f *outflow) freeCredits() int {
	n := int64(f.limit - (f.sent.Load() - f.consumed()))
	return int(min(max(0, n), int64(f.limit)))
}

// consumed returns how many messages the target has consumed.
func (f *outflow) consumed() uint64 {
	if f.remote != nil {
		f.acknowledge(f.remote.Consumed())
	}
	return f.acked.Load()
}

// acknowledge records how many messages the target has consumed. Several goroutines
// read a remote target, so totals may arrive here out of order.
func (f *outflow) acknowledge(total uint64) {
	for a := f.acked.Load(); a < total; a = f.acked.Load() {
		if f.acked.CompareAndSwap(a, total) {
			return
		}
	}
}

// watchAgain asks a remote target to report when it has the credits that the episode
// waits for. It returns true if they may be there already.
func (f *outflow) watchAgain() bool {
	f.watch.Lock()
	defer f.watch.Unlock()
	need := f.episode.Load() & wantCredits
	total := f.sent.Load() + need - f.limit
	if int64(total) < 1 {
		return true
	}
	f.remote.Watch(total)
	return f.remote.Consumed() >= total
}

// settleRemote does what settle does, for a remote target, which must be watched until the
// episode ends.
func (f *outflow) settleRemote() bool {
	for {
		if f.endIfCredit() {
			return true
		}
		if w := f.episode.Load(); f.remote == nil || w == 0 || w&wantSlot != 0 || f.dead.Load() || !f.watchAgain() {
			return false
		}
	}
}

// takeCredit takes one credit. sent counts the credits taken and those that takers are
// about to find missing, so at most limit are ever taken. The differences are signed:
// a delayed taker may see an acked beyond its s.
func (f *outflow) takeCredit() bool {
	s := f.sent.Add(1)
	return int64(s-f.ackedOld.Load()) <= int64(f.limit) || f.takeSlow(s)
}

func (f *outflow) takeSlow(s uint64) bool {
	a := f.consumed()
	f.ackedOld.Store(a)
	if int64(s-a) <= int64(f.limit) {
		return true
	}
	f.returnCredit()
	return false
}

// returnCredit gives back a credit whose message was not sent.
func (f *outflow) returnCredit() {
	f.sent.Add(^uint64(0))
	if f.episode.Load() != 0 && f.settleRemote() { // the target has seen one credit too few
		f.notifyLater()
	}
}

// episodeCredits returns how many credits end an episode. All outstanding ones are always
// enough.
func (f *outflow) episodeCredits() uint64 { return (f.limit + 1) / 2 }

// awaitCredit starts or joins an episode of refusal, then calls ok. If ok returns true, or
// if the flow is dead, await returns true, and the caller tries again. Otherwise it
// returns false: the caller returns ErrAgain, and OnCredit will be called.
//
// The word is set before ok reads, and the target writes what ok reads before it
// reads the word. So ok sees the change, or the target sees the word. The last step
// makes sure that the word has not changed since ok read.
func (f *outflow) awaitCredit(need uint64, ok func() bool) bool {
	for {
		w := f.episode.Load()
		if w == 0 {
			w = need | f.episodes.Add(1)&wantNumberMask<<wantNumberShift
			if !f.episode.CompareAndSwap(0, w) {
				continue
			}
		}
		if f.remote != nil {
			f.watchAgain()
		}
		if f.dead.Load() || ok() {
			if need&wantSlot != 0 && f.endEpisode() {
				f.notifyLater() // perhaps no Resume follows
			}
			return true
		}
		told := w&^wantCredits | max(w&wantCredits, need&wantCredits) | need&wantSlot | wantTold
		if f.episode.CompareAndSwap(w, told) {
			if f.dead.Load() && f.endEpisode() {
				f.notifyLater()
			}
			return false
		}
	}
}

// endEpisode ends the episode, if there is one, and reports whether a caller waits for
// OnCredit.
func (f *outflow) endEpisode() bool { return f.episode.Swap(0)&wantTold != 0 }

// endIfCredit ends the episode if there is enough credit. It returns what end returns.
func (f *outflow) endIfCredit() bool {
	for {
		w := f.episode.Load()
		if w == 0 || w&wantSlot != 0 || uint64(f.freeCredits()) < w&wantCredits {
			return false
		}
		if f.episode.CompareAndSwap(w, 0) {
			return w&wantTold != 0
		}
	}
}

func (f *outflow) notify() {
	if ep := f.ep.Load(); ep != nil {
		ep.noteCredit(f.dst)
	}
}

// notifyLater is notify for a goroutine that is sending: it may hold a lock that
// OnCredit takes. This happens only when two senders or a closing peer cross.
func (f *outflow) notifyLater() { go f.notify() }

// markDead marks the flow as dead when a sender finds that it is.
func (f *outflow) markDead() {
	f.dead.Store(true)
	if f.endEpisode() {
		f.notifyLater()
	}
}

// Return implements link.Credit.
func (f *outflow) Return(total uint64) {
	if f.remote != nil {
		f.acknowledge(total)
	} else {
		f.acked.Store(total)
	}
	if f.episode.Load() != 0 && f.settleRemote() {
		f.notify()
	}
}

// Resume implements link.Credit.
func (f *outflow) Resume() {
	if f.endEpisode() {
		f.notify()
	}
}

// Down implements link.Credit.
func (f *outflow) Down() {
	f.dead.Store(true)
	f.Resume()
}

// killFlow ends the flow at the source's own end, as Down does, but calls no OnCredit.
func (f *outflow) killFlow() {
	f.ep.Store(nil)
	f.dead.Store(true)
}

var (
	_ link.Credit = (*outflow)(nil)
	_ link.Flow   = (*inflow)(nil)
)
