package rma

import (
	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
	"exnet/fabric/profile"
	"exnet/foreign"
)

// op is an operation that this node has started: a GET whose completer waits for the
// response, or a PUT whose requester waits for the end.
type op struct {
	ep        *Endpoint
	window    atu.Window // not for an immediate PUT
	local     atu.NLA
	n, got    int
	came      int              // bytes that arrived, including those that could not be written
	profile   *profile.Profile // of a GET; nil: nobody counts
	node      fabric.NodeID
	vpid      fabric.VPID
	class     fabric.Class // of a GET
	writer    Writer
	command   Command
	notify    bool
	failed    fabric.Status // why the data could not be written
	immediate [MaxImmediate]byte
}

// takeOp takes an operation from the pool. The caller sets the local address and its
// window, or the immediate data.
func (e *Endpoint) takeOp(c Command, w Writer, n int, node fabric.NodeID, vpid fabric.VPID, notify bool) *op {
	o, ok := e.unit.ops.Get().(*op)
	if !ok {
		o = new(op)
	}
	o.ep, o.command, o.writer, o.n, o.node, o.vpid, o.notify = e, c, w, n, node, vpid, notify
	o.got, o.came, o.failed = 0, 0, fabric.StatusOK
	o.profile = e.unit.profile.Load()
	return o
}

// Data implements link.Sink.
func (o *op) Data(off int, p foreign.Memory) error {
	o.came += p.Len()
	if off < 0 || off > o.n || p.Len() > o.n-off {
		o.failed = fabric.StatusBadResponse
		return o.failed.Err()
	}
	if err := o.window.WriteAt(p, off); err != nil {
		o.failed = fabric.StatusDevice
		return err
	}
	o.got += p.Len()
	return nil
}

// Place implements link.Placer.
func (o *op) Place() []byte { return o.window.Bytes() }

// Placed implements link.Placer.
func (o *op) Placed(n int) { o.got += n }

// Done implements link.Done.
func (o *op) Done(s fabric.Status) {
	e, u := o.ep, o.ep.unit
	switch {
	case !s.Valid():
		s = fabric.StatusBadResponse
	case s == fabric.StatusOK && o.failed != fabric.StatusOK:
		s = o.failed
	case s == fabric.StatusOK && o.command == CommandGet && o.got != o.n:
		s = fabric.StatusBadResponse
	}
	n := Notification{
		Writer: o.writer, Command: o.command, Status: s,
		Node: o.node, VPID: o.vpid, Len: o.n,
	}
	if o.command != CommandPutImmediate {
		n.Local = LastFragment(o.local, o.n)
		o.window.Release()
	}
	if o.command == CommandGet && o.profile != nil {
		o.profile.Transfer(e.pairFrom(o.node, o.vpid, o.class), o.came)
	}
	notify := o.notify
	o.profile = nil
	o.ep, o.window = nil, atu.Window{} // the pool must not hold memory
	u.ops.Put(o)
	u.count.countEnd(n)
	if notify {
		e.queue.writeReserved(n)
	}
}

var _ link.Placer = (*op)(nil)
