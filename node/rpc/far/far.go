package far

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"exnet/fabric"
	"exnet/fabric/nic"
	"exnet/fabric/velo"
)

// VPID is the mailbox of the Engine of port servers, and MemoryVPID that of lenders of memory.
// In 14 and 13 earlier releases said the same without sessions.
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

// headSize is the size of what a message begins with: its number and the lower half of the
// sender's end of the session (32 bits each), and how many bytes follow, less 1 (16 bits). A
// link may have taken pieces along when it ended, and the next one brought the others.
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

	// calls counts interrupts of a direct Engine: who finds it 0 receives, and looks again for
	// the others. receiving is held meanwhile, and over ends it.
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
	// sessions: with each node; links: how many there were; begun: the number of the last
	// session.
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
			go e.greetNode(from)
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

// Up returns whether there is a link to a node, and the Engine at its other end is the one that
// was there before; and since when. What it has lent can be reached then.
func (e *Engine) Up(n fabric.NodeID) (since time.Time, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[n]
	if s == nil || s.state != stateUp {
		return since, false
	}
	return s.since, true
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
	s, err := e.sessionWith(n)
	if err != nil {
		return 0, err
	}
	return s.number, nil
}

// sessionWith returns the session with a node. It begins one if there is none.
func (e *Engine) sessionWith(n fabric.NodeID) (*session, error) {
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
	if err := e.sendControl(n, hello); err != nil {
		e.mu.Lock()
		e.applyEvent(s, eventOther)
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

// sessionByNumber returns a session by its number.
func (e *Engine) sessionByNumber(n fabric.NodeID, number uint64) (*session, error) {
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
		e.applyEvent(s, eventClosed)
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
