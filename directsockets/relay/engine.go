package relay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/internal/counter"
	"exnet/napi"
	"exnet/node/rpc"
)

// Engine carries the connections of one node.
//
// Concurrency: all methods may be called from many goroutines; Run once.
type Engine struct {
	cfg   Config
	napi  *napi.Context
	boxes [Devices + 1]box // the last one: ControlVPID

	veloIRQ, rmaIRQ, pumpIRQ *napi.Source
	messages                 atomic.Uint32 // boxes that have some, or may have
	notices                  atomic.Uint32 // boxes with notifications
	bells                    bells
	inbox                    inbox
	gates                    gates
	stats                    counters
	tap                      atomic.Pointer[Tap] // nil while nobody captures
	regions                  sync.WaitGroup      // that are being closed
	trash                    rpc.Bin             // what programs have sent, and nobody asked for
	waiting                  atomic.Bool         // nobody looks on: doorbells are armed
	watched                  atomic.Bool         // connections are active, and not armed
	moved                    atomic.Int64        // bytes since the driver was told
	flows                    atomic.Bool         // a connection has sent, and has received nothing lately
	closed                   atomic.Bool

	// Of the poll list's owner.
	conns   map[uint32]*conn
	given   map[givenKey]time.Time // connections that were reset here, and when; see tellLost
	nodes   map[fabric.NodeID]*node
	speaks  map[fabric.NodeID]uint8 // a node that is not in it: the oldest of Versions
	active  []*conn                 // to be pumped, or to be armed
	touched []*conn                 // have got messages
	raised  []raise                 // interrupts to be raised
	lost    []*node                 // nodes that do not answer any more
	dirty   []*channel
	scratch []byte                // of unpack
	message [velo.MaxPayload]byte // that has come
	spare   []*entry
	nextID  uint32
	session uint64 // the last one that was begun
	born    uint64 // tells this Engine from those before and after it on its node; not 0
	watches bool   // the timer of lookAgain runs
	// ends: see GoBack. It is no state of a connection: those whose link is away now go back to TCP
	// once it is there.
	ends bool
	gone chan struct{} // is closed when there is no connection any more; nil: nobody waits
}

// box is a mailbox and the RMA unit of the same VPID.
type box struct {
	vpid fabric.VPID
	velo *velo.Endpoint
	rma  *rma.Endpoint
	// The rest belongs to the poll list's owner.
	puts    map[atu.NLA]*entry  // PUTs under way, by the address of their last fragment here
	batches map[atu.NLA]putting // the same of batches
	later   []func()            // what waits for a PUT to end
}

// node is a peer. It belongs to the poll list's owner.
type node struct {
	id       fabric.NodeID
	own, far uint64    // numbers of the session, here and there; far 0: it has not said
	born     uint64    // of its Engine; 0: it has not said
	port     link.Port // the way there; nil: there is none now
	spoke    bool      // something was said, by either side, in whatever state the connections are
	ends     lifeEvent // what its end means to its connections
	conns    int
	channels [Devices + 1]*channel
	raised   uint32   // boxes whose interrupt is to be raised
	waiting  []*conn  // that wait for room in a channel; some may have gone on
	later    []parcel // what could not be sent yet, for no connection
	notes    []byte   // of a NOTE that is not complete
	down     bool     // it has ended, and forget cleans up
}

type raise struct {
	n   *node
	box int
}

// parcel is a message that waits.
type parcel struct {
	box  int
	kind kind
	tag  uint8
	data []byte
}

// maxLater is how many parcels may wait for a peer that takes none.
const maxLater = 1 << 14

// New makes the Engine of a NIC. Run runs it, Close releases what it took.
func New(cfg Config) (*Engine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, conns: make(map[uint32]*conn), given: make(map[givenKey]time.Time), nodes: make(map[fabric.NodeID]*node), speaks: make(map[fabric.NodeID]uint8), nextID: rand.Uint32(), born: 1 + rand.Uint64N(math.MaxUint64)}
	e.waiting.Store(true)
	if e.napi, err = napi.New(cfg.NAPI); err != nil {
		return nil, err
	}
	for _, s := range []struct {
		to     **napi.Source
		name   string
		poller napi.Poller
	}{{&e.veloIRQ, "ds-velo", veloPoller{e}}, {&e.rmaIRQ, "ds-rma", rmaPoller{e}}, {&e.pumpIRQ, "ds-pump", pumpPoller{e}}} {
		if *s.to, err = e.napi.Register(napi.SourceConfig{Name: s.name, Poller: s.poller, Budget: cfg.Budget}); err != nil {
			return nil, err
		}
	}
	if err := e.bells.openBells(); err != nil {
		return nil, err
	}
	for i := range e.boxes {
		if err := e.openBox(i, cfg.NIC); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	return e, nil
}

func (e *Engine) openBox(i int, n *nic.NIC) (err error) {
	b := &e.boxes[i]
	b.vpid = FirstVPID + fabric.VPID(i)
	if i == Devices { // the last one: who opened it has opened the others
		b.vpid = ControlVPID
	}
	b.puts, b.batches = make(map[atu.NLA]*entry), make(map[atu.NLA]putting)
	if b.velo, err = n.OpenVELO(b.vpid, e.cfg.Mailbox); err != nil {
		return fmt.Errorf("relay: open VELO: %w", err)
	}
	if i == Devices {
		return nil
	}
	if b.rma, err = n.OpenRMA(b.vpid, rma.Config{Notifications: e.cfg.notifications}); err != nil {
		return fmt.Errorf("relay: open RMA: %w", err)
	}
	return nil
}

// Run runs the Engine until ctx is cancelled. Then it resets all connections and returns nil.
func (e *Engine) Run(ctx context.Context) error {
	for i := range e.boxes {
		b, bit := &e.boxes[i], uint32(1)<<i
		b.velo.OnInterrupt(func() { e.messages.Or(bit); e.veloIRQ.Interrupt() })
		b.velo.OnCredit(func(n fabric.NodeID) { e.inbox.putCredit(n); e.pumpIRQ.Interrupt() })
		if b.rma != nil {
			b.rma.OnInterrupt(func() { e.notices.Or(bit); e.rmaIRQ.Interrupt() })
		}
	}
	e.messages.Store(1<<len(e.boxes) - 1)
	e.notices.Store(1<<Devices - 1)
	e.veloIRQ.Schedule()
	e.rmaIRQ.Schedule()
	e.pumpIRQ.Schedule()
	stop := e.attendBells()
	err := e.napi.Run(ctx)
	stop()
	e.abandonAll()
	return err
}

// abandonAll resets all connections, and tells the peers. Nobody polls any more.
func (e *Engine) abandonAll() {
	e.inbox.close()
	e.workInbox() // those that were to come
	left := e.ends && len(e.conns) == 0
	for _, n := range e.nodes {
		e.takeLeave(n, left)
	}
	for _, c := range e.conns {
		e.on(c, onBroken)
	}
	for id, n := range e.nodes {
		n.down = true
		e.leaveNode(n)
		delete(e.nodes, id)
	}
}

// Close gives back the endpoints. Run must have returned, or not have been called.
func (e *Engine) Close() error {
	e.closed.Store(true)
	e.abandonAll()
	var errs []error
	for i := range e.boxes {
		if b := &e.boxes[i]; b.velo != nil {
			errs = append(errs, b.velo.Close())
		}
		if b := &e.boxes[i]; b.rma != nil {
			errs = append(errs, b.rma.Close())
		}
	}
	e.regions.Wait()
	e.bells.close()
	return errors.Join(errs...)
}

// SetMode changes how the Engine learns that there is something to do.
func (e *Engine) SetMode(m napi.Mode) error { return e.napi.SetMode(m) }

// Polls are the statistics of polling.
func (e *Engine) Polls() napi.Stats { return e.napi.Stats() }

// Stats returns the counters.
func (e *Engine) Stats() (s Stats) {
	counter.Load(&e.stats, &s)
	return s
}

// doLater has the poll list's owner run f later, because the caller may hold locks that f or
// Config's functions take. ErrClosed: f will not run.
func (e *Engine) doLater(f func()) error {
	if !e.inbox.putJob(f, e.bells.endWait) {
		return ErrClosed
	}
	return nil
}

// inbox holds jobs for the poll list's owner.
//
// Concurrency: all methods may be called from many goroutines.
type inbox struct {
	mu      sync.Mutex
	jobs    []func()        // +checklocks:mu
	credits []fabric.NodeID // +checklocks:mu
	closed  bool            // +checklocks:mu
}

// putJob takes a job, and ends the wait by nudge, but not after close.
func (in *inbox) putJob(f, nudge func()) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed {
		in.jobs = append(in.jobs, f)
		nudge()
	}
	return !in.closed
}

func (in *inbox) putCredit(n fabric.NodeID) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.credits = append(in.credits, n)
}

func (in *inbox) takeAll() (jobs []func(), credits []fabric.NodeID) {
	in.mu.Lock()
	defer in.mu.Unlock()
	jobs, credits = in.jobs, in.credits
	in.jobs, in.credits = nil, nil
	return jobs, credits
}

func (in *inbox) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
}

// workInbox does what is in the inbox.
func (e *Engine) workInbox() {
	jobs, credits := e.inbox.takeAll()
	for _, f := range jobs {
		f()
	}
	for _, id := range credits {
		if n := e.nodes[id]; n != nil {
			e.resumeCredit(n)
		}
	}
}

// resumeRoom resumes what waits for room to a node.
func (e *Engine) resumeRoom(n *node) {
	for len(n.later) > 0 && !n.down {
		p := n.later[0]
		if e.queueMessage(n, p.box, p.kind, p.tag, p.data) != nil {
			return
		}
		n.later = n.later[1:]
	}
	waiting := n.waiting
	n.waiting = nil
	for _, c := range waiting {
		if c.blocked {
			c.due = true
			e.activateConn(c)
		}
	}
}

// resumeCredit resumes what waits for credit of a node.
func (e *Engine) resumeCredit(n *node) {
	for _, ch := range n.channels {
		if ch != nil && ch.hasToSend() {
			e.markForFlush(ch)
		}
	}
}

// blockConn has a connection wait for room in its channel.
func (e *Engine) blockConn(c *conn) {
	c.blocked = true
	c.node.waiting = append(c.node.waiting, c)
}

// leaveNode gives back the memory for batches to and from a node.
func (e *Engine) leaveNode(n *node) {
	for _, ch := range n.channels {
		if ch != nil {
			ch.releaseMemory(e.regions.Go)
		}
	}
}

// empty is the payload of a message that has none: VELO carries at least one byte.
var empty [1]byte

// queueMessage sends a message, at the end of the poll. ErrAgain: there is no room, and resumeRoom
// will be called. After any other error the node is lost.
func (e *Engine) queueMessage(n *node, box int, k kind, tag uint8, p []byte) error {
	return e.postClass(n, box, 0, k, tag, p)
}

// postClass is post of a message of a class.
func (e *Engine) postClass(n *node, box int, class fabric.Class, k kind, tag uint8, p []byte) error {
	if n.down {
		return fabric.ErrPeerDown
	}
	ch := e.channelOf(n, box)
	to := ch.placeFor(class, headLen+len(p))
	if to == nil {
		return fabric.ErrAgain
	}
	to.addMessage(k, tag, p)
	e.markForFlush(ch)
	return nil
}

// postLater is post, now or when there is credit.
func (e *Engine) postLater(n *node, box int, k kind, tag uint8, p []byte) {
	if len(n.later) == 0 {
		if err := e.queueMessage(n, box, k, tag, p); err == nil || !errors.Is(err, fabric.ErrAgain) {
			return
		}
	}
	if len(n.later) >= maxLater {
		e.loseSession(n)
		return
	}
	n.later = append(n.later, parcel{box: box, kind: k, tag: tag, data: append([]byte(nil), p...)})
}

// finishPoll ends a poll: it sends what is queued and raises the receivers' interrupts.
func (e *Engine) finishPoll() {
	for {
		for i := 0; i < len(e.dirty); i++ { // there may be more meanwhile
			e.flushChannel(e.dirty[i])
		}
		e.dirty = e.dirty[:0]
		for i := 0; i < len(e.raised); i++ {
			r := e.raised[i]
			r.n.raised &^= 1 << r.box
			b := &e.boxes[r.box]
			b.velo.Interrupt(r.n.id, b.vpid)
		}
		e.raised = e.raised[:0]
		if len(e.lost) == 0 && len(e.dirty) == 0 {
			return
		}
		e.forgetLost()
	}
}

// Versions are the variable Versions.
func (e *Engine) Versions() rpc.Versions { return Versions }

// Speak has the Engine speak to a node in one of Versions from its next HELLO on.
func (e *Engine) Speak(to fabric.NodeID, version uint8) {
	_ = e.doLater(func() { e.speaks[to] = version }) // closed: it says nothing any more
}

// versionFor is the version in which the Engine speaks to a node.
func (e *Engine) versionFor(n fabric.NodeID) uint32 {
	return uint32(max(e.speaks[n], Versions.Oldest))
}

// Reaches reports whether another node has an Engine and is linked.
func (e *Engine) Reaches(node fabric.NodeID) bool {
	return e.boxes[Devices].velo.Credits(node, ControlVPID) > 0
}

// Send sends a message of the broker here to that of another node, in order. It copies b.
// ErrClosed: the Engine is closed.
func (e *Engine) Send(to fabric.NodeID, b []byte) error {
	b = append([]byte(nil), b...)
	return e.doLater(func() {
		n := e.nodeOf(to)
		if n == nil { // nobody is there
			return
		}
		for len(b) > velo.MaxPayload {
			e.postLater(n, Devices, kindNote, tagMore, b[:velo.MaxPayload])
			b = b[velo.MaxPayload:]
		}
		e.postLater(n, Devices, kindNote, tagEnd, b)
	})
}

// maxNote is how long a NOTE is at most: the longest of a broker's messages, and some.
const maxNote = 2048

// takeNote takes a piece of a NOTE.
func (e *Engine) takeNote(n *node, tag uint8, p []byte) error {
	if len(n.notes)+len(p) > maxNote {
		return fmt.Errorf("%w: a note of more than %d bytes", errPeer, maxNote)
	}
	n.notes = append(n.notes, p...)
	if tag == tagEnd {
		e.cfg.Note(n.id, n.notes)
		n.notes = n.notes[:0]
	}
	return nil
}
