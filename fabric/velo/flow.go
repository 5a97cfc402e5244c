package velo

import (
	"fmt"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/link"
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

// outflow is the source's side of a flow: the credits, and who waits for them.
type outflow struct {
	ep     atomic.Pointer[Endpoint] // nil when the endpoint is closed
	dst    fabric.NodeID
	vpid   fabric.VPID
	target link.Flow
	limit  uint64
	word   uint64 // what all status words of the flow have in common
	dead   atomic.Bool
	_      cacheLine

	// What senders write.
	sent     atomic.Uint64 // messages, including those about to be sent
	ackedOld atomic.Uint64 // an acked that was true once
	_        cacheLine

	// What the target writes.
	acked atomic.Uint64 // messages consumed
	want  atomic.Uint64 // episode of refusal; see await
}

// An episode of refusal is a number of credits that will end it, and two flags.
const (
	wantTold = 1 << 63 // a caller was told ErrAgain: OnCredit is due
	wantSlot = 1 << 62 // the mailbox was full: only Resume ends the episode
	wantMask = wantSlot - 1
)

// free is how many messages may be sent now.
func (f *outflow) free() int {
	return max(0, int(f.limit-(f.sent.Load()-f.acked.Load())))
}

// take takes one credit.
func (f *outflow) take() bool {
	for {
		s := f.sent.Load()
		if s-f.ackedOld.Load() >= f.limit {
			a := f.acked.Load()
			f.ackedOld.Store(a)
			if s-a >= f.limit {
				return false
			}
		}
		if f.sent.CompareAndSwap(s, s+1) {
			return true
		}
	}
}

// untake gives back a credit whose message was not sent.
func (f *outflow) untake() {
	f.sent.Add(^uint64(0))
	f.settle() // the target may have seen one credit too few
}

// half is how many credits end an episode. All that were outstanding are always
// enough.
func (f *outflow) half() uint64 { return (f.limit + 1) / 2 }

// await starts or joins an episode of refusal, and then asks ok whether there is
// a reason to wait at all. It returns true if not, and also if the flow is dead;
// the caller tries again. It returns false if the caller is to be told ErrAgain:
// OnCredit will be called.
//
// The word is set before ok looks, and the target changes what ok looks at before
// it reads the word. So ok sees the change or the target sees the word. The last
// step makes sure that the word still stands after ok has looked.
func (f *outflow) await(need uint64, ok func() bool) bool {
	for {
		w := f.want.Load()
		if w == 0 {
			if !f.want.CompareAndSwap(0, need) {
				continue
			}
			w = need
		}
		if f.dead.Load() || ok() {
			if need&wantSlot != 0 {
				f.end() // no Resume need come any more
			}
			return true
		}
		told := max(w&wantMask, need&wantMask) | (w|need)&wantSlot | wantTold
		if f.want.CompareAndSwap(w, told) {
			if f.dead.Load() {
				f.end()
			}
			return false
		}
	}
}

// end ends the episode, if there is one, and calls OnCredit if somebody was told
// to wait for it.
func (f *outflow) end() {
	if f.want.Swap(0)&wantTold != 0 {
		f.notify()
	}
}

// settle ends the episode if there is credit enough.
func (f *outflow) settle() {
	for {
		w := f.want.Load()
		if w == 0 || w&wantSlot != 0 || uint64(f.free()) < w&wantMask {
			return
		}
		if f.want.CompareAndSwap(w, 0) {
			if w&wantTold != 0 {
				f.notify()
			}
			return
		}
	}
}

func (f *outflow) notify() {
	if ep := f.ep.Load(); ep != nil {
		ep.credited(f.dst)
	}
}

// Return implements link.Credit.
func (f *outflow) Return(total uint64) {
	f.acked.Store(total)
	f.settle()
}

// Resume implements link.Credit.
func (f *outflow) Resume() { f.end() }

// Down implements link.Credit.
func (f *outflow) Down() {
	f.dead.Store(true)
	f.end()
}

// kill is Down at the source's own end: no OnCredit.
func (f *outflow) kill() {
	f.ep.Store(nil)
	f.dead.Store(true)
}

var (
	_ link.Credit = (*outflow)(nil)
	_ link.Flow   = (*inflow)(nil)
)
