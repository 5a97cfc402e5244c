package pool

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/memory/lease"
	"exnet/memory/wire"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
)

// peerWaiting is how many messages another node may leave unread: more than both nodes have leases.
const peerWaiting = 1 << 16

// peer is a connection to the Server of another node. Each node makes one for the requests of its
// own processes: its other end is the holder of what they have. The server's lock guards the fields
// but for the outbox.
type peer struct {
	server  *Server
	node    fabric.NodeID
	uid     uint32 // of its process
	out     outbox
	far     bool // it is on another host: what it is, and no state
	number  uint32
	asked   map[uint32]*question
	holders map[uint64]*borrower // our processes that have a loan of it
	dead    bool                 // its end, which comes once: it is there until then, and has no other state

	zeros   atomic.Int32  // requests for zeros that are under way
	zeroing chan struct{} // has room for those that run
}

// The requests of a peer for zeros: so many run at a time, each of which takes a thread, and so
// many are under way. What is more than that is to be said again.
const (
	zerosAtOnce = 2
	mostZeros   = 256
)

// question is a request that the peer has not answered.
type question struct {
	answer chan wire.Message
	from   *borrower // of OpLend: who is to have the loan
	want   request   // of OpLend
	// late says that nobody waits for the answer any more: a lease that it gives goes back. It is
	// the one state of a question beside waiting; with its answer the question is gone from asked.
	late bool
}

var (
	_ lender = (*peer)(nil)
	_ holder = (*peer)(nil)
)

// post sends a message to the peer. When that fails the connection ends.
func (p *peer) post(m wire.Message, fds ...int) {
	b, _ := m.AppendBinary(nil) // it does not fail
	if p.out.Post(b, fds...) != nil {
		p.out.Abort()
	}
}

// dial returns the connection to another node. It makes one if needed.
func (s *Server) dial(n fabric.NodeID) (*peer, error) {
	s.dialing.Lock()
	defer s.dialing.Unlock()
	s.mu.Lock()
	p, closed := s.peers[n], s.closed
	s.mu.Unlock()
	switch {
	case p != nil:
		return p, nil
	case s.reachesFar(n):
		return s.farPeer(n), nil
	case closed || s.cfg.Dial == nil || n == s.cfg.Node:
		return nil, fmt.Errorf("memory: node %d: %w", n, fabric.ErrNoRoute)
	}
	conn, err := s.cfg.Dial(n)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.CheckPeer(conn, n); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	p, in, err := s.newPeer(conn, n)
	if err != nil {
		return nil, err
	}
	p.post(wire.Message{Op: wire.OpHello, Node: s.cfg.Node, A: wire.Version})
	s.mu.Lock()
	s.peers[n] = p
	if s.closed {
		p.out.Abort()
	}
	s.mu.Unlock()
	go func() { _ = p.serve(in) }() // end answers the requests that wait
	return p, nil
}

func (s *Server) newPeer(conn *net.UnixConn, n fabric.NodeID) (*peer, *rpc.Inbound, error) {
	who, err := caller.Of(conn)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	out, err := rpc.NewOutbox(conn, peerWaiting)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	in, err := rpc.NewInbound(conn, wire.MessageSize, wire.Descriptors)
	if err != nil {
		out.Close()
		return nil, nil, err
	}
	p := s.peerOf(n)
	p.uid, p.out = who.UID, out
	return p, in, nil
}

// peerOf returns a peer that has no outbox yet.
func (s *Server) peerOf(n fabric.NodeID) *peer {
	return &peer{server: s, node: n, asked: make(map[uint32]*question), holders: make(map[uint64]*borrower), zeroing: make(chan struct{}, zerosAtOnce)}
}

// helloTime is how long another node may take to say which it is.
const helloTime = 5 * time.Second

// Peer serves a connection that another node has made, until it ends. It takes conn. An error
// concerns that peer only.
func (s *Server) Peer(conn *net.UnixConn) error {
	p, in, err := s.newPeer(conn, 0)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.accepted[p] = struct{}{}
	if s.closed {
		p.out.Abort()
	}
	s.mu.Unlock()
	var m wire.Message
	if err = conn.SetReadDeadline(time.Now().Add(helloTime)); err == nil {
		m, err = s.receive(in, caller.Account(p.uid))
	}
	switch {
	case err != nil:
	case m.Op != wire.OpHello || s.cfg.CheckPeer == nil:
		err = fmt.Errorf("%w: operation %d before a hello", wire.ErrMessage, m.Op)
	default:
		err = s.cfg.CheckPeer(conn, m.Node)
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		p.end()
		return err
	}
	p.node = m.Node
	return p.serve(in)
}

// serve handles messages until the connection ends.
func (p *peer) serve(in *rpc.Inbound) error {
	defer p.end()
	for {
		b, fds, err := in.Next()
		var m wire.Message
		if err == nil {
			err = m.UnmarshalBinary(b)
		}
		if err == nil {
			err = p.handle(m, fds, nil)
		}
		p.server.trash.Throw(caller.Account(p.uid), fds...)
		if rpc.HungUp(err) {
			return nil
		}
		if err != nil {
			p.server.cfg.Log.Debug("memory: a node's connection ends", "node", p.node, "reason", err)
			return err
		}
	}
}

// end takes back what the peer's processes had, tells ours that what they had of it is lost, and
// answers all requests.
func (p *peer) end() {
	s := p.server
	if out, near := p.out.(*rpc.Outbox); near {
		s.trash.End(caller.Account(p.uid), out, nil)
	} else {
		p.out.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.dead {
		return
	}
	p.dead = true
	delete(s.accepted, p)
	if s.peers[p.node] == p {
		delete(s.peers, p.node)
	}
	if s.fars[p.node] == p {
		delete(s.fars, p.node)
	}
	s.dropLocked(p)
	for _, b := range p.holders {
		b.goneLocked(wire.StatusLost)
	}
	clear(p.holders)
	for _, q := range p.asked {
		if !q.late {
			q.answer <- wire.Message{Status: wire.StatusNoNode, Node: p.node}
		}
	}
	p.asked = nil
}

// account is whose limits apply to a loan: root's nodes speak for all users, any other user's for
// that user alone.
func (p *peer) account(said uint32) caller.Account {
	if p.uid != 0 {
		return caller.Account(p.uid)
	}
	return caller.Account(said)
}

// handle processes a message. It takes the descriptors that it moves on, and no others. From
// another host, more follows the message.
func (p *peer) handle(m wire.Message, fds rpc.Descriptors, more []byte) error {
	if m.Number&wire.Answered != 0 {
		p.answered(m, fds, more)
		return nil
	}
	s := p.server
	reply := wire.Message{Op: m.Op, Number: m.Number | wire.Answered, Node: s.cfg.Node}
	switch m.Op {
	case wire.OpOffer, wire.OpLend:
		if m.A != wire.Version {
			reply.Status, reply.A = wire.StatusVersion, wire.Version
			p.post(reply)
			return nil
		}
		switch {
		case m.Op == wire.OpLend && p.far: // it may wait
			s.unlessClosed(func() { p.lendTo(m, reply) })
			return nil
		case m.Op == wire.OpLend:
			p.lendTo(m, reply)
			return nil
		}
		s.mu.Lock()
		left, why := s.leftLocked(p.node, p.account(m.Account))
		if s.limits.Lend == 0 {
			reply.Status = wire.StatusNoLender
		}
		s.mu.Unlock()
		reply.B, reply.C = uint64(left), uint64(why)
		p.post(reply)
	case wire.OpReturn:
		s.giveBack(p, m.D)
	case wire.OpZero:
		if p.zeros.Add(1) > mostZeros {
			p.zeros.Add(-1)
			reply.Status = wire.StatusBusy
			p.post(reply)
			return nil
		}
		s.unlessClosed(func() {
			p.zeroing <- struct{}{}
			reply.Status = s.zero(p, m)
			<-p.zeroing
			p.zeros.Add(-1)
			p.post(reply)
		})
	case wire.OpRenew:
		if !s.renew(p, m.D) {
			p.post(wire.Message{Op: wire.OpGone, Status: wire.StatusNoLease, D: m.D})
		}
	case wire.OpRevoke, wire.OpGone:
		s.mu.Lock()
		defer s.mu.Unlock()
		b := p.holders[m.D]
		if b == nil {
			return nil // it has just been returned
		}
		if m.Op == wire.OpRevoke {
			b.revokeLocked(time.Unix(0, int64(m.C)))
			return nil
		}
		delete(p.holders, m.D)
		b.goneLocked(m.Status)
	default:
		return fmt.Errorf("%w: operation %d of node %d", wire.ErrMessage, m.Op, p.node)
	}
	return nil
}

// lendTo answers OpLend.
func (p *peer) lendTo(m, reply wire.Message) {
	s := p.server
	l, left, why := s.lend(p, request{
		node: p.node, account: p.account(m.Account), pid: int(m.E),
		size: int64(m.B), min: int64(m.C), time: time.Duration(m.D), huge: m.Flags&wire.FlagHuge != 0,
	})
	if why != wire.StatusOK {
		reply.Status, reply.B = why, uint64(left)
		p.post(reply)
		return
	}
	fd := -1
	if !p.far {
		var err error
		if fd, err = s.loanFd(l); err != nil {
			s.unanswered(l)
			reply.Status = wire.StatusNoLender
			p.post(reply)
			return
		}
		defer unix.Close(fd)
	}
	reply.B, reply.D = uint64(l.size), l.id
	if !l.until.IsZero() {
		reply.C = uint64(l.until.UnixNano())
	}
	s.mu.Lock()
	dead := p.dead
	if dead { // end has not seen the loan, or has taken it back already
		s.dropLocked(p)
	}
	s.mu.Unlock()
	switch {
	case dead:
		return
	case p.far:
		p.postWith(reply, l.exported)
	default:
		p.post(reply, fd)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(l, lease.OnAnswered)
}

// answered hands an answer to who waits for it.
func (p *peer) answered(m wire.Message, fds rpc.Descriptors, more []byte) {
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	q := p.asked[m.Number&^wire.Answered]
	if q == nil {
		return
	}
	delete(p.asked, m.Number&^wire.Answered)
	granted := q.from != nil && m.Status == wire.StatusOK
	parts, ok := partsOf(more, m.B)
	if granted && p.holders[m.D] != nil { // of two with one number, who is told that it has ended?
		granted, m.Status = false, wire.StatusInvalid
	}
	if granted && (q.late || !q.want.fits(m.B) || p.far && !ok || !p.far && len(fds) != 1) {
		p.post(wire.Message{Op: wire.OpReturn, D: m.D})
		granted, m.Status = false, wire.StatusInvalid
	}
	if q.late {
		return
	}
	a := m
	if granted {
		g := grant{from: p, node: p.node, id: m.D, size: int64(m.B), fd: -1, parts: parts}
		if !p.far {
			g.fd = fds.Take(0)
		}
		if m.C != 0 {
			g.until = time.Unix(0, int64(m.C))
		}
		p.holders[m.D] = q.from
		s.grantedLocked(q.from, g)
	}
	q.answer <- a
}

// call sends a request and waits for its answer, as long as a node may take.
func (p *peer) call(m wire.Message) wire.Message {
	return p.ask(m, &question{}, p.server.askTime)
}

// zero has the lender make zeros of a part of a loan. It waits until the peer ends: who was told
// that this has failed could write there before it is done.
func (p *peer) zero(m wire.Message) wire.Message {
	m.Op = wire.OpZero
	return p.ask(m, &question{}, 0)
}

// ask sends a request and waits for its answer, up to timeout; 0: until the peer ends.
func (p *peer) ask(m wire.Message, q *question, timeout time.Duration) wire.Message {
	s := p.server
	q.answer = make(chan wire.Message, 1)
	s.mu.Lock()
	if p.dead {
		s.mu.Unlock()
		return wire.Message{Status: wire.StatusNoNode, Node: p.node}
	}
	p.number = (p.number + 1) % wire.Answered
	m.Number = p.number
	p.asked[m.Number] = q
	s.mu.Unlock()
	number := m.Number
	p.post(m)
	if timeout == 0 {
		return <-q.answer
	}
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case a := <-q.answer:
		return a
	case <-late.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case a := <-q.answer: // in the last moment
		return a
	default:
	}
	q.late = true
	if q.from == nil { // nothing is to be given back
		delete(p.asked, number)
	}
	return wire.Message{Status: wire.StatusNoNode, Node: p.node}
}

// lend implements lender.
func (p *peer) lend(b *borrower, r request) (grant, wire.Message) {
	m := wire.Message{
		Op: wire.OpLend, A: wire.Version, Account: uint32(r.account),
		B: uint64(r.size), C: uint64(r.min), D: uint64(r.time), E: uint64(r.pid),
	}
	if r.huge {
		m.Flags |= wire.FlagHuge
	}
	a := p.ask(m, &question{from: b, want: r}, p.server.askTime)
	if a.Status != wire.StatusOK {
		a.Node = p.node
		return grant{}, a
	}
	return b.grant, wire.Message{}
}

// giveBack implements lender.
func (p *peer) giveBack(id uint64) {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	if p.holders[id] != nil {
		delete(p.holders, id)
		p.post(wire.Message{Op: wire.OpReturn, D: id})
	}
}

// renew implements lender. Without a link nothing is said: it would be said for each time when the
// link is back.
func (p *peer) renew(id uint64) {
	if !p.away() {
		p.post(wire.Message{Op: wire.OpRenew, D: id})
	}
}

// revokeLocked implements holder.
func (p *peer) revokeLocked(id uint64, until time.Time) {
	p.post(wire.Message{Op: wire.OpRevoke, D: id, C: uint64(until.UnixNano())})
}

// goneLocked implements holder.
func (p *peer) goneLocked(id uint64, why wire.Status) {
	p.post(wire.Message{Op: wire.OpGone, D: id, Status: why})
}
