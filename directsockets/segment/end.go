package segment

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"exnet/internal/shm"

	"golang.org/x/sys/unix"
)

// Tuning is what a side may choose by itself. Zero means the default.
type Tuning struct {
	Threshold int // bytes up to which a send travels in VELO messages; default 480
	Chunk     int // bytes of an RMA PUT at most; default 64 KiB
}

const (
	defaultThreshold = 480 // = 4 * 120, as EXT-Eth's
	defaultChunk     = 64 << 10
)

// End is one side of a connection: TX and RX primitives that never wait.
//
// Concurrency: one user of TX at a time (Attach, Promote, Send, Shutdown, Demote,
// ReturnToTCP, ArmTX, DisarmTX and those of zero copy that say so), one of RX
// (PromotedAt, Recv, Next, Release, FallBack, Readable, ArmRX, DisarmRX). The others
// may be called from many goroutines.
type End struct {
	seg       *Segment
	side      Side
	own, peer control
	count     *Counters
	tuning    Tuning
	register  bool // this process is registered for membarrier

	relation atomic.Uint32 // see barriers
	bad      atomic.Bool   // a breach was found
	gone     atomic.Bool   // the doorbell is at end of file
	dummy    atomic.Uint32 // a store that is a fence
	fences   atomic.Bool   // see fence.go

	switchWord *atomic.Uint64 // see HeedSwitch
	toldOff    atomic.Bool    // what the peer was told of it: offFlag, which the peer could change

	mu        sync.Mutex
	attention shm.Attention // own attention word; changed with mu, or by the scheduler (WatchRX)
	waiter    shm.Waiter    // of RX
	hushed    uint32        // guarded by mu: number of the arming when the doorbell was last read
	unread    uint32        // armings that may leave their bytes in the doorbell
	file      *os.File
	bell      int              // guarded by mu; -1 when closed
	fds       []int            // guarded by mu; regions' that came over the doorbell
	apart     func(end func()) // see Relay.Apart; nil: an end closes itself what it has
	heard     func()           // see OnHeard

	regions atomic.Pointer[inRegions]

	_  [128]byte
	tx tx
	_  [128]byte
	rx rx
}

// inRegions are the regions of the peer's, by number - 1.
type inRegions [maxRegions]atomic.Pointer[shm.Foreign]

// What is known of the barriers that both sides use.
const (
	relationUnknown   = iota // fence, and membarrier
	relationFence            // fence on both sides
	relationExpedited        // membarrier on the side that sleeps
)

// NewEnd makes the end of side. It takes bell, this side's end of the doorbell's
// socket pair (-1: none, for tests), also when it fails. A nil count counts nothing
// that can be seen.
func NewEnd(s *Segment, side Side, bell int, count *Counters) (*End, error) {
	if side > Server {
		_ = unix.Close(bell)
		return nil, fmt.Errorf("%w: side %d", ErrConfig, side)
	}
	if count == nil {
		count = new(Counters)
	}
	e := &End{
		seg: s, side: side, own: controlOf(s.Memory(), side), peer: controlOf(s.Memory(), 1-side),
		count: count, bell: bell, register: shm.Expedited(), switchWord: &onForGood,
	}
	e.attention.Init(e.own.attention)
	e.waiter.Init(&e.attention, e.peer.attention, e.peer.flags, bell)
	if bell >= 0 {
		if err := unix.SetNonblock(bell, true); err != nil {
			_ = unix.Close(bell)
			return nil, fmt.Errorf("segment: doorbell: %w", err)
		}
		e.unread = unreadOf(bell)
		e.file = os.NewFile(uintptr(bell), "doorbell")
	}
	e.Tune(Tuning{})
	e.tx.init(s.veloQueue(side), s.sendStamps(side), s.rmaRing(side))
	e.rx.init(s.veloQueue(1-side), s.rmaRing(1-side))
	count.Set(RingSize, uint64(s.head.ring))
	flags := uint32(flagZCopy | flagHeeds | flagPauses)
	if e.register {
		flags |= flagExpedited
	}
	e.own.flags.Store(flags)
	e.noteCPU()
	return e, nil
}

// Tune sets what this side may choose. Call it before use.
func (e *End) Tune(t Tuning) {
	if t.Threshold <= 0 {
		t.Threshold = defaultThreshold
	}
	if t.Chunk <= 0 {
		t.Chunk = defaultChunk
	}
	t.Chunk = min(max(t.Chunk, minChunk)&^(line-1), e.seg.head.ring/4, maxRMA)
	e.tuning = t
}

// SetClass sets the class, 0 to 63, of what this side sends: a node that carries it to another host
// gives that class to its packets. It may be called from any goroutine.
func (e *End) SetClass(class uint8) { e.own.class.Store(uint32(class)) }

// SetUserTimeout sets the TCP_USER_TIMEOUT of this side's shadow, 0: none: a node that carries the
// connection resets it when its link is away for longer. It may be called from any goroutine.
func (e *End) SetUserTimeout(d time.Duration) {
	e.own.timeout.Store(uint32(min(max(d.Milliseconds(), 0), math.MaxUint32)))
}

// Attach tells the client that the server looks at the segment. ErrClosed: the
// offer is no longer valid.
func (e *End) Attach() error {
	if e.bad.Load() {
		return ErrCorrupt
	}
	if e.side != Server {
		return fmt.Errorf("%w: the client does not attach", ErrConfig)
	}
	switch s := State(e.peer.state.Load()); {
	case s == StateWithdrawn:
		return ErrClosed
	case s != StateOffered:
		return e.endOnBreach()
	}
	if e.Awake(); e.gone.Load() {
		return ErrClosed
	}
	if !e.Relayed() {
		e.readPeerBarriers()
	}
	e.own.state.Store(uint32(StateAttached))
	e.ringIfArmed()
	return nil
}

// Attached reports whether both sides look at the segment, so that a direction can be promoted.
// With a node in place of the client, that has to have heard so from the client's host.
func (e *End) Attached() bool {
	if e.relation.Load() != relationUnknown {
		return true
	}
	if e.PeerState() != StateAttached {
		return false
	}
	e.readPeerBarriers()
	return true
}

// readPeerBarriers reads which barriers the peer uses. Its flags are set before its state.
func (e *End) readPeerBarriers() {
	shm.Observe()
	r := uint32(relationFence)
	if e.register && e.peer.flags.Load()&flagExpedited != 0 {
		r = relationExpedited
	}
	e.relation.Store(r)
}

// Withdraw takes the client's offer back; on the server's side it refuses the segment for good.
func (e *End) Withdraw() {
	if e.bad.Load() {
		return
	}
	e.own.state.Store(uint32(StateWithdrawn))
	e.ringIfArmed()
}

// PeerState is how far the peer has come.
func (e *End) PeerState() State {
	s := State(e.peer.state.Load())
	if s > StateWithdrawn {
		_ = e.endOnBreach()
		return StateNone
	}
	return s
}

// Err is ErrCorrupt after a breach, else ErrReset or ErrClosed if the peer has gone,
// else nil. What is in the queue can be received after ErrReset and ErrClosed.
func (e *End) Err() error {
	if e.bad.Load() {
		return ErrCorrupt
	}
	return e.departureError(e.peer.attention.Load())
}

// departureError is ErrReset or ErrClosed if the peer, whose attention word is a, has gone.
func (e *End) departureError(a uint32) error {
	switch {
	case a&resetFlag != 0:
		return ErrReset
	case a&closedFlag != 0:
		return ErrClosed
	case !e.gone.Load():
		return nil
	case !e.Relayed():
		return ErrClosed
	}
	if a = e.peer.attention.Load(); a&closedFlag != 0 && a&resetFlag == 0 { // a node that closes says so before its doorbell ends
		return ErrClosed
	}
	return ErrReset // it died: what was on its way is lost
}

// Abandoned reports whether the peer's end is gone, also if nobody has heard of that yet. It may be
// called from any goroutine.
func (e *End) Abandoned() bool {
	if e.Err() != nil {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bell >= 0 && shm.HungUp(e.bell)
}

// Lost reports whether the node that acts for a program on another host is lost: what was in
// transit is lost, too, and nothing on the shadow may follow it. It is for who waits for PROMOTE. A
// far program that has paused, and was not told that PAUSE was consumed, has nothing in transit.
func (e *End) Lost() bool {
	return e.Relayed() && e.Err() == ErrReset && e.peer.flags.Load()&flagHolds == 0
}

// Late reports whether that node has given up since nothing was acknowledged for so long: the
// connection has timed out.
func (e *End) Late() bool { return e.Relayed() && e.peer.flags.Load()&flagLate != 0 }

// Relayed reports whether the other side is a node, in place of a program that the fabric
// leads to. Of a client it is known when it is Attached.
func (e *End) Relayed() bool { return e.peer.flags.Load()&flagRelayed != 0 }

// Hardware reports whether it is Relayed because RDMA hardware joins the two hosts, and no rule
// asks for it.
func (e *End) Hardware() bool { return e.peer.flags.Load()&flagHardware != 0 }

// endOnBreach ends the use of the segment. The peer finds its doorbell at end of file.
func (e *End) endOnBreach() error {
	if !e.bad.Swap(true) {
		e.mu.Lock()
		if e.bell >= 0 {
			_ = unix.Shutdown(e.bell, unix.SHUT_RDWR) // wakes who waits here, too
		}
		e.mu.Unlock()
	}
	return ErrCorrupt
}

// Close tells the peer that this side has gone, and closes the doorbell. reset says that it has
// gone abortively. Users of TX and RX may still be at work: their next call fails. The segment is
// the caller's, to retire.
func (e *End) Close(reset bool) error {
	if !e.hangUp(reset) {
		return nil
	}
	return e.file.Close() // without the lock: it waits for a sleeper there, who may want it
}

// hangUp is Close without the file. False: it was called before.
func (e *End) hangUp(reset bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.bad.Load() {
		flags := uint32(closedFlag)
		if reset {
			flags |= resetFlag
		}
		shm.Publish()
		e.attention.Change(0, 0, flags)
	}
	return e.letGoLocked()
}

// letGoLocked has the doorbell be used no more. False: it is not already.
//
// +checklocks:e.mu
func (e *End) letGoLocked() bool {
	for _, fd := range e.fds {
		_ = unix.Close(fd)
	}
	e.fds = nil
	if e.bell < 0 {
		return false
	}
	e.bell = -1 // the peer is woken by the end of file
	return true
}

// Side is the side that e is.
func (e *End) Side() Side { return e.side }

// Segment is the segment of e.
func (e *End) Segment() *Segment { return e.seg }

// Counters are those that e counts with.
func (e *End) Counters() *Counters { return e.count }

// noteCPU tells the peer on which CPU this side runs. Call it before a wait.
func (e *End) noteCPU() { e.own.cpu.Store(uint32(shm.CPU() + 1)) }

// SameCPU tells the peer on which CPU this side runs, and reports whether the peer
// ran there last: then spinning keeps it from running.
func (e *End) SameCPU() bool {
	cpu := uint32(shm.CPU() + 1)
	if e.own.cpu.Load() != cpu && !e.bad.Load() {
		e.own.cpu.Store(cpu)
	}
	return cpu != 0 && e.peer.cpu.Load() == cpu
}

// keepMapped keeps the memory mapped up to here.
func (e *End) keepMapped() { runtime.KeepAlive(e.seg) }
