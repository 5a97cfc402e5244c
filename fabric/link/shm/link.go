package shm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/foreign"
	"exnet/internal/shm"
)

// Errors of a Link: why Connect failed, or why the peer is gone.
var (
	// ErrHello: the other end is no exnet node, or not one to talk to. Leave it.
	ErrHello = errors.New("shm: bad hello")
	// ErrVersion: the other end has another version of this link. Update one.
	ErrVersion = errors.New("shm: peer has another version of the shm link")
	// ErrBreach: the peer wrote an impossible value. The link was closed.
	ErrBreach = errors.New("shm: peer breaks the contract")
	// ErrGone: the peer has closed its end, or has died.
	ErrGone = fmt.Errorf("shm: peer is gone: %w", fabric.ErrPeerDown)
)

// Config is how a link is made. The zero Config is the default.
type Config struct {
	// HelloTimeout is how long the peer may take to introduce itself. 0 means 2 s.
	HelloTimeout time.Duration
	// Driver is the thread that serves the link as long as it can; then, and without
	// one, the link has a goroutine.
	Driver link.Driver
}

func (c Config) withDefaults() (Config, error) {
	if c.HelloTimeout == 0 {
		c.HelloTimeout = 2 * time.Second
	}
	if c.HelloTimeout < 0 {
		return c, fmt.Errorf("shm: hello timeout %v: %w", c.HelloTimeout, fabric.ErrInvalid)
	}
	return c, nil
}

const (
	// pollNap is how long the link's goroutine leaves the work to consumers that
	// poll, before it looks whether they still do.
	pollNap = time.Millisecond
	// partTime is how long a closed link waits for the peer to stop reading.
	partTime = time.Second
)

// Link joins the local NIC with one peer.
//
// Concurrency: all methods may be called from many goroutines.
type Link struct {
	nic   link.NIC
	peer  fabric.NodeID
	begun time.Time
	sock  socket

	nearSeg   *shm.Segment // written here
	farSeg    *shm.Foreign // written by the peer
	near, far view
	inRing    []foreign.Slot // the peer's
	arena     *shm.Arena
	farArena  farArena

	cause  link.Cause  // why it is down
	down   atomic.Bool // nothing is started any more
	ready  atomic.Bool // the peer is mapped
	failed atomic.Bool
	done   chan struct{}

	out outRing
	_   [128]byte

	pumping               atomic.Uint32
	pos                   atomic.Uint64 // of the peer's ring; written by the pump
	eventsSeen, spaceSeen atomic.Uint64 // written by the pump
	headGiven             uint64        // belongs to the pump
	ins                   []*inflow     // belongs to the pump
	polls                 atomic.Uint64 // looks of consumers that found nothing new
	armSeq, rung          atomic.Uint64
	armed, armWanted      atomic.Bool
	awake                 atomic.Bool   // a driver looks at the link before it waits
	moved                 atomic.Uint64 // bytes of GETs
	quiet                 struct {      // messages that the peer was not woken for yet
		n, since atomic.Int64 // how many; when the first came
	}
	drive drive
	_     [128]byte

	flowMu  sync.Mutex // serialises OpenFlow
	outs    atomic.Pointer[[]*outflow]
	offered [fabric.VPIDs]atomic.Uint64 // the most credits that a mailbox has had

	ops     opTable
	serving serveTable
	book    book
	reading reading
	probe   probe
	count   counters
}

// port is the Link as its NIC's way to the peer, active as what has to be polled.
type (
	port   struct{ *Link }
	active struct{ *Link }
)

type counters struct{ bells, wakeups, parked, bounced, direct atomic.Uint64 }

// Stats are the counters of a link.
type Stats struct {
	Bells   uint64 // times that the peer was woken
	Wakeups uint64 // times that the peer woke this side
	Parked  uint64 // messages that waited for room in their mailbox
	Bounced uint64 // transfers whose memory had to be copied to where the peer can read it
	Direct  uint64 // GETs of memory that the peer had shown, without asking
	TxBytes uint64 // slots that were filled, and what the peer has read of transfers
	RxBytes uint64 // slots that were read, and what was read of transfers
}

// Stats returns the counters. The bytes are 0 when the link is down.
func (l *Link) Stats() Stats {
	c := &l.count
	s := Stats{
		Bells: c.bells.Load(), Wakeups: c.wakeups.Load(), Parked: c.parked.Load(),
		Bounced: c.bounced.Load(), Direct: c.direct.Load(),
	}
	if !l.down.Load() {
		s.TxBytes = shm.SlotSize*l.out.tail.Load() + l.far.taken.Load()
		s.RxBytes = shm.SlotSize*l.pos.Load() + l.near.taken.Load()
	}
	return s
}

// Connect joins n with the NIC whose process has the other end of conn, a connected
// socket of type SOCK_STREAM or SOCK_SEQPACKET. It takes conn, even if it fails.
// When it returns, the peer can be sent to as soon as it has called Connect, too.
// The caller makes sure that n has no other link to the same peer.
func Connect(n link.NIC, conn *net.UnixConn, cfg Config) (*Link, error) {
	l, err := connectLink(n, conn, cfg)
	if err != nil {
		_ = conn.Close() // the first error says more
		return nil, err
	}
	return l, nil
}

func connectLink(n link.NIC, conn *net.UnixConn, cfg Config) (*Link, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Link{nic: n, begun: time.Now(), done: make(chan struct{})}
	l.drive.driver, l.drive.left = cfg.Driver, make(chan struct{})
	l.outs.Store(new([]*outflow))
	if err := l.sock.takeSocket(conn); err != nil {
		return nil, err
	}
	if l.arena, err = n.ATU().Arena(); err != nil {
		return nil, err
	}
	if l.nearSeg, err = shm.Create(fmt.Sprintf("exnet-link-%d", n.ID()), segmentSize); err != nil {
		return nil, err
	}
	mem := l.nearSeg.Bytes()
	l.near = viewOf(func(off, n int) []atomic.Uint64 { return shm.Words(mem, off, n) })
	l.out.l, l.out.ring = l, shm.Slots(mem, ringOff, RingSlots)
	for id := range l.ops.ops {
		l.ops.free = append(l.ops.free, uint16(MaxOps-1-id))
	}
	n.AddLink(active{l}) // publishes the mailboxes before the peer can look
	err = l.exchangeHellos(cfg.HelloTimeout)
	if err == nil && cfg.Driver != nil {
		if err = l.sock.detach(); err != nil {
			l.farArena.close()
		}
	}
	if err != nil {
		n.RemoveLink(active{l})
		l.returnMemory()
		return nil, err
	}
	l.nearSeg.CloseFd()
	l.book.l = l
	n.ATU().OpenBook(l.peer, &l.book)
	n.Connect(l.peer, port{l})
	if cfg.Driver != nil && !cfg.Driver.Take(served{l}) {
		served{l}.Leave()
	}
	go l.waitAndPump()
	return l, nil
}

// Peer returns the node on the other end.
func (l *Link) Peer() fabric.NodeID { return l.peer }

// Done returns a channel that is closed when the link is down and everything is
// given back.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err is why the link is down: ErrGone, ErrBreach or fabric.ErrClosed. Nil while it
// is up.
func (l *Link) Err() error { return l.cause.Err() }

// Close takes the link down. It does not wait; Done does.
func (l *Link) Close() error {
	if !l.takeDown(fmt.Errorf("shm: link: %w", fabric.ErrClosed)) {
		return fmt.Errorf("shm: close: %w", fabric.ErrClosed)
	}
	return nil
}

func (l *Link) endByBreach(what string) { l.takeDown(fmt.Errorf("%w: %s", ErrBreach, what)) }

// takeDown takes the link down, for the first reason that there is. It runs no handler:
// the link's goroutine does.
func (l *Link) takeDown(why error) bool {
	if !l.cause.Set(why) {
		return false
	}
	l.down.Store(true)
	l.failed.Store(true)
	l.sock.hangUp()
	if d := &l.drive; d.driver != nil {
		select {
		case <-d.left:
		default:
			d.driver.Wake()
		}
	}
	return true
}

// waitAndPump is the link's goroutine: it waits for the bell when nobody polls. With a
// driver it begins when the driver has left.
func (l *Link) waitAndPump() {
	defer close(l.done)
	if l.drive.driver != nil {
		<-l.drive.left
		l.awake.Store(false)
		if err := l.sock.restore(); err != nil {
			l.takeDown(err)
		}
	}
	buf := make([]byte, 512)
	var polls uint64
	deadline := false
	for !l.failed.Load() {
		l.pumpMessages()
		p := l.polls.Load()
		napping := p != polls && !l.armWanted.Load()
		polls = p
		switch {
		case napping:
			_ = l.sock.conn.SetReadDeadline(time.Now().Add(pollNap))
			deadline = true
		default:
			l.armWanted.Store(false)
			if l.armBell(); !l.hasNothing() {
				continue
			}
			if deadline {
				_ = l.sock.conn.SetReadDeadline(time.Time{})
				deadline = false
			}
		}
		if l.failed.Load() { // fail's deadline may be gone
			break
		}
		n, err := l.sock.conn.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case err != nil || n == 0:
			l.takeDown(ErrGone)
			l.endLink(false)
			return
		default:
			l.armed.Store(false)
			l.count.wakeups.Add(1)
		}
	}
	l.endLink(true)
}

// endLink ends everything. If the peer has not hung up, it waits a moment for that:
// before, memory that the peer reads must not be used for something else.
func (l *Link) endLink(wait bool) {
	l.nic.RemoveLink(active{l})
	l.nic.ATU().CloseBook(l.peer, &l.book)
	l.nic.Disconnect(l.peer)
	l.nic.PeerDown(l.peer)
	l.failAll()
	l.farArena.close()
	if wait {
		_ = l.sock.conn.SetReadDeadline(time.Now().Add(partTime))
		buf := make([]byte, 512)
		for {
			if n, err := l.sock.conn.Read(buf); err != nil || n == 0 {
				break
			}
		}
	}
	_ = l.sock.conn.Close() // nothing was to be sent any more
	l.endAll()
	l.lockForGood()
	l.returnMemory()
}

// returnMemory returns the shared memory. The pump may look at it once more and find
// zeros.
func (l *Link) returnMemory() {
	if l.nearSeg != nil {
		l.nearSeg.Retire()
	}
	if l.farSeg != nil {
		l.farSeg.Retire()
	}
}

// hasNothing reports whether there is nothing to do: the link is idle, or down.
func (l *Link) hasNothing() bool { return l.down.Load() || l.nothingToDo() }

// Poll implements link.Active.
func (a active) Poll() {
	l := a.Link
	if !l.ready.Load() || l.awake.Load() { // still in Connect; or the driver looks
		return
	}
	if l.hasNothing() {
		l.polls.Add(1)
		return
	}
	l.pumpMessages()
}

// Arm implements link.Active.
func (a active) Arm() {
	l := a.Link
	if !l.ready.Load() || l.down.Load() {
		return
	}
	l.armWanted.Store(true) // before awake is looked at: if it is set, the driver arms
	if l.awake.Load() {
		return
	}
	if l.armBell() && !l.hasNothing() {
		go l.pumpMessages() // the caller must not be interrupted
	}
}

// armBell has the peer ring, once. It returns false if it was armed already.
//
//	this side                    peer
//	─────────                    ────
//	armed := number    (1)       slot := message    (a)
//	look at the ring   (2)       look at armed      (b)
//
// All four are sequentially consistent, so that (2) sees (a) or (b) sees (1). The
// peer rings once for a number.
func (l *Link) armBell() bool {
	if !l.armed.CompareAndSwap(false, true) {
		return false
	}
	l.near.armed.Swap(l.armSeq.Add(1)) // and no Store: see package shm
	return true
}

// ringBell wakes the peer if it asks for that.
func (l *Link) ringBell() {
	var fence atomic.Uint32
	fence.Swap(1) // commit makes none
	a := l.far.armed.Load()
	if a == 0 || a == l.rung.Load() || l.rung.Swap(a) == a {
		return
	}
	l.count.bells.Add(1)
	l.sock.ring()
}

// wakePeer has the peer look at credits and space.
func (l *Link) wakePeer() {
	l.near.events.Add(1)
	l.ringBell()
}

// Mailbox implements link.Active.
func (a active) Mailbox(v fabric.VPID, limit int) {
	l := a.Link
	if o := &l.offered[v]; o.Load() < uint64(limit) {
		o.Store(uint64(limit)) // before the peer can use it; calls are serialised
	}
	l.near.box[v].Store(uint64(limit))
}
