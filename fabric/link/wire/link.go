package wire

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/internal/counter"
)

// NIC is what a link needs of a NIC; *nic.NIC has it.
type NIC interface {
	ID() fabric.NodeID
	Connect(to fabric.NodeID, p link.Port)
	Disconnect(from fabric.NodeID)
	PeerDown(from fabric.NodeID)
	link.Handler
	link.Lender
}

// Config configures a Link. The zero value of a field means its default. Both ends
// have the same.
type Config struct {
	// DownAfter is how long packets may stay unacknowledged before the link is
	// declared down. Default 1 s, at least 10 ms.
	DownAfter time.Duration
	// Room is how many buffers the receiver has for each channel, 1 to Window; of them GETs use 32
	// at most. Default Window.
	Room int
}

func (c Config) withDefaults() (Config, error) {
	if c.DownAfter == 0 {
		c.DownAfter = time.Second
	}
	if c.Room == 0 {
		c.Room = Window
	}
	if c.DownAfter < 10*time.Millisecond || c.Room < 1 || c.Room > Window {
		return c, fmt.Errorf("wire: down after %v, room for %d packets; use at least 10ms, and 1 to %d: %w",
			c.DownAfter, c.Room, Window, fabric.ErrInvalid)
	}
	return c, nil
}

const (
	ackDelay   = 500 * time.Microsecond
	maxPuts    = 64      // of each direction, that move at a time
	maxFlows   = 1 << 16 // of each direction
	maxCredits = 1 << 16 // of a flow
)

var (
	errDown   = fmt.Errorf("wire: %w", fabric.ErrPeerDown)
	errNoBox  = fmt.Errorf("wire: mailbox not open: %w", fabric.ErrPeerDown)
	errFlows  = fmt.Errorf("wire: link has no flow numbers left: %w", fabric.ErrPeerDown)
	errSilent = fmt.Errorf("wire: no acknowledgement for too long: %w", fabric.ErrPeerDown)
	errReset  = fmt.Errorf("wire: link reset: %w", fabric.ErrPeerDown)
	errBreach = errors.New("wire: the peer broke the protocol")
)

// Stats are the counters of a Link.
type Stats struct {
	Packets       uint64 // sent, repetitions included
	Retransmitted uint64 // of these, sent before
	Replays       uint64 // times that the sender went back, asked or by itself
	Timeouts      uint64 // of these, by itself
	Received      uint64 // intact packets
	CRCErrors     uint64 // packets that came damaged
	OutOfOrder    uint64 // packets that came too early, and were dropped
	Repeated      uint64 // packets that came again, and were dropped
	Probes        uint64 // packets sent to find out whether the peer is there
	Downs         uint64 // times that the link went down
	TxBytes       uint64 // of packets sent
	RxBytes       uint64 // of intact packets
}

// Plus returns the sums of both.
func (s Stats) Plus(t Stats) Stats {
	s.Packets += t.Packets
	s.Retransmitted += t.Retransmitted
	s.Replays += t.Replays
	s.Timeouts += t.Timeouts
	s.Received += t.Received
	s.CRCErrors += t.CRCErrors
	s.OutOfOrder += t.OutOfOrder
	s.Repeated += t.Repeated
	s.Probes += t.Probes
	s.Downs += t.Downs
	s.TxBytes += t.TxBytes
	s.RxBytes += t.RxBytes
	return s
}

// All yields the counters by name.
func (s Stats) All() iter.Seq2[string, uint64] { return counter.All(s) }

type counters struct {
	Packets, Retransmitted, Replays, Timeouts, Received, CRCErrors, OutOfOrder, Repeated, Probes, Downs, TxBytes, RxBytes atomic.Uint64
}

// Link joins a NIC with a peer over a Medium.
//
// Concurrency: all methods may be called from many goroutines.
type Link struct {
	nic    NIC
	peer   fabric.NodeID
	medium Medium
	cfg    Config
	count  counters
	up     upcalls
	done   chan struct{}

	mu      sync.Mutex
	arq     arq             // guarded by mu
	sent    uint32          // guarded by mu: packets beyond were never sent
	credits credits         // guarded by mu
	lanes   [channels]lane  // guarded by mu: what is to be sent
	turn    channel         // guarded by mu: whose turn it is
	owed    int             // guarded by mu: PUTs of the peer whose end was not sent yet
	outs    []*outflow      // guarded by mu: flows to the peer, by number
	gets    tags            // guarded by mu: own GETs on the way
	putting tags            // guarded by mu: own PUTs on the way
	serving [maxGets]*lease // guarded by mu: GETs of the peer on the way, by tag
	timer   *time.Timer     // guarded by mu until timerFired is called
	ackAt   time.Time       // guarded by mu: when to acknowledge; zero: nothing to
	lastIn  time.Time       // guarded by mu: when the peer was last heard of
	closing bool            // guarded by mu
	reason  error           // guarded by mu: why the link is down
	scratch []byte          // guarded by mu
	packet  []byte          // guarded by mu

	// The reader's.
	ins  []*inflow
	puts map[uint32]*put
}

// Connect joins n with peer over m, which it takes, and has n know the way. The
// link lives until it is closed or down; then n has forgotten the way.
func Connect(n NIC, peer fabric.NodeID, m Medium, cfg Config) (*Link, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	l := &Link{
		nic: n, peer: peer, medium: m, cfg: cfg, done: make(chan struct{}),
		gets: newTags(maxGets), putting: newTags(maxPuts), puts: make(map[uint32]*put),
		lastIn: time.Now(),
	}
	l.arq.init(uint16(cfg.Room))
	l.credits.init(cfg.Room)
	l.up.init()
	l.mu.Lock() // tick uses the timer
	l.timer = time.AfterFunc(cfg.DownAfter/4, l.timerFired)
	l.mu.Unlock()
	n.Connect(peer, port{l})
	go l.up.makeCalls()
	go l.readPackets()
	return l, nil
}

// Peer is the node at the other end.
func (l *Link) Peer() fabric.NodeID { return l.peer }

// Stats returns the counters.
func (l *Link) Stats() (s Stats) {
	counter.Load(&l.count, &s)
	return s
}

// RTT is the mean time until the peer has acknowledged a packet, which it may put off for half a
// millisecond; 0: nothing was acknowledged yet.
func (l *Link) RTT() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arq.trip.mean
}

// Close takes the link down. It does not wait: see Done.
func (l *Link) Close() error { return l.failLink(errDown) }

// Done is closed when the link is down, every operation on it has ended, and nothing
// of it runs any more.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err is why the link is down, or nil.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// failLink has the reader end the link.
func (l *Link) failLink(reason error) error {
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		return nil
	}
	l.closing, l.reason = true, reason
	l.mu.Unlock()
	l.timer.Stop()
	l.count.Downs.Add(1)
	return l.medium.Close()
}

// readPackets is the reader: it takes packets until the medium ends, and then ends the
// link.
func (l *Link) readPackets() {
	b := make([]byte, MaxPacket+1)
	for {
		n, err := l.medium.Receive(b)
		if err != nil {
			if err != io.EOF {
				_ = l.failLink(fmt.Errorf("wire: %w: %w", fabric.ErrPeerDown, err))
			}
			break
		}
		p, err := parsePacket(b[:n])
		m, ok, err := l.acceptPacket(p, err)
		if err == nil && !ok {
			continue
		}
		var msg message
		if err == nil {
			err = msg.parse(m)
		}
		if err == nil {
			err = l.handleMessage(&msg)
		}
		if err != nil {
			_ = l.failLink(fmt.Errorf("%w: %w", errBreach, err))
			break
		}
	}
	_ = l.failLink(errDown)
	l.endOperations()
}

// acceptPacket is the reader's: it gives a packet to the arq and returns the message, if it
// is the next. An error: the peer had no credit for it.
func (l *Link) acceptPacket(p packet, bad error) (m []byte, ok bool, err error) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if bad != nil {
		l.count.CRCErrors.Add(1)
		l.arq.noteDamaged()
		l.transmitQueued(now)
		return nil, false, nil
	}
	l.credits.takeLimits(p.limits)
	l.count.Received.Add(1)
	l.count.RxBytes.Add(uint64(HeaderLen + len(p.message)))
	l.lastIn = now
	early := p.flags&flagData != 0 && int32(p.seq-l.arq.expect) > 0
	m, back, ok := l.arq.receivePacket(p, now)
	switch {
	case ok:
		err = l.countMessage(kind(m[0]))
		if l.ackAt.IsZero() {
			l.ackAt = now.Add(ackDelay)
		}
	case early:
		l.count.OutOfOrder.Add(1)
	case p.flags&flagData != 0:
		l.count.Repeated.Add(1)
	}
	if back {
		l.count.Replays.Add(1)
	}
	l.transmitQueued(now)
	return m, ok, err
}

// countMessage counts a message of the peer, whose buffer is free again if it is not a GET: the
// reader takes no other message before it is done with this one. It belongs to the holder of mu.
func (l *Link) countMessage(k kind) error {
	if k >= kindEnd {
		return nil // parse refuses it
	}
	ch := channelOf[k]
	if !l.credits.countArrived(ch) {
		return fmt.Errorf("message of kind %d without a credit of its channel", k)
	}
	if k != kindGet {
		l.credits.freed[ch]++
	}
	return nil
}

// endOperations ends every operation. It is the reader's last act.
func (l *Link) endOperations() {
	l.mu.Lock()
	outs, ops, serving := l.outs, append(l.gets.takeAll(), l.putting.takeAll()...), l.serving
	l.serving, l.lanes = [maxGets]*lease{}, [channels]lane{}
	l.mu.Unlock()
	l.nic.Disconnect(l.peer)
	for _, f := range outs {
		f.close()
		l.up.queueCall(f.credit.Down)
	}
	for _, o := range ops {
		l.up.queueCall(func() { o.done.Done(fabric.StatusPeerDown) })
	}
	for _, s := range serving {
		if s != nil {
			l.up.queueCall(func() { s.End(false) })
		}
	}
	for _, f := range l.ins {
		f.noteDown()
	}
	l.up.queueCall(func() { l.nic.PeerDown(l.peer) })
	l.up.finishCalls()
	close(l.done)
}
