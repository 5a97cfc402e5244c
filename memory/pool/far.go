package pool

import (
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/memory/wire"
	"exnet/node/rpc"
)

// Far reaches the Servers of nodes of other hosts. Its methods may be called from many goroutines.
type Far interface {
	// Reaches returns whether the node has such a Server.
	Reaches(fabric.NodeID) bool
	// Up returns whether there is a link to the node just now, and its Server is the one that was
	// there before.
	Up(fabric.NodeID) bool
	// Send sends b, in order. It copies b, and may wait for credit, or for a link. After an error
	// the node counts as gone.
	Send(to fabric.NodeID, b []byte) error
}

// away says whether a peer is on another host to which there is no link just now.
func (p *peer) away() bool { return p.far && p.server.cfg.Far != nil && !p.server.cfg.Far.Up(p.node) }

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

// farPeer returns the peer that a node of another host is. It makes one if needed.
func (s *Server) farPeer(n fabric.NodeID) *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.fars[n]
	if p == nil {
		out := new(farOutbox)
		p = s.peerOf(n, rpc.NewSession(&form, out))
		p.far, out.peer = true, p
		if s.hub.Ended() {
			p.End()
			return p
		}
		s.fars[n] = p
	}
	return p
}

// Hear processes a message of the Server of a node of another host. It borrows b until return, and
// does not block.
func (s *Server) Hear(from fabric.NodeID, b []byte) {
	var m wire.Message
	if m.UnmarshalBinary(b) != nil {
		return
	}
	p := s.farPeer(from)
	if s.hub.Ended() {
		return
	}
	if err := p.Session.Hear(&heard{Message: m, More: b[wire.MessageSize:]}, p.handle); err != nil {
		s.cfg.Log.Debug("memory: a message of another host", "node", from, "reason", err)
		p.Abort()
	}
}

// FarDown reports that a node of another host has ended, or had no link for too long. A link that
// comes back in time is not reported: leases go on, and what was under way is done once more.
func (s *Server) FarDown(n fabric.NodeID) {
	s.mu.Lock()
	p := s.fars[n]
	s.mu.Unlock()
	if p != nil {
		p.end()
	}
}

// addresses is where the parts of the memory are, as they follow the answer to OpLend.
func (e exported) addresses() (b []byte) {
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
			if o.peer.server.cfg.Far.Send(o.peer.node, b) != nil {
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
		go o.peer.end()
	}
}

// zero gives back whole pages of a loan.
func (s *Server) zero(h holder, m wire.Message) wire.Status {
	s.mu.Lock()
	l := s.loans[m.D]
	s.mu.Unlock()
	switch {
	case l == nil || l.holder != h:
		return wire.StatusNoLease
	case m.A%uint64(unit(l.huge)) != 0 || m.B%uint64(unit(l.huge)) != 0 || m.B > uint64(l.size) || m.A > uint64(l.size)-m.B:
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
