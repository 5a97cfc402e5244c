package rma

import (
	"fmt"
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
	"exnet/fabric/profile"
	"exnet/fabric/route"
	"exnet/foreign"
)

// Unit is the RMA unit of one NIC.
//
// Concurrency: all methods may be called from many goroutines.
type Unit struct {
	self    fabric.NodeID
	atu     *atu.ATU
	routes  *route.Table
	eps     [fabric.VPIDs]atomic.Pointer[Endpoint]
	ops     sync.Pool
	leases  sync.Pool
	closed  atomic.Bool
	count   counters
	profile atomic.Pointer[profile.Profile] // nil: nobody counts
	onClose func(fabric.VPID)               // may be nil
}

// NewUnit returns the unit of the NIC self, which translates addresses with a and
// finds its peers in routes.
func NewUnit(self fabric.NodeID, a *atu.ATU, routes *route.Table) *Unit {
	return &Unit{self: self, atu: a, routes: routes}
}

// Open opens vpid. The error wraps ErrInUse if it is open already, ErrInvalid, or
// ErrClosed.
func (u *Unit) Open(vpid fabric.VPID, cfg Config) (*Endpoint, error) {
	if !vpid.Valid() {
		return nil, fmt.Errorf("rma: open: VPID %d: %w", vpid, fabric.ErrInvalid)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Endpoint{unit: u, vpid: vpid, queue: newQueue(cfg.Notifications)}
	e.queue.links = &u.routes.Links
	if !u.eps[vpid].CompareAndSwap(nil, e) {
		return nil, fmt.Errorf("rma: open: VPID %d: %w", vpid, fabric.ErrInUse)
	}
	if u.closed.Load() {
		e.Close()
		return nil, fmt.Errorf("rma: open: %w", fabric.ErrClosed)
	}
	return e, nil
}

// OnClose sets the function that is called when an endpoint has been closed. Call it before Open.
func (u *Unit) OnClose(f func(fabric.VPID)) { u.onClose = f }

// Tell writes the notification of an operation that a peer has done itself on the memory of to. It
// returns false if the queue has no room, to is not open, or isOurs, which it calls when it has
// found the endpoint, is false: the endpoint is a successor of the one that was meant.
func (u *Unit) Tell(to fabric.VPID, n Notification, isOurs func() bool) bool {
	if !to.Valid() || !n.valid() {
		u.count.badRequests.Add(1)
		return true
	}
	e := u.eps[to].Load()
	if e == nil || !isOurs() || !e.queue.roomForeign() {
		return false
	}
	u.count.served.Add(1)
	e.queue.writeReserved(n)
	return true
}

// SetProfile makes the unit count in p what is started from now on; nil stops that.
func (u *Unit) SetProfile(p *profile.Profile) { u.profile.Store(p) }

// Close closes all endpoints and refuses new ones.
func (u *Unit) Close() {
	u.closed.Store(true)
	for i := range u.eps {
		if e := u.eps[i].Load(); e != nil {
			e.Close()
		}
	}
}

// admitRequest finds the endpoint of a peer's request, reserves room for the notification
// and opens the memory.
func (u *Unit) admitRequest(src fabric.NodeID, to fabric.VPID, nla atu.NLA, n int, a atu.Access, notify bool) (*Endpoint, atu.Window, fabric.Status) {
	if u.closed.Load() {
		return nil, atu.Window{}, fabric.StatusPeerDown
	}
	var e *Endpoint
	if to.Valid() {
		e = u.eps[to].Load()
	}
	if e == nil {
		u.count.noVPID.Add(1)
		return nil, atu.Window{}, fabric.StatusNoVPID
	}
	if notify && !e.queue.reserveForeign() {
		u.count.overruns.Add(1)
		return nil, atu.Window{}, fabric.StatusOverrun
	}
	w, err := u.atu.Translate(nla, n, to, src, a)
	if err != nil {
		u.count.remoteProtection.Add(1)
		if notify {
			e.queue.foreign.Add(-1)
		}
		return nil, atu.Window{}, fabric.StatusProtection
	}
	return e, w, fabric.StatusOK
}

// ServeGet is the responder: it reads the memory that a peer asks for and sends
// it to s.
func (u *Unit) ServeGet(src fabric.NodeID, g link.Get, s link.Sink) {
	if g.Len < 1 || g.Len > MaxTransfer || !g.From.Valid() {
		u.count.badRequests.Add(1)
		s.Done(fabric.StatusProtection)
		return
	}
	e, w, st := u.admitRequest(src, g.To, g.Remote, g.Len, atu.Read, g.Notify)
	if st != fabric.StatusOK {
		s.Done(st)
		return
	}
	// The sink keeps an error for Done. The responder has done its part and reports
	// it: the memory may be reused.
	_ = s.Data(0, foreign.Of(w.Bytes()))
	w.Release()
	u.count.served.Add(1)
	if g.Notify {
		e.queue.writeReserved(Notification{
			Writer: Responder, Command: CommandGet, Node: src, VPID: g.From, Len: g.Len,
			Local: LastFragment(g.Remote, g.Len),
		})
	}
	s.Done(fabric.StatusOK)
}

// lease is memory that a peer reads itself.
type lease struct {
	unit   *Unit
	ep     *Endpoint
	window atu.Window
	src    fabric.NodeID
	get    link.Get
}

// LendGet is ServeGet for a link whose peer reads the memory itself.
func (u *Unit) LendGet(src fabric.NodeID, g link.Get) (link.Lease, fabric.Status) {
	if g.Len < 1 || g.Len > MaxTransfer || !g.From.Valid() {
		u.count.badRequests.Add(1)
		return nil, fabric.StatusProtection
	}
	e, w, st := u.admitRequest(src, g.To, g.Remote, g.Len, atu.Read, g.Notify)
	if st != fabric.StatusOK {
		return nil, st
	}
	l, ok := u.leases.Get().(*lease)
	if !ok {
		l = new(lease)
	}
	*l = lease{u, e, w, src, g}
	return l, fabric.StatusOK
}

// Bytes implements link.Lease.
func (l *lease) Bytes() []byte { return l.window.Bytes() }

// End implements link.Lease.
func (l *lease) End(read bool) {
	u, e, src, g := l.unit, l.ep, l.src, l.get
	l.window.Release()
	*l = lease{} // the pool must not hold memory
	u.leases.Put(l)
	switch {
	case !read:
		if g.Notify {
			e.queue.foreign.Add(-1)
		}
		return
	case g.Notify:
		e.queue.writeReserved(Notification{
			Writer: Responder, Command: CommandGet, Node: src, VPID: g.From, Len: g.Len,
			Local: LastFragment(g.Remote, g.Len),
		})
	}
	u.count.served.Add(1)
}

// ServeRead writes the responder's notification after a peer has read lent memory
// itself. If there is no room for it, the queue is overrun, although the data has
// moved.
func (u *Unit) ServeRead(src fabric.NodeID, g link.Get) {
	if g.Len < 1 || g.Len > MaxTransfer || !g.From.Valid() || !g.To.Valid() {
		u.count.badRequests.Add(1)
		return
	}
	e := u.eps[g.To].Load()
	if e == nil {
		u.count.noVPID.Add(1)
		return
	}
	u.count.served.Add(1)
	if !g.Notify {
		return
	}
	if !e.queue.reserveForeign() {
		u.count.overruns.Add(1)
		return
	}
	e.queue.writeReserved(Notification{
		Writer: Responder, Command: CommandGet, Node: src, VPID: g.From, Len: g.Len,
		Local: LastFragment(g.Remote, g.Len),
	})
}

// ServePut is the target's completer: it writes the data that a peer sends.
func (u *Unit) ServePut(src fabric.NodeID, p link.Put, data foreign.Memory, d link.Done) {
	if data.Len() < 1 || data.Len() > MaxTransfer || !p.From.Valid() {
		u.count.badRequests.Add(1)
		d.Done(fabric.StatusProtection)
		return
	}
	e, w, st := u.admitRequest(src, p.To, p.Remote, data.Len(), atu.Write, p.Notify)
	if st != fabric.StatusOK {
		d.Done(st)
		return
	}
	err := w.WriteAt(data, 0)
	w.Release()
	if err != nil {
		if p.Notify {
			e.queue.foreign.Add(-1)
		}
		d.Done(fabric.StatusDevice)
		return
	}
	u.countServed(e, src, p, data.Len())
	d.Done(fabric.StatusOK)
}
