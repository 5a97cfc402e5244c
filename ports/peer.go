package ports

import (
	"errors"
	"fmt"
	"net"
	"time"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
	"exnet/node/rpc"
)

// form is how the messages of ports look.
var form = rpc.Form[wire.Message]{
	Size: wire.MessageSize, Descriptors: wire.Descriptors,
	Append: func(m wire.Message, b []byte) []byte { b, _ = m.AppendBinary(b); return b }, // it does not fail
	Parse:  func(b []byte) (m wire.Message, err error) { return m, m.UnmarshalBinary(b) },
	Number: func(m *wire.Message) *uint32 { return &m.Number },
}

// heard is a message of a process or a node.
type heard = rpc.Heard[wire.Message]

// peer is the session with the server of another node. Each node makes one for its own requests.
// The server's lock guards parties.
type peer struct {
	*rpc.Link[wire.Message]
	server  *Server
	node    fabric.NodeID
	parties map[pair]*remote
}

// pair names what two ports share.
type pair struct {
	unit         wire.Unit
	theirs, ours fabric.VPID
}

// remote is a port of a peer, paired with one of ours.
type remote struct {
	peer *peer
	pair pair
}

func (r *remote) addr() wire.Addr { return wire.Addr{Node: r.peer.node, VPID: r.pair.theirs} }

// gone implements party: our port has ended.
func (r *remote) gone(other wire.Addr) {
	delete(r.peer.parties, r.pair)
	r.peer.send(wire.Message{Op: wire.OpPeerGone, Unit: r.pair.unit, Addr: wire.Addr{Node: r.peer.node, VPID: r.pair.theirs}, A: uint64(other.VPID)})
}

// send sends a message to the peer. When that fails the session ends.
func (p *peer) send(m wire.Message, fds ...int) { _ = p.Post(m, nil, fds...) }

// dial returns the connection to another node. It makes one if needed.
func (s *Server) dial(n fabric.NodeID) (*peer, error) {
	s.dialing.Lock()
	defer s.dialing.Unlock()
	s.mu.Lock()
	p := s.peers[n]
	s.mu.Unlock()
	switch {
	case p != nil:
		return p, nil
	case s.hub.Ended() || s.cfg.Dial == nil:
		return nil, fmt.Errorf("ports: node %d: %w", n, fabric.ErrNoRoute)
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
	p = s.peerOf(n, link)
	p.send(wire.Message{Op: wire.OpHello, Addr: wire.Addr{Node: s.cfg.Node}, A: uint64(wire.Versions.Oldest), B: uint64(wire.Versions.Newest)})
	s.mu.Lock()
	s.peers[n] = p
	s.mu.Unlock()
	go func() { _ = p.handleMessages() }() // end fails the requests that wait
	return p, nil
}

func (s *Server) peerOf(n fabric.NodeID, link *rpc.Link[wire.Message]) *peer {
	return &peer{Link: link, server: s, node: n, parties: make(map[pair]*remote)}
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
	if err == nil {
		if _, ok := wire.Versions.Agreed(m.A, m.B); !ok || m.Op != wire.OpHello || s.cfg.CheckPeer == nil {
			err = fmt.Errorf("%w: %d, version %d, before a hello", wire.ErrMessage, m.Op, m.A)
		} else {
			err = s.cfg.CheckPeer(conn, m.Addr.Node)
		}
	}
	if err != nil {
		link.Close()
		return err
	}
	return s.peerOf(m.Addr.Node, link).handleMessages()
}

// handleMessages handles messages until the connection ends; then all ports of the peer have
// ended.
func (p *peer) handleMessages() error {
	defer p.endRequests()
	return p.Run(p.handleMessage)
}

// endRequests fails all unanswered requests, and reports the end to all ports paired with the
// peer's.
func (p *peer) endRequests() {
	s := p.server
	p.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers[p.node] == p {
		delete(s.peers, p.node)
	}
	for _, r := range p.parties {
		if ours := s.ports[r.pair.unit][r.pair.ours]; ours != nil && ours.pairs[r.addr()] == r {
			ours.gone(r.addr())
		}
	}
}

// handleMessage processes a message that is no answer. It closes the descriptors that it takes,
// and no others.
func (p *peer) handleMessage(h *heard) error {
	s, m := p.server, h.Message
	switch m.Op {
	case wire.OpRegister: // without the lock: the register file has counters of the server's own
		m.Number |= rpc.Answered
		p.send(s.access(m, m.D == 0 && p.speaksFor(0)))
		return nil
	case wire.OpPeerTransfer:
		s.transferFor(p, m, h.Fds)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m.Op {
	case wire.OpPeerConnect:
		p.admitLocked(m)
	case wire.OpPeerGone:
		r := p.parties[pair{m.Unit, fabric.VPID(m.A), m.Addr.VPID}]
		if r == nil {
			return nil
		}
		delete(p.parties, r.pair)
		if ours := s.ports[r.pair.unit][r.pair.ours]; ours != nil {
			ours.gone(r.addr())
		}
	default:
		return fmt.Errorf("%w: operation %d of node %d", wire.ErrMessage, m.Op, p.node)
	}
	return nil
}

// speaksFor returns whether the server believes the peer about processes of a user: root's nodes
// speak for all users, any other user's node for that user only.
func (p *peer) speaksFor(uid uint32) bool { return p.Who.UID == 0 || p.Who.UID == uid }

// admitLocked answers OpPeerConnect: A is the port that asks, B its user and protection ID.
//
// +checklocks:p.server.mu
func (p *peer) admitLocked(m wire.Message) {
	s := p.server
	reply := wire.Message{Op: m.Op, Number: m.Number | rpc.Answered, Addr: m.Addr, Unit: m.Unit, Status: wire.StatusNoPort}
	from := fabric.VPID(m.A)
	to := s.ports[m.Unit][m.Addr.VPID]
	if to == nil || !from.Valid() || m.A >= fabric.VPIDs {
		p.send(reply)
		return
	}
	if !p.speaksFor(uint32(m.B)) {
		reply.Status = wire.StatusDenied
		p.send(reply)
		return
	}
	key := pair{m.Unit, from, m.Addr.VPID}
	r := p.parties[key]
	if r == nil {
		r = &remote{p, key}
	}
	fds, bell, why := to.grantTo(r, rights{uint32(m.B), uint16(m.B >> 32)}, m.Unit)
	defer closeAll(bell)
	if reply.Status = why; why == wire.StatusOK {
		p.parties[key] = r
		reply.A = wire.Base(to.vpid)
	}
	p.send(reply, fds...)
}

// askNode sends a request of a port to another node and calls f with the answer, under the
// server's lock. It borrows the descriptors. A port has one such request at a time, so that no
// process can fill the outbox of a peer.
func (s *Server) askNode(from *port, n fabric.NodeID, m wire.Message, begin func(*peer) wire.Status, f func(wire.Message, rpc.Descriptors), send ...int) error {
	p, err := s.dial(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if from.asking {
		return fmt.Errorf("%w: operation %d before the last one was answered", wire.ErrMessage, m.Op)
	}
	if err != nil || p.Over() {
		f(wire.Message{Status: wire.StatusNoNode}, nil)
		return nil
	}
	if why := begin(p); why != wire.StatusOK {
		f(wire.Message{Status: why}, nil)
		return nil
	}
	from.asking = true
	take := func(h *heard, _ bool) {
		if h == nil {
			h = &heard{Message: wire.Message{Status: wire.StatusNoNode}}
		}
		from.asking = false
		f(h.Message, h.Fds)
	}
	if !p.Begin(m, func(h *heard, late bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		take(h, late)
	}, send...) {
		take(nil, false)
	}
	return nil
}

// connectPeer does connect with a port of another node. It makes the pair before the peer can
// report its end.
func (s *Server) connectPeer(p *port, m wire.Message) error {
	s.mu.Lock()
	ask := wire.Message{Op: wire.OpPeerConnect, Addr: m.Addr, Unit: p.unit, A: uint64(p.vpid), B: uint64(p.rights.uid) | uint64(p.rights.protect)<<32}
	s.mu.Unlock()
	var r *remote
	fresh := false
	begin := func(to *peer) wire.Status {
		// Otherwise any user's node could pass its own memory off as that user's.
		if p.rights.uid != 0 && !to.speaksFor(p.rights.uid) {
			return wire.StatusDenied
		}
		key := pair{p.unit, m.Addr.VPID, p.vpid}
		if r = to.parties[key]; r == nil {
			r = &remote{to, key}
			to.parties[key] = r
		}
		if p.pairs[m.Addr] == nil {
			p.pairs[m.Addr], fresh = r, true
		}
		return wire.StatusOK
	}
	return s.askNode(p, m.Addr.Node, ask, begin, func(a wire.Message, fds rpc.Descriptors) {
		if a.Status == wire.StatusOK && len(fds) != len(p.granted()) {
			a.Status = wire.StatusInvalid
		}
		reply := wire.Message{Op: wire.OpConnect, Number: m.Number, Addr: m.Addr, Unit: p.unit, Status: a.Status, A: a.A}
		if a.Status != wire.StatusOK {
			if fresh && p.pairs[m.Addr] == r {
				delete(r.peer.parties, r.pair)
				if _, writes := p.flows[m.Addr]; !writes {
					delete(p.pairs, m.Addr)
				}
			}
			fds = nil
		}
		_ = p.sendToProcess(reply, fds...) // it has ended
	})
}

// granted names the parts of a grant of a port of p's unit.
func (p *port) granted() []string {
	if p.unit == fabric.UnitRMA {
		return []string{"flow", "bell", "memory", "table"}
	}
	return []string{"flow", "bell"}
}

// registerPeer does register at another node. D is the user who asks.
func (s *Server) registerPeer(p *port, m wire.Message) error {
	s.mu.Lock()
	ask := m
	ask.D = uint64(p.rights.uid)
	s.mu.Unlock()
	return s.askNode(p, m.Addr.Node, ask, func(*peer) wire.Status { return wire.StatusOK }, func(a wire.Message, _ rpc.Descriptors) {
		a.Op, a.Number, a.Addr = m.Op, m.Number, m.Addr
		_ = p.sendToProcess(a) // it has ended
	})
}
