package rma

import (
	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
)

// landing is memory that a link writes a peer's PUT to.
type landing struct {
	unit   *Unit
	ep     *Endpoint
	window atu.Window
	src    fabric.NodeID
	put    link.Put
	n      int
}

// LendPut is ServePut for a link that writes the n bytes itself. It returns a nil
// Landing with StatusOK if the target is a device, which ServePut writes to.
func (u *Unit) LendPut(src fabric.NodeID, p link.Put, n int) (link.Landing, fabric.Status) {
	if n < 1 || n > MaxTransfer || !p.From.Valid() {
		u.count.badRequests.Add(1)
		return nil, fabric.StatusProtection
	}
	e, w, st := u.admitRequest(src, p.To, p.Remote, n, atu.Write, p.Notify)
	if st != fabric.StatusOK {
		return nil, st
	}
	l := &landing{u, e, w, src, p, n}
	if w.Bytes() == nil {
		l.End(false)
		return nil, fabric.StatusOK
	}
	return l, fabric.StatusOK
}

// Bytes implements link.Landing.
func (l *landing) Bytes() []byte { return l.window.Bytes() }

// End implements link.Landing.
func (l *landing) End(written bool) {
	l.window.Release()
	if !written {
		if l.put.Notify {
			l.ep.queue.foreign.Add(-1)
		}
		return
	}
	l.unit.countServed(l.ep, l.src, l.put, l.n)
}

// countServed counts a PUT whose data is written, and writes the completer's notification
// if the PUT asks for one.
func (u *Unit) countServed(e *Endpoint, src fabric.NodeID, p link.Put, size int) {
	u.count.served.Add(1)
	if !p.Notify {
		return
	}
	n := Notification{
		Writer: Completer, Command: CommandPut, Node: src, VPID: p.From, Len: size,
		Local: LastFragment(p.Remote, size),
	}
	if p.Immediate {
		n.Command = CommandPutImmediate
	}
	e.queue.writeReserved(n)
}
