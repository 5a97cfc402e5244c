package lnet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// Defaults of Config (thesis section 6.6).
const (
	DefaultTXCredits   = 256
	DefaultPeerCredits = 8
	DefaultTimeout     = 5 * time.Second
)

// MaxImmediate is the largest Config.Immediate: four VELO messages with the header.
const MaxImmediate = 4*velo.MaxPayload - HeaderLen

// Bounds of what peers can make an interface keep.
const (
	maxTransfers     = 1024 // RMA operations for peers
	maxPeerTransfers = 128  // of these, for one peer
	maxPeerAnswers   = 1024 // ACKs, REPLYs and NAKs that wait for one peer
)

// Config configures an interface. The zero value of a field means its default.
type Config struct {
	// VPID is the virtual process ID on every node, for VELO and RMA. Default 0.
	VPID fabric.VPID
	// Immediate is how many bytes go by VELO alone, 0 to MaxImmediate. Default 0, as
	// the seed's prototype does: all messages with bytes go by RMA.
	Immediate int
	// TXCredits is how many sends to all peers are under way at most, PeerCredits
	// how many to one.
	TXCredits, PeerCredits int
	// Timeout is how long a peer may take for its part of an operation.
	Timeout time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.TXCredits == 0 {
		c.TXCredits = DefaultTXCredits
	}
	if c.PeerCredits == 0 {
		c.PeerCredits = DefaultPeerCredits
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	switch {
	case c.Immediate < 0 || c.Immediate > MaxImmediate:
		return c, fmt.Errorf("lnet: %d bytes by VELO alone; use 0 to %d", c.Immediate, MaxImmediate)
	case c.TXCredits < 1 || c.PeerCredits < 1:
		return c, fmt.Errorf("lnet: %d TX and %d peer credits; at least 1 of each is needed", c.TXCredits, c.PeerCredits)
	case c.Timeout < 0:
		return c, fmt.Errorf("lnet: timeout %v is negative", c.Timeout)
	}
	return c, nil
}

// NI is a network interface of LNET (lnet_ni): a node's end of the network.
type NI struct {
	cfg    Config
	nic    *nic.NIC
	velo   *velo.Endpoint
	rma    *rma.Endpoint
	cookie uint64 // of this incarnation
	wake   chan struct{}

	mu      sync.Mutex
	closed  bool                    // guarded by mu
	portals [Portals][]*MatchEntry  // guarded by mu
	peers   map[fabric.NodeID]*peer // guarded by mu
	tx      int                     // guarded by mu; free TX credits
	hungry  []*peer                 // guarded by mu; peers that wait for one
	due     []*peer                 // guarded by mu; peers whose queues may move
	queues  [3]map[key]*op          // guarded by mu; by the writer of the notification
	answers map[uint64]*op          // guarded by mu; who waits for an ACK or REPLY
	last    uint64                  // guarded by mu; number of the last operation
	pending map[*op]struct{}        // guarded by mu; operations with a deadline
	closing []*op                   // guarded by mu; ended, but a peer's transfer runs on the memory
	events  []delivery              // guarded by mu

	credited struct {
		sync.Mutex
		nodes []fabric.NodeID
	}

	transfers int // RMA operations for peers; belongs to the poller
	stats     counters
}

// key finds an operation by what a notification says.
type key struct {
	node fabric.NodeID
	last atu.NLA
}

// peer is what an interface knows of a node.
type peer struct {
	node    fabric.NodeID
	credits int   // guarded by NI.mu; free ones
	queue   []*op // guarded by NI.mu; messages not yet sent, in order
	answers int   // guarded by NI.mu; those of them that answer the peer's
	hungry  bool  // guarded by NI.mu; in NI.hungry

	// The rest belongs to the poller.
	transfers int
	buf       []byte // pieces of a message of which more follow
	open      bool
}

// Stats are the counters of an interface.
type Stats struct {
	Sent, Received   uint64 // VELO messages
	Gets, Puts       uint64 // RMA operations started for peers
	Naks             uint64 // messages refused
	BadMessages      uint64 // messages that break the protocol
	Unmatched        uint64 // notifications and answers that belong to no operation
	AnswersDropped   uint64 // answers to a peer that takes none
	Failed, TimedOut uint64 // operations that ended with an error; of these, by timeout
}

type counters struct {
	sent, received, gets, puts, naks, bad, unmatched, dropped, failed, timedOut atomic.Uint64
}

// Stats returns the counters.
func (ni *NI) Stats() Stats {
	c := &ni.stats
	return Stats{c.sent.Load(), c.received.Load(), c.gets.Load(), c.puts.Load(), c.naks.Load(), c.bad.Load(),
		c.unmatched.Load(), c.dropped.Load(), c.failed.Load(), c.timedOut.Load()}
}

var incarnations atomic.Uint64

// Open makes the interface of a NIC (LNetNIInit). Close releases what it took.
func Open(n *nic.NIC, cfg Config) (*NI, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	ni := &NI{
		cfg: cfg, nic: n, tx: cfg.TXCredits, wake: make(chan struct{}, 1),
		cookie: uint64(time.Now().UnixNano()) + incarnations.Add(1),
		peers:  make(map[fabric.NodeID]*peer), answers: make(map[uint64]*op), pending: make(map[*op]struct{}),
	}
	for i := range ni.queues {
		ni.queues[i] = make(map[key]*op)
	}
	if ni.velo, err = n.OpenVELO(cfg.VPID, velo.Config{}); err != nil {
		return nil, fmt.Errorf("lnet: open VELO: %w", err)
	}
	if ni.rma, err = n.OpenRMA(cfg.VPID, rma.Config{}); err != nil {
		return nil, errors.Join(fmt.Errorf("lnet: open RMA: %w", err), ni.velo.Close())
	}
	ni.velo.OnInterrupt(ni.rouse)
	ni.rma.OnInterrupt(ni.rouse)
	ni.velo.OnCredit(func(n fabric.NodeID) {
		ni.credited.Lock()
		ni.credited.nodes = append(ni.credited.nodes, n)
		ni.credited.Unlock()
		ni.rouse()
	})
	return ni, nil
}

// ID returns the node's NID.
func (ni *NI) ID() NID { return NIDOf(ni.nic.ID()) }

// Credits returns the free credits for all peers and for one. A negative number says how many
// messages wait (section 6.2.3).
func (ni *NI) Credits(n fabric.NodeID) (tx, peer int) {
	ni.mu.Lock()
	defer ni.unlock()
	tx = ni.tx
	for _, p := range ni.hungry {
		tx -= len(p.queue)
	}
	p := ni.peer(n)
	peer = p.credits
	for _, o := range p.queue {
		if o.chargeable && !o.credited {
			peer--
		}
	}
	return tx, peer
}

func (ni *NI) rouse() {
	select {
	case ni.wake <- struct{}{}:
	default:
	}
}

// peer returns the peer of a node. The caller holds mu.
func (ni *NI) peer(n fabric.NodeID) *peer {
	p := ni.peers[n]
	if p == nil {
		p = &peer{node: n, credits: ni.cfg.PeerCredits}
		ni.peers[n] = p
	}
	return p
}

// unlock sends what can be sent now, and releases mu.
//
// +checklocksrelease:ni.mu
func (ni *NI) unlock() {
	for len(ni.due) > 0 {
		p := ni.due[0]
		ni.due = ni.due[1:]
		ni.pump(p)
	}
	if len(ni.events) > 0 {
		ni.rouse()
	}
	ni.mu.Unlock()
}

// Run polls until ctx is cancelled, and sleeps when there is nothing to do.
func (ni *NI) Run(ctx context.Context) {
	tick := time.NewTicker(min(ni.cfg.Timeout/4+1, 100*time.Millisecond))
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case now := <-tick.C:
			ni.Expire(now)
		default:
		}
		if ni.Poll(64) > 0 {
			continue
		}
		messages := ni.velo.EnableInterrupt()
		if ni.rma.EnableInterrupt() || messages {
			continue
		}
		select {
		case <-ctx.Done():
		case <-ni.wake:
		case now := <-tick.C:
			ni.Expire(now)
		}
	}
}

// Poll handles up to budget messages and as many notifications, and runs the handlers of events.
// It returns how much of all these it handled.
func (ni *NI) Poll(budget int) int {
	ni.credited.Lock()
	nodes := ni.credited.nodes
	ni.credited.nodes = nil
	ni.credited.Unlock()
	ni.mu.Lock()
	for _, n := range nodes {
		ni.due = append(ni.due, ni.peer(n))
	}
	closing := ni.closing
	ni.closing = nil
	for _, o := range closing {
		ni.end(o)
	}
	ni.unlock()
	done := 0
	for range budget {
		n, ok := ni.rma.Next()
		if !ok {
			break
		}
		done++
		ni.notified(n)
	}
	for range budget {
		st, b, ok := ni.velo.Peek()
		if !ok {
			break
		}
		done++
		ni.receive(st, b)
		ni.velo.Advance()
	}
	return done + ni.deliver()
}

// Expire ends with ErrTimeout the operations whose peers have not done their part by now. Run
// calls it.
func (ni *NI) Expire(now time.Time) {
	ni.mu.Lock()
	defer ni.unlock()
	for o := range ni.pending {
		if now.After(o.deadline) {
			ni.stats.timedOut.Add(1)
			ni.fail(o, ErrTimeout)
		}
	}
}

// Close releases the interface (LNetNIFini). Operations under way end with fabric.ErrClosed.
func (ni *NI) Close() error {
	ni.mu.Lock()
	if ni.closed {
		ni.unlock()
		return fmt.Errorf("lnet: %w", fabric.ErrClosed)
	}
	ni.closed = true
	ni.unlock()
	err := errors.Join(ni.velo.Close(), ni.rma.Close())
	ni.mu.Lock()
	closing := ni.closing
	ni.closing = nil
	for _, q := range ni.queues {
		for _, o := range q { // those of peers are not in pending
			ni.pending[o] = struct{}{}
		}
	}
	for o := range ni.pending {
		ni.detach(o)
		if o.err == nil {
			o.err = fmt.Errorf("lnet: %w", fabric.ErrClosed)
		}
		closing = append(closing, o)
	}
	ni.unlock()
	for _, o := range closing {
		if o.region != nil {
			_ = o.region.Close() // waits for a transfer
			o.region = nil
		}
	}
	ni.mu.Lock()
	for _, o := range closing {
		ni.end(o)
	}
	ni.unlock()
	ni.deliver()
	return err
}
