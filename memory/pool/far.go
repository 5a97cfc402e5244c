package pool

import (
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/memory/wire"
	"exnet/node/rpc"
)

// Far reaches the Servers of nodes of other hosts. Its methods may be called from many
// goroutines.
type Far interface {
	// Reaches returns whether the node has such a Server.
	Reaches(fabric.NodeID) bool
	// Up returns whether there is a link to the node just now, and its Server is the one that
	// was there before; and since when.
	Up(fabric.NodeID) (since time.Time, ok bool)
	// Session returns the number of the session with the node. It begins one if there is none. A
	// later session has a higher number.
	Session(fabric.NodeID) (uint64, error)
	// Send sends b, in order, as a message of a session. It copies b, and may wait for credit,
	// or for a link. An error says that the session is over.
	Send(to fabric.NodeID, session uint64, b []byte) error
	// Abandon ends a session at both ends.
	Abandon(n fabric.NodeID, session uint64)
}

// reachableSince says whether a peer can be reached just now, and since when: zero, if it is on
// this host.
func (p *peer) reachableSince() (since time.Time, ok bool) {
	if !p.far || p.server.cfg.Far == nil {
		return since, true
	}
	return p.server.cfg.Far.Up(p.node)
}

// reachesFar says whether a node is on another host and has a Server.
func (s *Server) reachesFar(n fabric.NodeID) bool {
	if s.cfg.Far == nil || n == s.cfg.Node || s.cfg.Nodes == nil {
		return false
	}
	for _, o := range s.cfg.Nodes() {
		if o.Node == n {
			return o.Far && s.cfg.Far.Reaches(n)
		}
	}
	return false
}

// farPeer returns the peer that a node of another host is in a session, or nil if that session
// is over. It makes one if needed. A later session ends the one before it.
func (s *Server) farPeer(n fabric.NodeID, session uint64) *peer {
	s.mu.Lock()
	p := s.fars[n]
	switch {
	case p != nil && p.farSession == session:
		s.mu.Unlock()
		return p
	case s.hub.Ended() || session <= s.farsOver[n] || p != nil && session < p.farSession:
		s.mu.Unlock()
		return nil
	}
	out := new(farOutbox)
	next := s.peerOf(n, rpc.NewSession(&form, out))
	next.far, next.farSession, out.peer = true, session, next
	s.fars[n] = next
	s.mu.Unlock()
	if p != nil {
		p.endSession()
	}
	return next
}

// Hear processes a message of the Server of a node of another host, by the session that it is
// of. It borrows b until return, and does not block.
func (s *Server) Hear(from fabric.NodeID, session uint64, b []byte) {
	var m wire.Message
	if m.UnmarshalBinary(b) != nil {
		return
	}
	p := s.farPeer(from, session)
	if p == nil {
		return
	}
	if err := p.Session.Hear(&heard{Message: m, More: b[wire.MessageSize:]}, p.handleRequest); err != nil {
		s.cfg.Log.Debug("memory: a message of another host", "node", from, "reason", err)
		p.Abort()
	}
}

// FarDown reports that a session with a node of another host is over: the node has ended, or had
// no link for too long. A link that comes back in time is not reported: leases go on, and what
// was under way is done once more.
func (s *Server) FarDown(n fabric.NodeID, session uint64) {
	s.mu.Lock()
	p := s.fars[n]
	s.farsOver[n] = max(s.farsOver[n], session)
	s.mu.Unlock()
	if p != nil && p.farSession <= session {
		p.endSession()
	}
}

// encodeAddresses is where the parts of the memory are, as they follow the answer to OpLend.
func (e exported) encodeAddresses() (b []byte) {
	for _, nla := range e.parts {
		b = binary.LittleEndian.AppendUint64(b, uint64(nla))
	}
	return b
}

// partsOf reads where the parts of size bytes are.
func partsOf(b []byte, size uint64) (parts []atu.NLA, ok bool) {
	n := (size + wire.PartSize - 1) / wire.PartSize
	if uint64(len(b)) != 8*n || n == 0 {
		return nil, false
	}
	for ; len(b) > 0; b = b[8:] {
		parts = append(parts, atu.NLA(binary.LittleEndian.Uint64(b)))
	}
	return parts, true
}

// farOutbox sends to a node of another host, in a goroutine of its own while something waits.
type farOutbox struct {
	peer *peer

	mu      sync.Mutex
	queue   [][]byte // +checklocks:mu
	sending bool     // +checklocks:mu
	// closed: the end. Its peer has ended, or is about to.
	closed bool // +checklocks:mu
}

// Post implements rpc.Sender.
func (o *farOutbox) Post(b []byte, _ ...int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.queue) >= peerWaiting {
		return fabric.ErrPeerDown
	}
	o.queue = append(o.queue, b)
	if !o.sending {
		o.sending = true
		go o.send()
	}
	return nil
}

func (o *farOutbox) send() {
	for {
		o.mu.Lock()
		all := o.queue
		o.queue, o.sending = nil, len(all) > 0 && !o.closed
		more := o.sending
		o.mu.Unlock()
		if !more {
			return
		}
		for _, b := range all {
			if o.peer.server.cfg.Far.Send(o.peer.node, o.peer.farSession, b) != nil {
				o.Abort()
				break
			}
		}
	}
}

// Abort implements rpc.Sender. The server's lock may be held.
func (o *farOutbox) Abort() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed, o.queue = true, nil
		go o.peer.endSession()
	}
}

// zeroPages gives back whole pages of a loan.
func (s *Server) zeroPages(h holder, m wire.Message) wire.Status {
	s.mu.Lock()
	l := s.loans[m.D]
	s.mu.Unlock()
	switch {
	case l == nil || l.holder != h:
		return wire.StatusNoLease
	case m.A%uint64(leaseUnit(l.huge)) != 0 || m.B%uint64(leaseUnit(l.huge)) != 0 || m.B > uint64(l.size) || m.A > uint64(l.size)-m.B:
		return wire.StatusInvalid
	}
	fd, err := s.loanFd(l)
	if err != nil {
		return wire.StatusNoLease
	}
	defer unix.Close(fd)
	if unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(m.A), int64(m.B)) != nil {
		return wire.StatusInvalid
	}
	return wire.StatusOK
}
