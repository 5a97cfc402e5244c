package far

import (
	"context"
	"encoding/binary"
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

// VPID is the mailbox of the Engine of port servers, and MemoryVPID that of lenders of memory. In
// 14 and 13 earlier releases said the same without sessions.
const (
	VPID       fabric.VPID = 12
	MemoryVPID fabric.VPID = 11
)

// MaxMessage is the size limit of a message in bytes.
const MaxMessage = 64 << 10

// User tags of a piece: bits.
const (
	tagFirst   = 1
	tagLast    = 2
	tagControl = 4 // between Engines: session.go
)

// headSize is the size of what a message begins with: its number and the lower half of the sender's
// end of the session (32 bits each), and how many bytes follow, less 1 (16 bits). A link may have
// taken pieces along when it ended, and the next one brought the others.
const headSize = 10

// Size and credits of the mailbox.
const slots, credits = 4096, 1024

// stall is how long Send waits for a node to return any credit. For as long again, or until it
// does, further calls fail at once.
const stall = 10 * time.Second

// ErrStalled says that a node takes nothing.
var ErrStalled = errors.New("far: the node takes no messages")

// Resume is how long an Engine keeps what a node without a link has not acknowledged: as long as
// TCP over that link would go on trying (tcp_retries2).
const Resume = 924 * time.Second

// ErrSize says that a message is empty, or has more than MaxMessage bytes.
var ErrSize = errors.New("far: a message has 1 to 65536 bytes")

// Engine carries messages.
type Engine struct {
	vpid   fabric.VPID
	box    *velo.Endpoint
	hear   func(from fabric.NodeID, session uint64, b []byte)
	direct bool
	wake   chan struct{}

	// calls counts interrupts of a direct Engine: who finds it 0 receives, and looks again for the
	// others. receiving is held meanwhile, and over ends it.
	calls     atomic.Int32
	receiving sync.Mutex
	over      bool                       // +checklocks:receiving
	parts     map[fabric.NodeID]*message // +checklocks:receiving

	sending sync.Map // a mutex for each destination: pieces of one message follow one another

	stall, resume time.Duration
	ended         func(n fabric.NodeID, session uint64) // without the lock

	mu     sync.Mutex
	credit sync.Cond // of mu
	closed bool      // +checklocks:mu
	// returns: the credits that each node has returned.
	returns map[fabric.NodeID]uint64 // +checklocks:mu
	// stalled: until when calls for a node that has taken nothing for so long fail at once.
	stalled map[fabric.NodeID]time.Time // +checklocks:mu
	trials  map[fabric.NodeID]trial     // +checklocks:mu
	// sessions: with each node; links: how many there were; begun: the number of the last session.
	sessions map[fabric.NodeID]*session // +checklocks:mu
	links    map[fabric.NodeID]uint64   // +checklocks:mu
	begun    uint64                     // +checklocks:mu
	// givenUp: nodes that may not know that the session is over.
	givenUp map[fabric.NodeID]struct{} // +checklocks:mu
}

// Config is what an Engine is made of.
type Config struct {
	VPID fabric.VPID // of the mailbox
	// Hear gets the messages, and the number of the session that each belongs to. A message of a
	// session that has ended may still come after Ended. It borrows b until return, and must not
	// block.
	Hear func(from fabric.NodeID, session uint64, b []byte)
	// Ended, unless it is nil, is told of a session that has ended: the node has ended, or has
	// begun anew, or was away for too long. Messages of it may be lost. It must not block.
	Ended func(n fabric.NodeID, session uint64)
	// Resume is how long a node may have no link before it has ended.
	Resume time.Duration
	// Direct: Hear is called in the goroutine to which messages come, the driver's of a link.
	// Otherwise Run calls it.
	Direct bool
}

// New opens a mailbox.
func New(n *nic.NIC, c Config) (*Engine, error) {
	box, err := n.OpenVELO(c.VPID, velo.Config{Slots: slots, Credits: credits})
	if err != nil {
		return nil, fmt.Errorf("far: open VELO: %w", err)
	}
	e := &Engine{
		vpid: c.VPID, box: box, hear: c.Hear, ended: c.Ended, direct: c.Direct, wake: make(chan struct{}, 1), stall: stall, resume: c.Resume,
		parts: make(map[fabric.NodeID]*message), returns: make(map[fabric.NodeID]uint64), stalled: make(map[fabric.NodeID]time.Time),
		trials: make(map[fabric.NodeID]trial), sessions: make(map[fabric.NodeID]*session), links: make(map[fabric.NodeID]uint64),
		givenUp: make(map[fabric.NodeID]struct{}),
	}
	if e.ended == nil {
		e.ended = func(fabric.NodeID, uint64) {}
	}
	e.mu.Lock()
	e.credit.L = &e.mu
	e.mu.Unlock()
	box.OnCredit(func(from fabric.NodeID) {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.stalled, from)
		delete(e.trials, from)
		e.returns[from]++
		e.credit.Broadcast()
		if _, ok := e.givenUp[from]; ok {
			delete(e.givenUp, from)
			go e.greet(from)
		}
	})
	return e, nil
}

// Reaches returns whether a node has an Engine and is linked, or may be again.
func (e *Engine) Reaches(n fabric.NodeID) bool {
	if e.box.Credits(n, e.vpid) > 0 {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sessions[n] != nil
}

// Up returns whether there is a link to a node, and the Engine at its other end is the one that was
// there before. What it has lent can be reached then.
func (e *Engine) Up(n fabric.NodeID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[n]
	return s != nil && s.state == stateUp
}

// sendingTo is held while something is sent to a node.
func (e *Engine) sendingTo(n fabric.NodeID) *sync.Mutex {
	m, ok := e.sending.Load(n)
	if !ok {
		m, _ = e.sending.LoadOrStore(n, new(sync.Mutex))
	}
	return m.(*sync.Mutex)
}

// Session returns the number of the session with a node. It begins a session if there is none.
// A later session has a higher number.
func (e *Engine) Session(n fabric.NodeID) (uint64, error) {
	s, err := e.begin(n)
	if err != nil {
		return 0, err
	}
	return s.number, nil
}

// begin returns the session with a node. It begins one if there is none.
func (e *Engine) begin(n fabric.NodeID) (*session, error) {
	e.mu.Lock()
	s, isClosed, isStalled := e.sessions[n], e.closed, e.stalledLocked(n)
	switch {
	case isClosed:
		e.mu.Unlock()
		return nil, fmt.Errorf("far: send: %w", fabric.ErrClosed)
	case s != nil:
		e.mu.Unlock()
		return s, nil
	case isStalled:
		e.mu.Unlock()
		return nil, fmt.Errorf("far: node %d: %w", n, ErrStalled)
	}
	s = e.newSessionLocked(n)
	hello := s.helloLocked(flagAsk)
	e.mu.Unlock()
	if err := e.say(n, hello); err != nil {
		e.mu.Lock()
		e.enter(s, eventOther)
		e.mu.Unlock()
		return nil, err
	}
	return s, nil
}

// stalledLocked returns whether a node has taken nothing for long, a short time ago.
//
// +checklocks:e.mu
func (e *Engine) stalledLocked(n fabric.NodeID) bool {
	until, ok := e.stalled[n]
	if ok && time.Now().After(until) {
		delete(e.stalled, n)
		ok = false
	}
	return ok
}

// session returns a session by its number.
func (e *Engine) session(n fabric.NodeID, number uint64) (*session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[n]; s != nil && s.number == number {
		return s, nil
	}
	return nil, e.overLocked(n)
}

// overLocked says why there is no session with a node any more.
//
// +checklocks:e.mu
func (e *Engine) overLocked(n fabric.NodeID) error {
	switch {
	case e.closed:
		return fmt.Errorf("far: send: %w", fabric.ErrClosed)
	case e.stalledLocked(n):
		return fmt.Errorf("far: node %d: %w", n, ErrStalled)
	}
	return errOver
}

// Send sends b, which it copies, as a message of a session. It waits for room. It fails if the
// session is over, as when the node takes nothing or the Engine is closed. What was sent without an
// error is heard once, unless the session ends.
func (e *Engine) Send(to fabric.NodeID, session uint64, b []byte) error {
	if len(b) < 1 || len(b) > MaxMessage {
		return fmt.Errorf("%w: %d bytes", ErrSize, len(b))
	}
	m := e.sendingTo(to)
	m.Lock()
	defer m.Unlock()
	s, err := e.session(to, session)
	if err != nil {
		return err
	}
	for {
		e.flush(s) // also what a new link is to send once more
		if queued, err := e.queue(s, b); err != nil {
			return err
		} else if queued {
			break
		}
	}
	e.flush(s)
	return nil
}

// queue adds a message to what waits. Without room it waits for some, and returns false.
func (e *Engine) queue(s *session, b []byte) (queued bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.state == stateOver {
		return false, e.overLocked(s.node)
	}
	if !s.room(len(b)) {
		e.credit.Wait()
		return false, nil
	}
	s.push(b)
	return true, nil
}

// flush sends what waits, if the session is up. The node's sending is held.
func (e *Engine) flush(s *session) {
	for {
		e.mu.Lock()
		at := s.sentTo - s.acked
		if s.state != stateUp || at >= uint32(len(s.waiting)) {
			e.mu.Unlock()
			return
		}
		b, number, link := s.waiting[at], s.sentTo+1, s.link
		s.sentTo = number
		e.mu.Unlock()
		if err := s.cut(number, b, func(tag uint8, p []byte) error { return e.piece(s.node, tag, p) }); err != nil {
			e.failed(s, link, err)
		}
	}
}

// failed works off what kept a message from being sent on a link: the message waits for the next
// link, which may have come already, or the session is over.
func (e *Engine) failed(s *session, link uint64, err error) {
	var ended bool
	e.mu.Lock()
	switch {
	case errors.Is(err, ErrStalled), errors.Is(err, fabric.ErrClosed):
		ended = e.giveUpLocked(s, eventLate)
	case s.link == link:
		ended = e.enter(s, eventUnlinked)
	}
	e.mu.Unlock()
	if ended {
		e.ended(s.node, s.number)
	}
}

// TrySend is Send that does not wait: the error wraps fabric.ErrAgain if there is no room, or
// another message is being sent, and ErrStalled if calls have found none for 10 s. Flush follows,
// after one message or several.
//
// +checklocksignore: it does not know TryLock
func (e *Engine) TrySend(to fabric.NodeID, session uint64, b []byte) error {
	if len(b) < 1 || len(b) > MaxMessage {
		return fmt.Errorf("%w: %d bytes", ErrSize, len(b))
	}
	m := e.sendingTo(to)
	if !m.TryLock() {
		return fmt.Errorf("far: node %d: %w", to, fabric.ErrAgain)
	}
	defer m.Unlock()
	s, err := e.session(to, session)
	if err != nil {
		return err
	}
	e.mu.Lock()
	at := uint32(len(s.waiting))
	now := s.state == stateUp
	switch {
	case s.state == stateOver:
		defer e.mu.Unlock()
		return e.overLocked(to)
	case !s.room(len(b)), now && s.sentTo-s.acked != at: // or resend is about to send it
		e.mu.Unlock()
		return fmt.Errorf("far: node %d: %w", to, fabric.ErrAgain)
	}
	s.push(b)
	number, link := s.acked+at+1, s.link
	if now {
		s.sentTo = number
	}
	e.mu.Unlock()
	if !now {
		return nil
	}
	// What is cut short here is not heard: the next message begins with its first piece.
	err = s.cut(number, b, func(tag uint8, p []byte) error {
		return e.box.Send(velo.Descriptor{Dst: to, VPID: e.vpid, Tag: tag, Quiet: true}, p)
	})
	if err == nil {
		return nil
	}
	if !errors.Is(err, fabric.ErrAgain) {
		e.failed(s, link, err)
		return nil
	}
	e.mu.Lock()
	if last := len(s.waiting) - 1; s.state == stateUp && s.acked+uint32(last)+1 == number && s.sentTo == number {
		s.waiting, s.bytes, s.sentTo = s.waiting[:last], s.bytes-len(b), number-1
		e.mu.Unlock()
		return e.again(to, err)
	}
	e.mu.Unlock()
	return nil // the link has ended meanwhile: it is sent on the next one
}

// say sends a control. It waits for credit elsewhere.
func (e *Engine) say(to fabric.NodeID, c control) error {
	const tag = tagFirst | tagLast | tagControl
	b := c.bytes()
	err := e.box.Send(velo.Descriptor{Dst: to, VPID: e.vpid, Tag: tag}, b)
	if errors.Is(err, fabric.ErrAgain) {
		go func() { _ = e.piece(to, tag, b) }() // the next link says it again
		return nil
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
	if now.Sub(t.begun) > e.stall {
		e.stalled[to] = now.Add(e.stall)
	}
	if e.stalledLocked(to) {
		return fmt.Errorf("far: node %d: %w", to, ErrStalled)
	}
	return err
}

// Flush lets a node know of what TrySend has sent to it.
func (e *Engine) Flush(to fabric.NodeID) { e.box.Interrupt(to, e.vpid) }

// cut calls f with the pieces of a message and their tags.
func (s *session) cut(number uint32, b []byte, f func(tag uint8, p []byte) error) error {
	var head [velo.MaxPayload]byte
	binary.LittleEndian.PutUint32(head[:], number)
	binary.LittleEndian.PutUint32(head[4:], uint32(s.mine))
	binary.LittleEndian.PutUint16(head[8:], uint16(len(b)-1))
	n := copy(head[headSize:], b)
	piece := head[:headSize+n]
	for first := uint8(tagFirst); ; first = 0 {
		b = b[n:]
		tag := first
		if len(b) == 0 {
			tag |= tagLast
		}
		if err := f(tag, piece); err != nil || len(b) == 0 {
			return err
		}
		n = min(len(b), velo.MaxPayload)
		piece = b[:n]
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
	if e.stalledLocked(to) {
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
		e.stalled[to] = time.Now().Add(e.stall)
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
	if st.Tag&tagControl != 0 { // also within a message
		var b [controlSize]byte
		n := copy(b[:], p)
		e.box.Advance()
		e.hearControl(st.Src, b[:n])
		return true
	}
	m := e.parts[st.Src]
	if m == nil {
		m = &message{lost: true}
		e.parts[st.Src] = m
	}
	if st.Tag&tagFirst != 0 { // a link that went down may have cut the last one short
		m.b, m.lost = m.b[:0], false
	}
	m.lost = m.lost || len(m.b)+len(p) > headSize+MaxMessage
	if !m.lost {
		m.b = append(m.b, p...)
	}
	last := st.Tag&tagLast != 0
	e.box.Advance()
	if last {
		if !m.lost {
			e.heard(st.Src, m.b)
		}
		m.b, m.lost = m.b[:0], true // until the first piece of the next
	}
	return true
}

// heard works off a whole message: it is heard if it is the next one of its session.
//
// +checklocks:e.receiving
func (e *Engine) heard(from fabric.NodeID, b []byte) {
	if len(b) < headSize || len(b)-headSize != int(binary.LittleEndian.Uint16(b[8:]))+1 {
		return
	}
	number, end := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	e.mu.Lock()
	s := e.sessions[from]
	if s == nil { // it does not know that the session is over
		e.mu.Unlock()
		e.greet(from)
		return
	}
	if s.theirs == 0 || end != uint32(s.theirs) {
		e.mu.Unlock()
		return
	}
	next, answer := s.heardLocked(number, len(b))
	e.mu.Unlock()
	if next {
		e.hear(from, s.number, b[headSize:])
	}
	if answer.kind != 0 {
		_ = e.say(from, answer)
	}
}

// close ends all sessions, and with them all calls of Send.
func (e *Engine) close() {
	type farewell struct {
		to fabric.NodeID
		c  control
	}
	var all []farewell
	e.mu.Lock()
	e.closed = true
	for n, s := range e.sessions {
		all = append(all, farewell{n, control{kindBye, 0, s.heard, s.mine, s.theirs}})
		e.enter(s, eventClosed)
	}
	e.credit.Broadcast()
	e.mu.Unlock()
	for _, f := range all {
		_ = e.box.Send(velo.Descriptor{Dst: f.to, VPID: e.vpid, Tag: tagFirst | tagLast | tagControl}, f.c.bytes()) // without it, they wait
	}
}

// Close closes the mailbox. Run must have returned, or not have been called.
func (e *Engine) Close() error {
	e.close()
	return e.box.Close()
}
