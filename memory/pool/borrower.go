package pool

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/memory/lease"
	"exnet/memory/wire"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
)

// waiting is how many messages a process may leave unread before it loses its lease.
const waiting = 64 + wire.Slots

// lender is a node that loans come from: a peer, or this one.
type lender interface {
	// lendMemory asks for a loan. The caller closes the descriptor of the grant.
	lendMemory(b *borrower, r request) (grant, wire.Message)
	// giveBack returns a loan; renewLease says that its borrower lives.
	giveBack(id uint64)
	renewLease(id uint64)
}

// grant is what a lender has given.
type grant struct {
	from  lender
	node  fabric.NodeID
	id    uint64
	size  int64
	until time.Time
	fd    int       // of the memory; -1: on another host
	parts []atu.NLA // of memory on another host
}

// borrower is a process of this host that has, or wants, a lease. Its connection is the lease.
type borrower struct {
	*rpc.Link[wire.Message]
	server *Server
	who    caller.Caller
	grant
	window     *window // of a lease of another host
	huge       bool
	since      time.Time
	lease.Life             // the server's lock guards it, and the next three
	rpc.Turn               // what is said of it to the process
	deadline   time.Time   // of lease.Wanted: when the lease ends in any case
	why        wire.Status // the lease has ended
}

// postMessage sends the process a message. When that fails the connection ends.
func (b *borrower) postMessage(m wire.Message, fds ...int) { _ = b.Post(m, nil, fds...) }

// onLocked brings the lease to its next state, and tells the process what it is to know. It
// returns whether the lender is to be told that the lease is returned. The server's lock is
// held.
func (b *borrower) onLocked(ev lease.Event) (returned bool) {
	act := b.On(ev)
	switch act {
	case lease.ActWant:
		b.After(func() { b.postMessage(wire.Message{Op: wire.OpRevoke, C: uint64(b.deadline.UnixNano())}) })
	case lease.ActEndSay:
		b.After(func() { b.postMessage(wire.Message{Op: wire.OpGone, Status: b.why}) })
	}
	return act == lease.ActEnd && ev == lease.OnReturned
}

// revokeLocked notes that the lender wants the lease back. The server's lock is held.
func (b *borrower) revokeLocked(until time.Time) {
	if b.May(lease.OnWanted) {
		b.deadline = until
		b.onLocked(lease.OnWanted)
	}
}

// goneLocked notes that the lender has ended the lease, or is gone.
//
// +checklocksignore: the server's lock is held
func (b *borrower) goneLocked(why wire.Status) {
	if !b.May(lease.OnTaken) {
		return
	}
	if why == wire.StatusLost {
		b.server.count.Lost++
	}
	b.why = why
	b.onLocked(lease.OnTaken)
}

// Process serves a process until it ends, breaks the rules, or the Server is closed. It takes
// conn, a SOCK_SEQPACKET socket. An error concerns that process only.
func (s *Server) Process(conn *net.UnixConn) error {
	link, err := rpc.Serve(&s.hub, conn, &form, waiting, true, func(c *rpc.Session[wire.Message]) {
		_ = c.Post(wire.Message{Op: wire.OpBorrow, Status: wire.StatusBusy}, nil)
	})
	if err != nil {
		return err
	}
	defer link.Close()
	m, err := link.Bare(0)
	if err != nil {
		if rpc.HungUp(err) {
			return nil // it has looked whether there is a node
		}
		return err
	}
	if m.Op != wire.OpBorrow {
		return fmt.Errorf("%w: operation %d before a lease", wire.ErrMessage, m.Op)
	}
	version, ok := wire.Versions.Agreed(m.A, m.F)
	if !ok {
		return link.Post(wire.Message{Op: m.Op, Number: m.Number, Status: wire.StatusVersion, A: version}, nil)
	}
	b := &borrower{Link: link, server: s, who: link.Who}
	if !s.answerBorrow(b, m, version) {
		return nil
	}
	defer s.endBorrower(b)
	stop := s.renewWhileAlive(b)
	defer stop()
	for m, err = link.Bare(0); err == nil && b.window != nil && m.Op != wire.OpReturn; m, err = link.Bare(0) {
		if err := s.far.startOperation(b, m); err != nil {
			return err
		}
	}
	switch {
	case rpc.HungUp(err):
		return nil
	case err == nil && m.Op != wire.OpReturn:
		err = fmt.Errorf("%w: operation %d", wire.ErrMessage, m.Op)
	}
	return err
}

// answerBorrow answers OpBorrow. It returns whether the process has a lease.
func (s *Server) answerBorrow(b *borrower, m wire.Message, version uint64) bool {
	r := request{
		node: s.cfg.Node, account: b.who.Account, pid: b.who.PID,
		size: int64(m.B), min: int64(m.C), time: time.Duration(m.D), huge: m.Flags&wire.FlagHuge != 0,
	}
	if r.min == 0 {
		r.min = r.size
	}
	reply := wire.Message{Status: wire.StatusInvalid}
	var g grant
	if r.isValid() {
		if m.Flags&wire.FlagNode != 0 {
			g, reply = s.lendAt(b, m.Node, r)
		} else {
			g, reply = s.lendAnywhere(b, r, m.E)
		}
	}
	reply.Op, reply.Number, reply.A, reply.E = m.Op, m.Number, version, 0
	if reply.Status != wire.StatusOK {
		s.mu.Lock()
		s.count.NotBorrowed++
		s.mu.Unlock()
		b.postMessage(reply)
		return false
	}
	if len(g.parts) > 0 {
		w, err := s.far.openWindow()
		if err != nil {
			s.cfg.Log.Warn("memory: no window for a lease of another host", "reason", err)
			s.endBorrower(b)
			b.postMessage(wire.Message{Op: m.Op, Number: m.Number, Status: wire.StatusMemory, Node: g.node})
			return false
		}
		b.window, reply.Flags, reply.E = w, wire.FlagFar, wire.Span
		g.fd = w.fd
	} else {
		defer s.discardGrant(g)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.huge = r.huge
	// Not before now: the process learns what happens to its lease after it has it.
	reply.Node, reply.B, reply.D = g.node, uint64(g.size), g.id
	if !g.until.IsZero() {
		reply.C = uint64(g.until.UnixNano())
	}
	b.postMessage(reply, g.fd)
	b.Answered()
	return true
}

// discardGrant closes the descriptor of a grant. Another node may have made it of anything.
func (s *Server) discardGrant(g grant) {
	if p, ok := g.from.(*peer); ok {
		s.hub.Trash.Throw(caller.Account(p.uid), g.fd)
		return
	}
	_ = unix.Close(g.fd)
}

// endBorrower returns the lease of a process that has ended, or returned it.
func (s *Server) endBorrower(b *borrower) {
	s.mu.Lock()
	returned := b.onLocked(lease.OnReturned)
	delete(s.borrowers, b)
	s.mu.Unlock()
	if b.window != nil {
		b.window.close()
	}
	if returned {
		b.from.giveBack(b.id)
	}
}

// renewWhileAlive renews a lease as long as its process lives, until the function that it
// returns is called.
func (s *Server) renewWhileAlive(b *borrower) (stop func()) {
	if b.from == lender(s.own) {
		return func() {}
	}
	t := time.NewTicker(s.cfg.Renew)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-t.C:
				b.from.renewLease(b.id)
			case <-end:
				return
			}
		}
	}()
	return func() {
		t.Stop()
		close(end)
		<-ended
	}
}
