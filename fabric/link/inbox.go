package link

import (
	"errors"
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/foreign"
)

// Inbox puts the messages of a flow into a mailbox, in their order. Those for which the mailbox has
// no slot wait here: as many as the flow has credits, at most. Messages of other flows do not wait
// behind them.
//
// Concurrency: all methods may be called from many goroutines. Deliver is called in the order of
// the messages, and not after NoteDown.
type Inbox struct {
	// Target leads to the mailbox; nil: nobody was there. It is set before Deliver is called.
	Target Flow

	down  atomic.Bool // no more messages come
	ended atomic.Bool // the mailbox was told

	some    atomic.Bool // messages are waiting
	mu      sync.Mutex
	waiting []waitingMessage // guarded by mu
}

type waitingMessage struct {
	status  uint64
	payload [VELOPayload]byte
}

// Deliver puts a message into the mailbox, or copies it and returns true: it waits until Resume.
func (b *Inbox) Deliver(status uint64, p foreign.Memory) (waits bool) {
	if !b.some.Load() && b.place(status, p) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// Resume may have made room.
	if len(b.waiting) == 0 && b.place(status, p) {
		return false
	}
	b.some.Store(true)
	m := waitingMessage{status: status}
	p.CopyTo(m.payload[:])
	b.waiting = append(b.waiting, m)
	return true
}

// place puts a message into the mailbox; false if it is full.
func (b *Inbox) place(status uint64, p foreign.Memory) bool {
	slot, pos, err := b.Target.Reserve()
	if err != nil {
		return !errors.Is(err, fabric.ErrAgain) // closed: the message is lost
	}
	p.CopyTo(slot[:])
	b.Target.Commit(pos, status)
	return true
}

// Resume puts what waits into the mailbox, as far as there is room by now. It may be called by the
// mailbox's reader.
func (b *Inbox) Resume() {
	if b.placeWaiting() {
		go b.Target.Raise() // not here, in the mailbox's reader
	}
	b.endInMailbox()
}

// placeWaiting returns whether it has placed anything.
func (b *Inbox) placeWaiting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(b.waiting) && b.place(b.waiting[n].status, foreign.Of(b.waiting[n].payload[:])) {
		n++
	}
	b.waiting = append(b.waiting[:0], b.waiting[n:]...)
	if len(b.waiting) == 0 {
		b.some.Store(false)
	}
	return n > 0
}

// NoteDown says that no more messages come: the flow ends in the mailbox when nothing waits.
func (b *Inbox) NoteDown() {
	b.down.Store(true)
	b.endInMailbox()
}

// endInMailbox ends the flow in the mailbox, once, when the link is down and nothing waits.
func (b *Inbox) endInMailbox() {
	if b.down.Load() && b.Target != nil && !b.some.Load() && b.ended.CompareAndSwap(false, true) {
		End(b.Target)
	}
}
