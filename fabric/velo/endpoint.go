package velo

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/route"
)

// Config configures an endpoint's mailbox. The zero Config has the defaults.
type Config struct {
	// Slots of the mailbox: a power of two, at most 65,536. 0 means 1024.
	Slots int
	// Credits is how many messages each source may have in flight or unread: at
	// most Slots. 0 means 128, or Slots if that is less.
	Credits int
}

func (c Config) withDefaults() (Config, error) {
	if c.Slots == 0 {
		c.Slots = 1024
	}
	if c.Slots < 1 || c.Slots > 1<<16 || bits.OnesCount(uint(c.Slots)) != 1 {
		return c, fmt.Errorf("velo: mailbox of %d slots: use a power of two up to 65536: %w", c.Slots, fabric.ErrInvalid)
	}
	if c.Credits == 0 {
		c.Credits = min(128, c.Slots)
	}
	if c.Credits < 1 || c.Credits > c.Slots {
		return c, fmt.Errorf("velo: %d credits: use 1 to %d, the number of slots: %w", c.Credits, c.Slots, fabric.ErrInvalid)
	}
	return c, nil
}

// Endpoint is a mailbox and the right to send from it.
//
// Concurrency: sending methods and Close may be called from many goroutines.
// Peek, Advance and EnableInterrupt belong to one consumer at a time.
type Endpoint struct {
	unit     *Unit
	vpid     fabric.VPID
	box      *mailbox
	onCredit atomic.Pointer[func(fabric.NodeID)]
	onDown   atomic.Pointer[func(fabric.NodeID)]
	closed   atomic.Bool
	flows    route.NodeMap[[]*outflow] // by destination; a slice is not changed
	count    endpointCounters

	mu sync.Mutex // serialises opening and dropping of flows
	// +checklocks:mu
	sentBefore uint64 // messages of flows that were dropped
}

// VPID returns the endpoint's virtual process ID.
func (e *Endpoint) VPID() fabric.VPID { return e.vpid }

// Peek lends the oldest message until Advance. It returns false if there is none. A
// slot with an impossible status word is counted and skipped.
//
// If the mailbox is empty, Peek makes active links look for more, which may run
// handlers.
func (e *Endpoint) Peek() (Status, []byte, bool) { return e.box.peekMessage() }

// Advance frees the slot that Peek lent and returns the credit to its source. If no
// message is lent, it does nothing. Credits go back in small batches, at the latest
// when Peek finds the mailbox empty or EnableInterrupt is called. The source's
// OnCredit handler may run in the goroutine that calls these methods.
func (e *Endpoint) Advance() { e.box.freeSlot() }

// OnInterrupt sets the handler that is called when a message arrives while the
// interrupt is enabled. It runs in the goroutine that sent the message (mem
// link), with no lock held, and may run the whole receive path. The interrupt is
// disabled when it fires.
func (e *Endpoint) OnInterrupt(h func()) { e.box.line.Handle(h) }

// DisableInterrupt keeps the handler from being called. A call that another goroutine
// has begun continues.
func (e *Endpoint) DisableInterrupt() { e.box.line.Disable() }

// RaiseInterrupt calls the handler if the interrupt is enabled, and disables it, as
// an arriving message does.
func (e *Endpoint) RaiseInterrupt() { e.box.line.Raise() }

// EnableInterrupt lets the next message call the handler, and reports whether
// messages are waiting already. The handler may be called for one of those too.
func (e *Endpoint) EnableInterrupt() (pending bool) {
	l := &e.unit.routes.Links
	if l.Poll() {
		defer l.Arm()
	}
	return e.box.enableInterrupt()
}

// OnCredit sets the handler that is called once for each node that refused a message
// with ErrAgain, when that node takes messages again: when half of the credits are
// back, or all outstanding ones, or those that WantCredits asked for, or when the peer
// is gone. The handler must not block. It runs in the goroutine that consumed the
// messages (mem link), with no lock held. It may run before the refused Send has
// returned: a caller records that it waits before it sends, or tries again afterwards.
// Sending methods never call the handler themselves, so it may take a lock that the
// caller of Send holds.
func (e *Endpoint) OnCredit(h func(fabric.NodeID)) {
	if h == nil {
		e.onCredit.Store(nil)
		return
	}
	e.onCredit.Store(&h)
}

// OnPeerDown sets the handler that is called when the link to a node has ended, whether a message
// is sent to it or not: what it was told before, it has forgotten, or never heard. The handler must
// not block. It runs in a goroutine of the link, with no lock held.
func (e *Endpoint) OnPeerDown(h func(fabric.NodeID)) { e.onDown.Store(&h) }

func (e *Endpoint) noteCredit(n fabric.NodeID) {
	e.count.creditEvents.Add(1)
	if h := e.onCredit.Load(); h != nil {
		(*h)(n)
	}
}

// Close releases the VPID. Unread messages are lost; peers get ErrPeerDown. It does
// not wait for running handlers.
func (e *Endpoint) Close() error {
	if !e.closed.CompareAndSwap(false, true) {
		return errClosed
	}
	e.unit.routes.Links.Mailbox(e.vpid, 0) // before another endpoint can open the VPID
	e.unit.eps[e.vpid].CompareAndSwap(e, nil)
	e.unit.keepCounters(e)
	e.box.close()
	e.box.line.Handle(nil)
	e.mu.Lock()
	defer e.mu.Unlock()
	for n, set := range e.flows.All() {
		e.flows.Store(n, nil)
		for _, f := range *set {
			f.killFlow()
			f.tally.End()
		}
	}
	return nil
}

// flowTo returns the open flow to a mailbox, or nil.
func (e *Endpoint) flowTo(dst fabric.NodeID, vpid fabric.VPID) *outflow {
	set := e.flows.Load(dst)
	if set == nil {
		return nil
	}
	for _, f := range *set {
		if f.vpid == vpid {
			return f
		}
	}
	return nil
}

// openFlow returns the flow to a mailbox. It opens the flow if there is none.
func (e *Endpoint) openFlow(dst fabric.NodeID, vpid fabric.VPID) (*outflow, error) {
	if e.closed.Load() {
		return nil, errClosed
	}
	if f := e.flowTo(dst, vpid); f != nil && !f.dead.Load() {
		return f, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return nil, errClosed
	}
	if f := e.flowTo(dst, vpid); f != nil {
		if !f.dead.Load() {
			return f, nil
		}
		e.dropLocked(f)
	}
	port := e.unit.routes.Port(dst)
	if port == nil {
		return nil, errNoRoute
	}
	f := &outflow{dst: dst, vpid: vpid}
	f.ep.Store(e)
	t, err := port.OpenFlow(e.vpid, vpid, f)
	if err != nil {
		return nil, err
	}
	f.target, f.limit = t, uint64(t.Limit())
	f.remote, _ = t.(link.Remote)
	f.word = Status{Src: e.unit.self, SrcVPID: e.vpid, Flow: t.ID()}.word()
	e.tallyFlow(f)
	set := []*outflow{f}
	if old := e.flows.Load(dst); old != nil {
		set = append(set, *old...)
	}
	e.flows.Store(dst, &set)
	return f, nil
}

// +checklocks:e.mu
func (e *Endpoint) dropLocked(f *outflow) {
	e.sentBefore += f.sent.Load()
	f.tally.End()
	var set []*outflow
	for _, o := range *e.flows.Load(f.dst) {
		if o != f {
			set = append(set, o)
		}
	}
	if len(set) == 0 {
		e.flows.Store(f.dst, nil)
		return
	}
	e.flows.Store(f.dst, &set)
}

// peerDown ends the flows to a node that has left the fabric.
func (e *Endpoint) peerDown(n fabric.NodeID) {
	e.mu.Lock()
	set := e.flows.Load(n)
	if set != nil {
		for _, f := range *set {
			e.sentBefore += f.sent.Load()
			f.tally.End()
		}
		e.flows.Store(n, nil)
	}
	e.mu.Unlock()
	if set != nil {
		for _, f := range *set {
			f.Down()
		}
	}
	if h := e.onDown.Load(); h != nil {
		(*h)(n)
	}
}
