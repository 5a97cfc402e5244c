package velo

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/profile"
	"exnet/fabric/route"
)

// Unit is the VELO unit of one NIC.
//
// Concurrency: all methods may be called from many goroutines.
type Unit struct {
	self    fabric.NodeID
	routes  *route.Table
	eps     [fabric.VPIDs]atomic.Pointer[Endpoint]
	trees   sync.Pool
	closed  atomic.Bool
	profile atomic.Pointer[profile.Profile] // nil: nobody counts

	mu sync.Mutex // guards the counters of closed endpoints
	// +checklocks:mu
	past Stats
}

// NewUnit returns the unit of the NIC self, which finds its peers in routes.
func NewUnit(self fabric.NodeID, routes *route.Table) *Unit {
	return &Unit{self: self, routes: routes}
}

// Open opens the mailbox of vpid. The error wraps ErrInUse if it is open already,
// ErrInvalid, or ErrClosed.
func (u *Unit) Open(vpid fabric.VPID, cfg Config) (*Endpoint, error) {
	if !vpid.Valid() {
		return nil, fmt.Errorf("velo: open: VPID %d: %w", vpid, fabric.ErrInvalid)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Endpoint{unit: u, vpid: vpid, box: newMailbox(cfg.Slots, cfg.Credits)}
	e.box.links = &u.routes.Links
	if !u.eps[vpid].CompareAndSwap(nil, e) {
		return nil, fmt.Errorf("velo: open: VPID %d: %w", vpid, fabric.ErrInUse)
	}
	u.routes.Links.Mailbox(vpid, cfg.Credits)
	if u.closed.Load() {
		e.Close()
		return nil, fmt.Errorf("velo: open: %w", fabric.ErrClosed)
	}
	return e, nil
}

// SetProfile makes the unit count in p what it sends from now on; nil stops that.
func (u *Unit) SetProfile(p *profile.Profile) {
	u.profile.Store(p) // flows that are opened from now on see it
	for i := range u.eps {
		e := u.eps[i].Load()
		if e == nil {
			continue
		}
		e.mu.Lock()
		for _, set := range e.flows.All() {
			for _, f := range *set {
				e.tallyFlow(f)
			}
		}
		e.mu.Unlock()
	}
}

// tallyFlow makes a flow count in the unit's profile, if there is one. The caller holds
// e.mu.
func (e *Endpoint) tallyFlow(f *outflow) {
	if p := e.unit.profile.Load(); p != nil {
		f.tally.Begin(p, profile.Pair{Src: e.unit.self, SrcVPID: e.vpid, Dst: f.dst, DstVPID: f.vpid}, &f.sent)
	} else {
		f.tally.End()
	}
}

// Accept opens a flow from a peer's mailbox; the link vouches for src.
func (u *Unit) Accept(src fabric.NodeID, from, to fabric.VPID, c link.Credit) (link.Flow, error) {
	if !from.Valid() || !to.Valid() {
		return nil, fmt.Errorf("velo: accept: VPID %d to %d: %w", from, to, fabric.ErrInvalid)
	}
	e := u.eps[to].Load()
	if e == nil {
		return nil, errMailboxClosed
	}
	f, err := e.box.openFlow(src, from, c)
	if err != nil { // do not return f: a nil *inflow is not a nil Flow
		return nil, err
	}
	return f, nil
}

// PeerDown ends all flows to n, and wakes the senders that wait for its credit. The
// caller has removed the route to n.
func (u *Unit) PeerDown(n fabric.NodeID) {
	for i := range u.eps {
		if e := u.eps[i].Load(); e != nil {
			e.peerDown(n)
		}
	}
}

// Close closes all endpoints and refuses new ones.
func (u *Unit) Close() {
	u.closed.Store(true)
	for i := range u.eps {
		if e := u.eps[i].Load(); e != nil {
			e.Close()
		}
	}
}

func (u *Unit) tree() *tree {
	if t, ok := u.trees.Get().(*tree); ok {
		return t
	}
	return new(tree)
}

func (u *Unit) fellTree(t *tree) {
	clear(t.branches)
	t.branches = t.branches[:0]
	u.trees.Put(t)
}

// Stats are the counters of the unit, over all endpoints, open and closed.
type Stats struct {
	Sent             uint64 // messages sent; each member of a multicast counts
	Multicasts       uint64 // multicast messages sent
	MulticastSkipped uint64 // members left out by SendMulticastSkip or SendMulticastTo
	MulticastAbsent  uint64 // members left out because their mailbox was not open
	Received         uint64 // slots read and freed
	Void             uint64 // slots skipped: abandoned by a multicast
	BadSlot          uint64 // slots skipped: impossible length or source
	BadFlow          uint64 // slots skipped: unknown flow number
	NoCredit         uint64 // sends refused for lack of credit
	MailboxFull      uint64 // sends refused because the mailbox was full
	PeerDown         uint64 // sends refused because the peer is down or its mailbox not open
	NoRoute          uint64 // sends refused because the node is unknown
	CreditEvents     uint64 // calls of OnCredit
	Interrupts       uint64 // calls of OnInterrupt
}

type endpointCounters struct {
	multicasts, multicastSkipped, multicastAbsent   atomic.Uint64
	noCredit, full, peerDown, noRoute, creditEvents atomic.Uint64
}

func (c *endpointCounters) refusal(err error) {
	switch {
	case err == errNoCredit:
		c.noCredit.Add(1)
	case errors.Is(err, fabric.ErrAgain):
		c.full.Add(1)
	case errors.Is(err, fabric.ErrPeerDown):
		c.peerDown.Add(1)
	case errors.Is(err, fabric.ErrNoRoute):
		c.noRoute.Add(1)
	}
}

func (s *Stats) add(o Stats) {
	s.Sent += o.Sent
	s.Multicasts += o.Multicasts
	s.MulticastSkipped += o.MulticastSkipped
	s.MulticastAbsent += o.MulticastAbsent
	s.Received += o.Received
	s.Void += o.Void
	s.BadSlot += o.BadSlot
	s.BadFlow += o.BadFlow
	s.NoCredit += o.NoCredit
	s.MailboxFull += o.MailboxFull
	s.PeerDown += o.PeerDown
	s.NoRoute += o.NoRoute
	s.CreditEvents += o.CreditEvents
	s.Interrupts += o.Interrupts
}

// Stats returns the counters of e alone.
func (e *Endpoint) Stats() Stats {
	e.mu.Lock()
	sent := e.sentBefore
	for _, set := range e.flows.All() {
		for _, f := range *set {
			sent += f.sent.Load()
		}
	}
	e.mu.Unlock()
	return Stats{
		Sent:             sent,
		Multicasts:       e.count.multicasts.Load(),
		MulticastSkipped: e.count.multicastSkipped.Load(),
		MulticastAbsent:  e.count.multicastAbsent.Load(),
		Received:         e.box.head.Load(),
		Void:             e.box.count.void.Load(),
		BadSlot:          e.box.count.badSlot.Load(),
		BadFlow:          e.box.count.badFlow.Load(),
		NoCredit:         e.count.noCredit.Load(),
		MailboxFull:      e.count.full.Load(),
		PeerDown:         e.count.peerDown.Load(),
		NoRoute:          e.count.noRoute.Load(),
		CreditEvents:     e.count.creditEvents.Load(),
		Interrupts:       e.box.line.Fired(),
	}
}

// Stats returns the unit's counters.
func (u *Unit) Stats() Stats {
	u.mu.Lock()
	s := u.past
	u.mu.Unlock()
	for i := range u.eps {
		if e := u.eps[i].Load(); e != nil {
			s.add(e.Stats())
		}
	}
	return s
}

// keepCounters adds the counters of an endpoint that is being closed to the unit's.
func (u *Unit) keepCounters(e *Endpoint) {
	s := e.Stats()
	u.mu.Lock()
	u.past.add(s)
	u.mu.Unlock()
}
