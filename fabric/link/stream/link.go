package stream

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/internal/sealed"
	"exnet/fabric/link"
	"exnet/internal/counter"
)

// Link joins the local NIC with one peer.
//
// Concurrency: all methods may be called from many goroutines.
type Link struct {
	nic   link.NIC
	cfg   Config
	conns []*conn
	count counters

	down  atomic.Bool // nothing is started any more
	cause link.Cause
	done  chan struct{}

	boxes   [fabric.VPIDs]atomic.Uint32 // credits of the peer's mailboxes; 0: not open
	offered [fabric.VPIDs]atomic.Uint64 // the most credits that an own mailbox has had
	flowMu  sync.Mutex                  // serialises OpenFlow
	outs    atomic.Pointer[[]*outflow]

	out     outbox
	ops     opTable
	serving serveTable
	beat    beat
	moved   atomic.Uint64 // bytes of transfers, both ways
	_       [128]byte

	pumping sync.Mutex // held by the pump: whoever takes what has come
	ins     []*inflow  // the pump's
	calls   *callList  // the pump's
	spare   atomic.Pointer[callList]
	_       [128]byte

	started   atomic.Bool
	awake     atomic.Bool // whoever serves the link looks at it before it waits
	dirty     atomic.Bool // something is queued that nobody is sending
	woken     atomic.Bool // the eventfd was written, or is about to be
	resumeDue atomic.Bool // tell the flows that were refused a slot
	drained   bool        // the driver's: the last look has taken everything
	unheard   int64       // the driver's: wakes that it knows of, but for those that it has read
	left      chan struct{}
	eventMu   sync.RWMutex
	events    events // event: guarded by eventMu
}

// New joins n with the node at the other end of cfg.Conns, which calls New, too. It
// takes the connections, even if it fails. When it returns, the mailboxes that the
// peer had open are known, those that it opens later will be. The caller makes sure
// that n has no other link to the peer. It must not be called by the driver's thread.
func New(n link.NIC, cfg Config) (*Link, error) {
	l := &Link{
		nic: n, done: make(chan struct{}), left: make(chan struct{}),
		calls: new(callList), events: events{set: -1, event: -1},
	}
	err := l.connectAll(cfg)
	if err != nil {
		for _, c := range cfg.Conns {
			_ = c.Close() // the first error says more
		}
		if cfg.Engine != nil && len(l.conns) == 0 {
			cfg.Engine.Close()
		}
		return nil, err
	}
	return l, nil
}

func (l *Link) connectAll(cfg Config) (err error) {
	if l.cfg, err = cfg.withDefaults(); err != nil {
		return err
	}
	l.outs.Store(new([]*outflow))
	l.out.init()
	l.ops.init()
	l.serving.init()
	l.nic.AddLink(active{l})
	conns, err := l.exchangeHellos(l.cfg.Conns)
	if err == nil {
		err = l.makeConns(conns)
	}
	if err != nil {
		l.nic.RemoveLink(active{l})
		for _, c := range l.conns {
			c.close()
		}
		l.events.close()
		return err
	}
	l.started.Store(true)
	l.nic.ATU().OpenBook(l.cfg.Peer, book{l})
	l.nic.Connect(l.cfg.Peer, port{l})
	driven := l.cfg.Driver != nil
	if driven && !l.cfg.Driver.Take(served{l}) {
		driven = false
	}
	go l.runPump(driven)
	l.beat.startTimer(l)
	return nil
}

// makeConns makes the connections of the link.
func (l *Link) makeConns(conns []net.Conn) error {
	if e := l.cfg.Engine; e != nil {
		return l.adoptEngine(e, conns)
	}
	for i := range conns {
		c := &conn{messages: i == 0, data: i > 0 || len(conns) == 1, fd: -1}
		c.rx.init()
		l.conns = append(l.conns, c)
	}
	if err := l.events.open(); err != nil {
		return fmt.Errorf("stream: connect: %w", err)
	}
	for i, c := range l.conns {
		if err := c.takeSocket(tcpOf(conns[i]), l.events.set); err != nil {
			return err
		}
		if t, u := sealed.Of(conns[i]); u != nil {
			u.Take(socket{c})
			c.crypt = &crypt{tls: t, under: u}
			c.crypt.more.Store(true) // the peer may have sent something after its hello
		}
	}
	return nil
}

// tcpOf is the TCP connection whose socket the link uses itself, or nil.
func tcpOf(c net.Conn) *net.TCPConn {
	if _, u := sealed.Of(c); u != nil {
		return u.TCPConn
	}
	t, _ := c.(*net.TCPConn)
	return t
}

// adoptEngine has e carry what is said from now on.
func (l *Link) adoptEngine(e Engine, conns []net.Conn) error {
	c := &conn{messages: true, data: true, fd: -1, engine: e}
	c.rx.init()
	l.conns = []*conn{c}
	for _, nc := range conns {
		_ = nc.Close() // all was said
	}
	if err := l.events.open(); err != nil {
		return fmt.Errorf("stream: connect: %w", err)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(e.Fd())}
	if err := unix.EpollCtl(l.events.set, unix.EPOLL_CTL_ADD, e.Fd(), &ev); err != nil {
		return fmt.Errorf("stream: connect: %w", err)
	}
	return nil
}

// runPump is the link's goroutine.
func (l *Link) runPump(driven bool) {
	defer close(l.done)
	if driven {
		<-l.left
	}
	l.serveAlone() // after a driver: what is left, if the link has not ended yet
	l.endEverything()
}

// endEverything ends everything.
func (l *Link) endEverything() {
	l.beat.stopTimer()
	l.nic.Disconnect(l.cfg.Peer)
	l.nic.RemoveLink(active{l})
	l.nic.ATU().CloseBook(l.cfg.Peer, book{l})
	// Nobody reads or writes any more, for good.
	l.pumping.Lock()
	for _, c := range l.conns {
		c.wmu.Lock()
		c.close()
	}
	l.eventMu.Lock()
	l.events.close()
	l.eventMu.Unlock()
	for _, f := range l.ins {
		f.noteDown()
	}
	l.endAll()
	l.failAll()
	for _, f := range *l.outs.Load() {
		f.dead.Store(true)
		f.credit.Down()
	}
	l.nic.PeerDown(l.cfg.Peer)
}

// Peer returns the node on the other end.
func (l *Link) Peer() fabric.NodeID { return l.cfg.Peer }

// Name is what carries the link: stream, or the engine's.
func (l *Link) Name() string {
	if e := l.cfg.Engine; e != nil {
		return e.Name()
	}
	return "stream"
}

// Done returns a channel that is closed when the link is down and everything is
// given back.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err is why the link is down: ErrGone, ErrSilent, ErrStuck, ErrBreach or fabric.ErrClosed.
// Nil while it is up.
func (l *Link) Err() error { return l.cause.Err() }

// Close takes the link down. It does not wait; Done does.
func (l *Link) Close() error {
	if !l.takeDown(fmt.Errorf("stream: link: %w", fabric.ErrClosed)) {
		return fmt.Errorf("stream: close: %w", fabric.ErrClosed)
	}
	return nil
}

// takeDown takes the link down, for the first reason that there is. It runs no handler: the
// link's goroutine does.
func (l *Link) takeDown(why error) bool {
	if !l.cause.Set(why) {
		return false
	}
	l.down.Store(true)
	l.wakeServer()
	return true
}

// queueMessage queues a message.
func (l *Link) queueMessage(m *message) {
	l.out.addMessage(m)
	l.dirty.Store(true)
}

// Stats returns the counters.
func (l *Link) Stats() (s Stats) {
	counter.Load(&l.count, &s)
	return s
}

// RTT is the round trip of the last heartbeat that was answered; 0: none was yet.
func (l *Link) RTT() time.Duration {
	return time.Duration(l.count.RTTMicros.Load()) * time.Microsecond
}

// reclaims is how many seconds a peer has to let go of memory whose owner closes it.
const reclaims = 10

// book has the link told when memory is wanted back. It shows nothing: the peer cannot
// read it without asking.
type book struct{ l *Link }

// Show implements atu.Book.
func (b book) Show(atu.NLA, int, int, fabric.VPID) bool { return false }

// Withdraw implements atu.Book.
func (b book) Withdraw(atu.NLA) bool { return true }

// Reclaim implements atu.Book. A transfer over a slow way may take a while.
func (b book) Reclaim(mem []byte) { b.l.reclaimMemory(mem, reclaims) }

func (l *Link) reclaimMemory(mem []byte, more int) {
	switch {
	case !l.isLending(mem):
	case more == 0:
		l.endByBreach(errors.New("the peer does not release memory"))
	default:
		time.AfterFunc(time.Second, func() { l.reclaimMemory(mem, more-1) })
	}
}

// isLending reports whether the peer reads or writes any of mem.
func (l *Link) isLending(mem []byte) bool {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	for x := range l.out.live {
		if doOverlap(x.data, mem) {
			return true
		}
	}
	l.serving.mu.Lock()
	defer l.serving.mu.Unlock()
	for p := range l.serving.lands {
		if doOverlap(p.place, mem) {
			return true
		}
	}
	return false
}

var _ atu.Book = book{}
