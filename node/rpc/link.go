package rpc

import (
	"errors"
	"fmt"
	"net"
	"time"

	"exnet/node/rpc/caller"
)

// Link is a session over a SOCK_SEQPACKET socket.
type Link[M any] struct {
	*Session[M]
	Who caller.Caller
	Out *Outbox

	hub     *Hub
	conn    *net.UnixConn
	in      *Inbound
	counted bool
}

// Serve makes a session of a connection to a process, which counts, or to a node. It takes conn.
// waiting is how many messages may be left unread. refuse, unless it is nil, tells the process
// that its account has too many.
func Serve[M any](h *Hub, conn *net.UnixConn, form *Form[M], waiting int, counts bool, refuse func(*Session[M])) (*Link[M], error) {
	who, err := caller.Of(conn)
	if err != nil { // it knows of no process that could have sent something
		return nil, errors.Join(err, conn.Close())
	}
	out, err := NewOutbox(conn, waiting)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	in, err := NewInbound(conn, form.Size, form.Descriptors)
	if err != nil {
		out.Close()
		return nil, err
	}
	l := &Link[M]{Session: NewSession(form, out), Who: who, Out: out, hub: h, conn: conn, in: in, counted: counts}
	if !counts { // a node speaks for its user, wherever it runs
		l.Who.Account = caller.Account(who.UID)
	}
	if err := h.enterSession(out, l.Who.Account, counts); err != nil {
		if refuse != nil {
			refuse(l.Session)
		}
		h.Trash.End(l.Who.Account, out, nil)
		return nil, err
	}
	return l, nil
}

// Receive waits for a message. The caller throws its descriptors away.
func (l *Link[M]) Receive() (h Heard[M], err error) {
	b, fds, err := l.in.Next()
	h.Fds = fds
	if err == nil {
		h.Message, err = l.form.Parse(b)
	}
	return h, err
}

// Throw closes descriptors that have come, without waiting for it.
func (l *Link[M]) Throw(fds Descriptors) { l.hub.Trash.Throw(l.Who.Account, fds...) }

// Bare waits for a message without descriptors, as long as within says; 0: as long as it takes.
func (l *Link[M]) Bare(within time.Duration) (m M, err error) {
	limit := time.Time{}
	if within > 0 {
		limit = time.Now().Add(within)
	}
	if err := l.conn.SetReadDeadline(limit); err != nil {
		return m, err
	}
	h, err := l.Receive()
	l.Throw(h.Fds)
	if err == nil && len(h.Fds) > 0 {
		err = fmt.Errorf("%w: %d descriptors", ErrRule, len(h.Fds))
	}
	if err == nil {
		err = l.conn.SetReadDeadline(time.Time{})
	}
	return h.Message, err
}

// Run handles messages until the session ends. nil: the other side has hung up.
func (l *Link[M]) Run(handle func(*Heard[M]) error) error {
	for {
		h, err := l.Receive()
		if err == nil {
			err = l.Hear(&h, handle)
		}
		l.Throw(h.Fds)
		switch {
		case HungUp(err):
			return nil
		case err != nil:
			return err
		}
	}
}

// Close ends the session, and its connection when that takes no time.
func (l *Link[M]) Close() {
	l.hub.leaveSession(l.Out, l.Who.Account, l.counted)
	l.End()
}
