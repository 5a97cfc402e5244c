package pool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/memory/wire"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
)

// peerWaiting is how many messages another node may leave unread: more than both nodes have
// leases.
const peerWaiting = 1 << 16

// form is how the messages of leases look.
var form = rpc.Form[wire.Message]{
	Size: wire.MessageSize, Descriptors: wire.Descriptors,
	Append: func(m wire.Message, b []byte) []byte { b, _ = m.AppendBinary(b); return b }, // it does not fail
	Parse:  func(b []byte) (m wire.Message, err error) { return m, m.UnmarshalBinary(b) },
	Number: func(m *wire.Message) *uint32 { return &m.Number },
}

// heard is a message of a process or a node.
type heard = rpc.Heard[wire.Message]

// peer is the session with the Server of another node. Each node makes one for the requests of
// its own processes: its other end is the holder of what they have. The server's lock guards
// holders.
type peer struct {
	*rpc.Session[wire.Message]
	link   *rpc.Link[wire.Message] // nil: it is on another host
	server *Server
	node   fabric.NodeID
	far    bool // it is on another host: what it is, and no state
	// farSession: the session with it, if it is on another host. It does not change.
	farSession uint64
	uid        uint32               // of its process
	holders    map[uint64]*borrower // our processes that have a loan of it

	zeros   atomic.Int32  // requests for zeros that are under way
	zeroing chan struct{} // has room for those that run
}

// The requests of a peer for zeros: so many run at a time, each of which takes a thread, and so
// many are under way. What is more than that is to be said again.
const (
	zerosAtOnce = 2
	mostZeros   = 256
)

var (
	_ lender = (*peer)(nil)
	_ holder = (*peer)(nil)
)

// postMessage sends a message to the peer. When that fails the session ends.
func (p *peer) postMessage(m wire.Message, fds ...int) { _ = p.Post(m, nil, fds...) }

// sessionWith returns the session with another node. It makes one if needed.
func (s *Server) sessionWith(n fabric.NodeID) (*peer, error) {
	s.dialing.Lock()
	defer s.dialing.Unlock()
	s.mu.Lock()
	p := s.peers[n]
	s.mu.Unlock()
	switch {
	case p != nil:
		return p, nil
	case s.reachesFar(n):
		session, err := s.cfg.Far.Session(n)
		if err != nil {
			return nil, err
		}
		if p := s.farPeer(n, session); p != nil {
			return p, nil
		}
		return nil, fmt.Errorf("memory: node %d: %w", n, fabric.ErrPeerDown)
	case s.hub.Ended() || s.cfg.Dial == nil || n == s.cfg.Node:
		return nil, fmt.Errorf("memory: node %d: %w", n, fabric.ErrNoRoute)
	}
	conn, err := s.cfg.Dial(n)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.CheckPeer(conn, n); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	link, err := rpc.Serve(&s.hub, conn, &form, peerWaiting, false, nil)
	if err != nil {
		return nil, err
	}
	p = s.peerOf(n, link.Session)
	p.link, p.uid = link, link.Who.UID
	p.postMessage(wire.Message{Op: wire.OpHello, Node: s.cfg.Node}.Offering())
	s.mu.Lock()
	s.peers[n] = p
	s.mu.Unlock()
	go func() { _ = p.handleMessages() }() // end answers the requests that wait
	return p, nil
}

// peerOf returns a peer of a session.
func (s *Server) peerOf(n fabric.NodeID, session *rpc.Session[wire.Message]) *peer {
	return &peer{Session: session, server: s, node: n, holders: make(map[uint64]*borrower), zeroing: make(chan struct{}, zerosAtOnce)}
}

// helloTime is how long another node may take to say which it is.
const helloTime = 5 * time.Second

// Peer serves a connection that another node has made, until it ends. It takes conn. An error
// concerns that peer only.
func (s *Server) Peer(conn *net.UnixConn) error {
	link, err := rpc.Serve(&s.hub, conn, &form, peerWaiting, false, nil)
	if err != nil {
		return err
	}
	m, err := link.Bare(helloTime)
	switch {
	case err != nil:
	case m.Op != wire.OpHello || s.cfg.CheckPeer == nil:
		err = fmt.Errorf("%w: operation %d before a hello", wire.ErrMessage, m.Op)
	default:
		err = s.cfg.CheckPeer(conn, m.Node)
	}
	if err != nil {
		link.Close()
		return err
	}
	p := s.peerOf(m.Node, link.Session)
	p.link, p.uid = link, link.Who.UID
	return p.handleMessages()
}

// handleMessages handles messages until the connection ends.
func (p *peer) handleMessages() error {
	defer p.endSession()
	err := p.link.Run(p.handleRequest)
	if err != nil {
		p.server.cfg.Log.Debug("memory: a node's connection ends", "node", p.node, "reason", err)
	}
	return err
}

// endSession takes back what the peer's processes had, tells ours that what they had of it is
// lost, and ends all requests.
func (p *peer) endSession() {
	s := p.server
	if p.link != nil {
		p.link.Close()
	} else if p.Abort(); !p.End() {
		return
	} else if s.cfg.Far != nil && !s.hub.Ended() { // at the end the farewell tells the node
		s.cfg.Far.Abandon(p.node, p.farSession)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers[p.node] == p {
		delete(s.peers, p.node)
	}
	if p.far {
		s.farsOver[p.node] = max(s.farsOver[p.node], p.farSession)
	}
	if s.fars[p.node] == p {
		delete(s.fars, p.node)
	}
	s.dropLocked(p)
	for _, b := range p.holders {
		b.goneLocked(wire.StatusLost)
	}
	clear(p.holders)
}

// accountFor is whose limits apply to a loan: root's nodes speak for all users, any other user's
// for that user alone.
func (p *peer) accountFor(said uint32) caller.Account {
	if p.uid != 0 {
		return caller.Account(p.uid)
	}
	return caller.Account(said)
}

// handleRequest processes a message that is no answer.
func (p *peer) handleRequest(h *heard) error {
	s, m := p.server, h.Message
	reply := wire.Message{Op: m.Op, Number: m.Number | rpc.Answered, Node: s.cfg.Node}
	switch m.Op {
	case wire.OpOffer, wire.OpLend:
		var ok bool
		if reply.A, ok = wire.Versions.Agreed(m.A, m.F); !ok {
			reply.Status = wire.StatusVersion
			p.postMessage(reply)
			return nil
		}
		switch {
		case m.Op == wire.OpLend && p.far: // it may wait
			s.hub.Go(func() { p.lendTo(m, reply) })
			return nil
		case m.Op == wire.OpLend:
			p.lendTo(m, reply)
			return nil
		}
		s.mu.Lock()
		left, why := s.allowanceLocked(p.node, p.accountFor(m.Account))
		if s.limits.Lend == 0 {
			reply.Status = wire.StatusNoLender
		}
		s.mu.Unlock()
		reply.B, reply.C = uint64(left), uint64(why)
		p.postMessage(reply)
	case wire.OpReturn:
		s.giveBack(p, m.D)
	case wire.OpZero:
		if p.zeros.Add(1) > mostZeros {
			p.zeros.Add(-1)
			reply.Status = wire.StatusBusy
			p.postMessage(reply)
			return nil
		}
		s.hub.Go(func() {
			p.zeroing <- struct{}{}
			reply.Status = s.zeroPages(p, m)
			<-p.zeroing
			p.zeros.Add(-1)
			p.postMessage(reply)
		})
	case wire.OpRenew:
		if !s.renewLoan(p, m.D) {
			p.postMessage(wire.Message{Op: wire.OpGone, Status: wire.StatusNoLease, D: m.D})
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
	l, left, why := s.lendTo(p, request{
		node: p.node, account: p.accountFor(m.Account), pid: int(m.E),
		size: int64(m.B), min: int64(m.C), time: time.Duration(m.D), huge: m.Flags&wire.FlagHuge != 0,
	})
	if why != wire.StatusOK {
		reply.Status, reply.B = why, uint64(left)
		p.postMessage(reply)
		return
	}
	fds := []int(nil)
	if !p.far {
		fd, err := s.loanFd(l)
		if err != nil {
			s.endUndelivered(l)
			reply.Status = wire.StatusNoLender
			p.postMessage(reply)
			return
		}
		defer unix.Close(fd)
		fds = append(fds, fd)
	}
	reply.B, reply.D = uint64(l.size), l.id
	if !l.until.IsZero() {
		reply.C = uint64(l.until.UnixNano())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Over() { // end has not seen the loan, or has taken it back already
		s.dropLocked(p)
		return
	}
	_ = p.Post(reply, l.exported.encodeAddresses(), fds...)
	l.Answered()
}

// takeLent works off the answer to OpLend. late: nobody waits for it, and what it gives goes
// back.
func (p *peer) takeLent(b *borrower, r request, h *heard, late bool) {
	s := p.server
	if h == nil || h.Message.Status != wire.StatusOK {
		return
	}
	m := h.Message
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.holders[m.D] != nil || p.Over() { // of two with one number, who is told that it has ended?
		h.Message.Status = wire.StatusInvalid
		return
	}
	parts, ok := partsOf(h.More, m.B)
	if late || !r.isMetBy(m.B) || p.far && !ok || !p.far && len(h.Fds) != 1 {
		p.postMessage(wire.Message{Op: wire.OpReturn, D: m.D})
		h.Message.Status = wire.StatusInvalid
		return
	}
	g := grant{from: p, node: p.node, id: m.D, size: int64(m.B), fd: -1, parts: parts}
	if !p.far {
		g.fd = h.Fds.Take(0)
	}
	if m.C != 0 {
		g.until = time.Unix(0, int64(m.C))
	}
	p.holders[m.D] = b
	s.grantedLocked(b, g)
}

// callPeer sends a request and waits for its answer, as long as a node may take. take is as that
// of rpc.Session.Ask.
func (p *peer) callPeer(m wire.Message, take func(*heard, bool)) wire.Message {
	ctx, stop := context.WithTimeout(context.Background(), p.server.askTime)
	defer stop()
	return p.askPeer(ctx, m, take)
}

// askPeer is call for as long as ctx says.
func (p *peer) askPeer(ctx context.Context, m wire.Message, take func(*heard, bool)) wire.Message {
	a, err := p.Ask(ctx, m, take)
	if err != nil {
		return wire.Message{Status: wire.StatusNoNode, Node: p.node}
	}
	return a
}

// zeroLent has the lender make zeros of a part of a loan. It waits until the peer ends: who was
// told that this has failed could write there before it is done.
func (p *peer) zeroLent(m wire.Message) wire.Message {
	m.Op = wire.OpZero
	return p.askPeer(context.Background(), m, nil)
}

// lendMemory implements lender.
func (p *peer) lendMemory(b *borrower, r request) (grant, wire.Message) {
	m := wire.Message{
		Op: wire.OpLend, Account: uint32(r.account),
		B: uint64(r.size), C: uint64(r.min), D: uint64(r.time), E: uint64(r.pid),
	}.Offering()
	if r.huge {
		m.Flags |= wire.FlagHuge
	}
	a := p.callPeer(m, func(h *heard, late bool) { p.takeLent(b, r, h, late) })
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
		p.postMessage(wire.Message{Op: wire.OpReturn, D: id})
	}
}

// renewLease implements lender. Without a link nothing is said: it would be said for each time
// when the link is back.
func (p *peer) renewLease(id uint64) {
	if _, ok := p.reachableSince(); ok {
		p.postMessage(wire.Message{Op: wire.OpRenew, D: id})
	}
}

// revokeLocked implements holder.
func (p *peer) revokeLocked(id uint64, until time.Time) {
	p.postMessage(wire.Message{Op: wire.OpRevoke, D: id, C: uint64(until.UnixNano())})
}

// goneLocked implements holder.
func (p *peer) goneLocked(id uint64, why wire.Status) {
	p.postMessage(wire.Message{Op: wire.OpGone, D: id, Status: why})
}
