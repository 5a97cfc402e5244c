package rma

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
	"exnet/fabric/profile"
)

// Config configures an endpoint. The zero Config has the defaults.
type Config struct {
	// Notifications is the size of the notification queue: a power of two, 2 to
	// 65,536. 0 means 4096. Half of it is for the endpoint's own operations.
	Notifications int
}

func (c Config) withDefaults() (Config, error) {
	if c.Notifications == 0 {
		c.Notifications = 4096
	}
	if n := c.Notifications; n < 2 || n > 1<<16 || bits.OnesCount(uint(n)) != 1 {
		return c, fmt.Errorf("rma: queue of %d notifications: use a power of two from 2 to 65536: %w", n, fabric.ErrInvalid)
	}
	return c, nil
}

var (
	errClosed  = fmt.Errorf("rma: endpoint: %w", fabric.ErrClosed)
	errNoRoute = fmt.Errorf("rma: %w", fabric.ErrNoRoute)
	errAgain   = fmt.Errorf("rma: no room for the notification: %w", fabric.ErrAgain)
	errOverrun = fmt.Errorf("rma: %w", fabric.ErrOverrun)
)

// Endpoint is the right to use the RMA unit with the memory of one VPID, and the
// queue of its notifications.
//
// Concurrency: Get, Put, PutImmediate and Close may be called from many
// goroutines. Next and EnableInterrupt belong to one consumer at a time.
type Endpoint struct {
	unit   *Unit
	vpid   fabric.VPID
	queue  *queue
	closed atomic.Bool
}

// VPID returns the endpoint's virtual process ID.
func (e *Endpoint) VPID() fabric.VPID { return e.vpid }

// Next removes the oldest notification from the queue and returns it, or false if
// there is none. Its room is freed in batches, at the latest when Next returns false.
// If the queue is empty, Next makes active links look for more, which may run
// handlers.
func (e *Endpoint) Next() (Notification, bool) { return e.queue.read() }

// Err returns an error that wraps fabric.ErrOverrun once a peer's operation was
// refused because the queue had no room for its notification, and from then on. The
// endpoint continues to work.
func (e *Endpoint) Err() error {
	if e.queue.overrun.Load() {
		return errOverrun
	}
	return nil
}

// OnInterrupt sets the handler that is called when a notification arrives while
// the interrupt is enabled. It runs in the goroutine that moved the data (mem
// link), with no lock held, and may run the whole receive path. The interrupt is
// disabled when it fires.
func (e *Endpoint) OnInterrupt(h func()) { e.queue.line.Handle(h) }

// DisableInterrupt keeps the handler from being called. A call that another goroutine
// has begun continues.
func (e *Endpoint) DisableInterrupt() { e.queue.line.Disable() }

// RaiseInterrupt calls the handler if the interrupt is enabled, and disables it, as
// an arriving notification does.
func (e *Endpoint) RaiseInterrupt() { e.queue.line.Raise() }

// EnableInterrupt lets the next notification call the handler, and reports
// whether notifications are waiting already. The handler may be called for one of
// those too.
func (e *Endpoint) EnableInterrupt() (pending bool) {
	l := &e.unit.routes.Links
	if l.Poll() {
		defer l.Arm()
	}
	return e.queue.enableInterrupt()
}

// Close releases the VPID. Unread notifications are lost; peers' operations fail with
// StatusNoVPID. It does not wait for running operations.
func (e *Endpoint) Close() error {
	if !e.closed.CompareAndSwap(false, true) {
		return errClosed
	}
	e.unit.eps[e.vpid].CompareAndSwap(e, nil)
	e.queue.line.Handle(nil)
	e.unit.count.interruptsPast.Add(e.queue.line.Fired())
	if f := e.unit.onClose; f != nil {
		f(e.vpid)
	}
	return nil
}

// Get starts a GET. If it returns nil and NotifyCompleter is set, one completer
// notification follows (on the mem link it is there already), with the status of
// the operation. If it returns an error, nothing was started and no notification
// follows. The error wraps ErrAgain if the queue has no room for the notification:
// read notifications and try again.
func (e *Endpoint) Get(r GetReq) error {
	if err := checkRequest(r.Len, MaxTransfer, r.VPID, r.Class, r.Notify.validGet()); err != nil {
		return err
	}
	port, err := e.startOp(r.Node, r.Notify&NotifyCompleter != 0)
	if err != nil {
		return err
	}
	w, err := e.unit.atu.Translate(r.Local, r.Len, e.vpid, e.unit.self, atu.Write)
	if err != nil {
		e.undoStart(r.Notify&NotifyCompleter != 0)
		return err
	}
	o := e.takeOp(CommandGet, Completer, r.Len, r.Node, r.VPID, r.Notify&NotifyCompleter != 0)
	o.window, o.local, o.class = w, r.Local, r.Class
	if o.profile != nil {
		o.profile.Request(e.pairTo(r.Node, r.VPID, r.Class))
	}
	port.Get(link.Get{
		From: e.vpid, To: r.VPID, Remote: r.Remote, Len: r.Len,
		Notify: r.Notify&NotifyResponder != 0, Class: r.Class,
	}, o)
	return nil
}

// Put starts a PUT. If it returns nil and NotifyRequester is set, one requester
// notification follows, with the status of the operation. Its errors are those of
// Get.
func (e *Endpoint) Put(r PutReq) error {
	if err := checkRequest(r.Len, MaxTransfer, r.VPID, r.Class, r.Notify.validPut()); err != nil {
		return err
	}
	port, err := e.startOp(r.Node, r.Notify&NotifyRequester != 0)
	if err != nil {
		return err
	}
	w, err := e.unit.atu.Translate(r.Local, r.Len, e.vpid, e.unit.self, atu.Read)
	if err != nil {
		e.undoStart(r.Notify&NotifyRequester != 0)
		return err
	}
	o := e.takeOp(CommandPut, Requester, r.Len, r.Node, r.VPID, r.Notify&NotifyRequester != 0)
	o.window, o.local = w, r.Local
	if o.profile != nil {
		o.profile.Transfer(e.pairTo(r.Node, r.VPID, r.Class), r.Len)
	}
	port.Put(link.Put{
		From: e.vpid, To: r.VPID, Remote: r.Remote,
		Notify: r.Notify&NotifyCompleter != 0, Class: r.Class,
	}, w.Bytes(), o)
	return nil
}

// PutImmediate starts an immediate PUT: like Put, with the data in the request
// and local address 0.
func (e *Endpoint) PutImmediate(r PutImmediateReq) error {
	if err := checkRequest(r.Len, MaxImmediate, r.VPID, r.Class, r.Notify.validPut()); err != nil {
		return err
	}
	port, err := e.startOp(r.Node, r.Notify&NotifyRequester != 0)
	if err != nil {
		return err
	}
	o := e.takeOp(CommandPutImmediate, Requester, r.Len, r.Node, r.VPID, r.Notify&NotifyRequester != 0)
	o.immediate = r.Data
	if o.profile != nil {
		o.profile.Transfer(e.pairTo(r.Node, r.VPID, r.Class), r.Len)
	}
	port.Put(link.Put{
		From: e.vpid, To: r.VPID, Remote: r.Remote, Immediate: true,
		Notify: r.Notify&NotifyCompleter != 0, Class: r.Class,
	}, o.immediate[:r.Len], o)
	return nil
}

// pairTo returns the profile's pair from this endpoint to a peer's.
func (e *Endpoint) pairTo(n fabric.NodeID, v fabric.VPID, c fabric.Class) profile.Pair {
	return profile.Pair{Src: e.unit.self, SrcVPID: e.vpid, Dst: n, DstVPID: v, Class: c}
}

// pairFrom returns the profile's pair from a peer's endpoint to this one.
func (e *Endpoint) pairFrom(n fabric.NodeID, v fabric.VPID, c fabric.Class) profile.Pair {
	return profile.Pair{Src: n, SrcVPID: v, Dst: e.unit.self, DstVPID: e.vpid, Class: c}
}

// startOp checks that an operation with the node n can start, and takes room for
// its notification.
func (e *Endpoint) startOp(n fabric.NodeID, notify bool) (link.Port, error) {
	if e.closed.Load() {
		return nil, errClosed
	}
	port := e.unit.routes.Port(n)
	if port == nil {
		e.unit.count.noRoute.Add(1)
		return nil, errNoRoute
	}
	if notify && !e.queue.reserveOwn() {
		e.unit.count.queueFull.Add(1)
		return nil, errAgain
	}
	return port, nil
}

func (e *Endpoint) undoStart(notify bool) {
	e.unit.count.localProtection.Add(1)
	if notify {
		e.queue.ownRoom.Add(-1)
	}
}
