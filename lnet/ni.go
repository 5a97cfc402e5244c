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

// Bounds of what a peer can make an interface keep.
const (
	maxTransfers = 128  // RMA operations for it
	maxAnswers   = 1024 // ACKs, REPLYs and NAKs that wait for it
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

// NI is a network interface of LNET (lnet_ni): a node's end of the network.
type NI struct {
	cfg      Config
	nic      *nic.NIC
	velo     *velo.Endpoint
	rma      *rma.Endpoint
	cookie   uint64 // of this incarnation
	wake     chan struct{}
	credited atomic.Bool // VELO credits have come back

	mu       sync.Mutex
	closed   bool                    // guarded by mu
	portals  [Portals][]*MD          // guarded by mu; match entries in use
	peers    map[fabric.NodeID]*peer // guarded by mu
	tx       int                     // guarded by mu; free TX credits
	hungry   []*peer                 // guarded by mu; peers that wait for one
	due      []*peer                 // guarded by mu; peers whose queues may move
	ops      map[*op]struct{}        // guarded by mu; under way
	expected map[key]*op             // guarded by mu; of these, those that a notification ends
	answers  map[uint64]*op          // guarded by mu; of these, those that an ACK or REPLY ends
	closing  []*op                   // guarded by mu; ended, but a transfer runs on the memory
	last     uint64                  // guarded by mu; number of the last operation
	events   []Event                 // guarded by mu
	stats    Stats                   // guarded by mu
}

// key finds an operation by a notification: the three descriptor queues of section 6.5.2.
type key struct {
	writer rma.Writer
	node   fabric.NodeID
	last   atu.NLA // of the last fragment
}

// peer is what an interface knows of a node. NI.mu guards it.
type peer struct {
	node      fabric.NodeID
	credits   int   // free ones
	queue     []*op // messages not yet sent, in order
	answers   int   // those of them that answer the peer's
	hungry    bool  // in NI.hungry
	transfers int
	buf       []byte // pieces of a message of which more follow
	open      bool
}

// Stats are the counters of an interface.
type Stats struct {
	Naks             uint64 // messages refused
	BadMessages      uint64 // messages that break the protocol
	Unmatched        uint64 // notifications and answers that belong to no operation
	AnswersDropped   uint64 // answers to a peer that takes none
	Failed, TimedOut uint64 // operations that ended with an error; of these, by timeout
}

// Stats returns the counters.
func (ni *NI) Stats() Stats {
	ni.mu.Lock()
	defer ni.sendAndUnlock()
	return ni.stats
}

var incarnations atomic.Uint64

// Open makes the interface of a NIC (LNetNIInit). Close releases what it took.
func Open(n *nic.NIC, cfg Config) (*NI, error) {
	for _, f := range []struct {
		field    *int
		standard int
	}{{&cfg.TXCredits, DefaultTXCredits}, {&cfg.PeerCredits, DefaultPeerCredits}} {
		if *f.field == 0 {
			*f.field = f.standard
		}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Immediate < 0 || cfg.Immediate > MaxImmediate || cfg.TXCredits < 0 || cfg.PeerCredits < 0 || cfg.Timeout < 0 {
		return nil, fmt.Errorf("lnet: %+v: use 0 to %d bytes by VELO alone, and nothing negative: %w", cfg, MaxImmediate, fabric.ErrInvalid)
	}
	ni := &NI{
		cfg: cfg, nic: n, tx: cfg.TXCredits, wake: make(chan struct{}, 1),
		cookie: uint64(time.Now().UnixNano()) + incarnations.Add(1),
		peers:  make(map[fabric.NodeID]*peer), ops: make(map[*op]struct{}),
		expected: make(map[key]*op), answers: make(map[uint64]*op),
	}
	var err error
	if ni.velo, err = n.OpenVELO(cfg.VPID, velo.Config{}); err != nil {
		return nil, fmt.Errorf("lnet: open VELO: %w", err)
	}
	if ni.rma, err = n.OpenRMA(cfg.VPID, rma.Config{}); err != nil {
		return nil, errors.Join(fmt.Errorf("lnet: open RMA: %w", err), ni.velo.Close())
	}
	ni.velo.OnInterrupt(ni.rouse)
	ni.rma.OnInterrupt(ni.rouse)
	ni.velo.OnCredit(func(fabric.NodeID) { // perhaps in a Send under mu
		ni.credited.Store(true)
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
	defer ni.sendAndUnlock()
	tx = ni.tx
	for _, p := range ni.hungry {
		tx -= len(p.queue)
	}
	p := ni.peerOf(n)
	peer = p.credits
	for _, o := range p.queue {
		if o.chargeable && !o.charged {
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

// peerOf returns the peer of a node. The caller holds mu.
func (ni *NI) peerOf(n fabric.NodeID) *peer {
	p := ni.peers[n]
	if p == nil {
		p = &peer{node: n, credits: ni.cfg.PeerCredits}
		ni.peers[n] = p
	}
	return p
}

// sendAndUnlock sends what can be sent now, and releases mu.
//
// +checklocksrelease:ni.mu
func (ni *NI) sendAndUnlock() {
	for len(ni.due) > 0 {
		p := ni.due[0]
		ni.due = ni.due[1:]
		ni.sendWaiting(p)
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
func (ni *NI) Poll(budget int) (done int) {
	ni.mu.Lock()
	if ni.credited.Swap(false) {
		for _, p := range ni.peers {
			ni.due = append(ni.due, p)
		}
	}
	closing := ni.closing
	ni.closing = nil
	for _, o := range closing {
		ni.endOp(o)
	}
	ni.sendAndUnlock()
	for range budget {
		n, ok := ni.rma.Next()
		if !ok {
			break
		}
		ni.mu.Lock()
		ni.endNotified(n)
		ni.sendAndUnlock()
		done++
	}
	for range budget {
		st, b, ok := ni.velo.Peek()
		if !ok {
			break
		}
		ni.mu.Lock()
		if !ni.handleMessage(st, b) {
			ni.stats.BadMessages++
		}
		ni.sendAndUnlock()
		ni.velo.Advance()
		done++
	}
	return done + ni.runHandlers()
}

// Expire ends with ErrTimeout the operations whose peers have not done their part by now. Run
// calls it.
func (ni *NI) Expire(now time.Time) {
	ni.mu.Lock()
	defer ni.sendAndUnlock()
	for o := range ni.ops {
		if !o.deadline.IsZero() && now.After(o.deadline) {
			ni.stats.TimedOut++
			ni.failOp(o, ErrTimeout)
		}
	}
}

// Close releases the interface (LNetNIFini). It waits for transfers that run on its memory.
// Operations under way end with fabric.ErrClosed.
func (ni *NI) Close() error {
	ni.mu.Lock()
	if ni.closed {
		ni.sendAndUnlock()
		return fmt.Errorf("lnet: %w", fabric.ErrClosed)
	}
	ni.closed = true
	err := errors.Join(ni.velo.Close(), ni.rma.Close())
	for o := range ni.ops {
		o.closeRegion()
		ni.failOp(o, fmt.Errorf("lnet: %w", fabric.ErrClosed))
	}
	for _, o := range ni.closing {
		o.closeRegion()
		ni.endOp(o)
	}
	ni.closing = nil
	ni.sendAndUnlock()
	ni.runHandlers()
	return err
}
