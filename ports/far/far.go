package far

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"exnet/fabric"
	"exnet/fabric/nic"
	"exnet/fabric/velo"
	"exnet/internal/ctxend"
)

// VPID is the mailbox of the Engine of port servers, and MemoryVPID that of lenders of memory.
const (
	VPID       fabric.VPID = 14
	MemoryVPID fabric.VPID = 13
)

// MaxMessage is the size limit of a message in bytes.
const MaxMessage = 64 << 10

// User tags of a piece: bits.
const (
	tagFirst = 1
	tagLast  = 2
)

// Size and credits of the mailbox.
const slots, credits = 4096, 1024

// stall is how long Send waits for a node to return any credit. Until it does, further calls fail
// at once.
const stall = 10 * time.Second

// ErrStalled says that a node takes nothing.
var ErrStalled = errors.New("far: the node takes no messages")

// ErrTooLong says that a message has more than MaxMessage bytes.
var ErrTooLong = errors.New("far: message too long")

// Engine carries messages.
type Engine struct {
	vpid   fabric.VPID
	box    *velo.Endpoint
	hear   func(from fabric.NodeID, b []byte)
	direct bool
	wake   chan struct{}

	// calls counts interrupts of a direct Engine: who finds it 0 receives, and looks again for the
	// others. receiving is held meanwhile, and over ends it.
	calls     atomic.Int32
	receiving sync.Mutex
	over      bool                       // +checklocks:receiving
	parts     map[fabric.NodeID]*message // +checklocks:receiving

	sending sync.Map // a mutex for each destination: pieces of one message follow one another

	stall time.Duration

	mu     sync.Mutex
	credit sync.Cond // of mu
	closed bool      // +checklocks:mu
	// returns: the credits that each node has returned.
	returns map[fabric.NodeID]uint64 // +checklocks:mu
	// stalled: the nodes that have returned no credit for so long.
	stalled map[fabric.NodeID]bool  // +checklocks:mu
	trials  map[fabric.NodeID]trial // +checklocks:mu
}

// NewDirect opens a mailbox. hear gets the messages in the goroutine to which they come, the
// driver's of a link; it borrows b until return, and must not block.
func NewDirect(n *nic.NIC, v fabric.VPID, hear func(from fabric.NodeID, b []byte)) (*Engine, error) {
	e, err := New(n, v, hear)
	if err == nil {
		e.direct = true
	}
	return e, err
}

// New is NewDirect, but Run calls hear.
func New(n *nic.NIC, v fabric.VPID, hear func(from fabric.NodeID, b []byte)) (*Engine, error) {
	box, err := n.OpenVELO(v, velo.Config{Slots: slots, Credits: credits})
	if err != nil {
		return nil, fmt.Errorf("far: open VELO: %w", err)
	}
	e := &Engine{vpid: v, box: box, hear: hear, wake: make(chan struct{}, 1), stall: stall, parts: make(map[fabric.NodeID]*message), returns: make(map[fabric.NodeID]uint64), stalled: make(map[fabric.NodeID]bool), trials: make(map[fabric.NodeID]trial)}
	e.credit.L = &e.mu
	box.OnCredit(func(from fabric.NodeID) {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.stalled, from)
		delete(e.trials, from)
		e.returns[from]++
		e.credit.Broadcast()
	})
	return e, nil
}

// Reaches returns whether a node has an Engine and is linked.
func (e *Engine) Reaches(n fabric.NodeID) bool { return e.box.Credits(n, e.vpid) > 0 }

// Send sends b, which it copies. It waits for credit, and fails if the node is not reachable,
// takes nothing, or the Engine is closed.
func (e *Engine) Send(to fabric.NodeID, b []byte) error {
	if len(b) > MaxMessage {
		return fmt.Errorf("%w: %d bytes", ErrTooLong, len(b))
	}
	own, _ := e.sending.LoadOrStore(to, new(sync.Mutex))
	m := own.(*sync.Mutex)
	m.Lock()
	defer m.Unlock()
	return cut(b, func(tag uint8, p []byte) error { return e.piece(to, tag, p) })
}

// TrySend is Send that does not wait: the error wraps fabric.ErrAgain if there is no credit, or
// another message is being sent, and ErrStalled if calls have found none for 10 s. Flush follows,
// after one message or several.
//
// +checklocksignore: it does not know TryLock
func (e *Engine) TrySend(to fabric.NodeID, b []byte) error {
	if len(b) > MaxMessage {
		return fmt.Errorf("%w: %d bytes", ErrTooLong, len(b))
	}
	own, ok := e.sending.Load(to)
	if !ok {
		own, _ = e.sending.LoadOrStore(to, new(sync.Mutex))
	}
	m := own.(*sync.Mutex)
	if !m.TryLock() {
		return fmt.Errorf("far: node %d: %w", to, fabric.ErrAgain)
	}
	// What is cut short here is not heard: the next message begins with its first piece.
	err := cut(b, func(tag uint8, p []byte) error {
		return e.box.Send(velo.Descriptor{Dst: to, VPID: e.vpid, Tag: tag, Quiet: true}, p)
	})
	m.Unlock()
	if errors.Is(err, fabric.ErrAgain) {
		return e.again(to, err)
	}
	return err
}

// trial is the time for which TrySend has found no credit of a node.
type trial struct{ begun, last time.Time }

// again returns the error of TrySend that has found no credit.
func (e *Engine) again(to fabric.NodeID, err error) error {
	e.box.Interrupt(to, e.vpid) // for the pieces sent without one
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	t, ok := e.trials[to]
	if !ok || now.Sub(t.last) > e.stall/4 { // nobody has tried meanwhile
		t.begun = now
	}
	t.last = now
	e.trials[to] = t
	if e.stalled[to] = e.stalled[to] || now.Sub(t.begun) > e.stall; e.stalled[to] {
		return fmt.Errorf("far: node %d: %w", to, ErrStalled)
	}
	return err
}

// Flush lets a node know of what TrySend has sent to it.
func (e *Engine) Flush(to fabric.NodeID) { e.box.Interrupt(to, e.vpid) }

// cut calls f with the pieces of a message and their tags.
func cut(b []byte, f func(tag uint8, p []byte) error) error {
	for first := uint8(tagFirst); ; first = 0 {
		piece, tag := b, first|tagLast
		if len(b) > velo.MaxPayload {
			piece, tag = b[:velo.MaxPayload], first
		}
		if err := f(tag, piece); err != nil {
			return err
		}
		if b = b[len(piece):]; len(b) == 0 {
			return nil
		}
	}
}

// piece sends a piece when there is credit.
func (e *Engine) piece(to fabric.NodeID, tag uint8, p []byte) error {
	for {
		e.mu.Lock()
		before, closed := e.returns[to], e.closed
		e.mu.Unlock()
		if closed {
			return fmt.Errorf("far: send: %w", fabric.ErrClosed)
		}
		err := e.box.Send(velo.Descriptor{Dst: to, VPID: e.vpid, Tag: tag, Quiet: tag&tagLast == 0}, p)
		if !errors.Is(err, fabric.ErrAgain) {
			return err
		}
		e.box.Interrupt(to, e.vpid) // for the pieces sent without one
		if !e.wait(to, before) {
			return fmt.Errorf("far: node %d: %w", to, ErrStalled)
		}
	}
}

// wait waits for a credit of the node to after its first n, or the Engine's end. It returns false
// if that node takes nothing.
func (e *Engine) wait(to fabric.NodeID, n uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stalled[to] {
		return false
	}
	late := false
	defer time.AfterFunc(e.stall, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		late = true
		e.credit.Broadcast()
	}).Stop()
	for e.returns[to] == n && !e.closed && !late {
		e.credit.Wait()
	}
	if late && e.returns[to] == n && !e.closed {
		e.stalled[to] = true
		return false
	}
	return true
}

// Run receives messages until ctx is cancelled, then returns nil.
func (e *Engine) Run(ctx context.Context) error {
	defer ctxend.Do(ctx, e.close)()
	if e.direct {
		e.box.OnInterrupt(e.receive)
		e.receive()
		<-ctx.Done()
		e.receiving.Lock()
		defer e.receiving.Unlock()
		e.over = true
		return nil
	}
	e.box.OnInterrupt(e.interrupt)
	e.receiving.Lock()
	defer e.receiving.Unlock()
	for {
		for e.take() {
		}
		if e.box.EnableInterrupt() {
			continue
		}
		select {
		case <-e.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// receive takes what has come, in the goroutine that it is called in.
func (e *Engine) receive() {
	if e.calls.Add(1) != 1 {
		return
	}
	e.receiving.Lock()
	defer e.receiving.Unlock()
	for n := int32(1); ; n = e.calls.Load() {
		for !e.over && e.take() {
		}
		if !e.over && e.box.EnableInterrupt() {
			continue
		}
		if e.calls.CompareAndSwap(n, 0) {
			return
		}
	}
}

func (e *Engine) interrupt() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// message is a message whose pieces are arriving.
type message struct {
	b    []byte
	lost bool // too long, or without its first piece
}

// take takes a piece. It returns false if there is none.
//
// +checklocks:e.receiving
func (e *Engine) take() bool {
	st, p, ok := e.box.Peek()
	if !ok {
		return false
	}
	m := e.parts[st.Src]
	if m == nil {
		m = &message{lost: true}
		e.parts[st.Src] = m
	}
	if st.Tag&tagFirst != 0 { // a link that went down may have cut the last one short
		m.b, m.lost = m.b[:0], false
	}
	m.lost = m.lost || len(m.b)+len(p) > MaxMessage
	if !m.lost {
		m.b = append(m.b, p...)
	}
	last := st.Tag&tagLast != 0
	e.box.Advance()
	if last {
		if !m.lost {
			e.hear(st.Src, m.b)
		}
		m.b, m.lost = m.b[:0], true // until the first piece of the next
	}
	return true
}

// close ends all calls of Send.
func (e *Engine) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.credit.Broadcast()
}

// Close closes the mailbox. Run must have returned, or not have been called.
func (e *Engine) Close() error {
	e.close()
	return e.box.Close()
}
