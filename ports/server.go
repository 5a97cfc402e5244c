package ports

import (
	"fmt"
	"net"
	"sync"
	"time"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/link/attach/wire"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
)

// DefaultPerUser is how many ports a user may have unless Config says otherwise.
const DefaultPerUser = 64

// waiting is how many messages a process may leave unread, beyond what its socket holds, before
// the server closes its port: room for the beginnings and ends of all ports of a node.
const waiting = 512

// peerWaiting is the same for another node. Processes cannot fill it: each has one request at a
// time, and each pair of ports ends once.
const peerWaiting = fabric.VPIDs * fabric.VPIDs

// Limits of connections, with or without an open port: per user, one that waits to be refused for
// each port, and in total for all users but root.
const (
	connectionsPerPort = 2
	connectionsMax     = 1024
)

// Config is what a Server is made of.
type Config struct {
	// Node is the node that owns the ports.
	Node fabric.NodeID
	// PerUser is how many ports a user may have, of both units together; root may have
	// all. 0: DefaultPerUser.
	PerUser int
	// Dial connects to the server of another node of this host. nil: this host has no other.
	Dial func(fabric.NodeID) (*net.UnixConn, error)
	// CheckPeer returns an error unless the process at the other end is that node. nil: none is.
	CheckPeer func(*net.UnixConn, fabric.NodeID) error
	// Registers is the node's register file, or nil.
	Registers Registers
	// Far reaches nodes of other hosts. nil: there are none.
	Far Far
	// Driver is the thread that sends on what ports have for those of other hosts, beside the
	// links. Without one, the server has a goroutine.
	Driver link.Driver
	// Mover moves what is large between hosts, with Far. nil: messages do.
	Mover Mover
	// Members returns the nodes that a message to a multicast group goes to. nil: there are no
	// groups.
	Members func(fabric.GroupID) []fabric.NodeID

	// stepping is called before each step of a pair, with the server's lock. nil: tests only.
	stepping func(f *farPair, ev pairEvent)
}

// Registers is a register file (thesis 3.2.6). Its methods may be called from many goroutines.
type Registers interface {
	// ReadRegister returns a register's value, and false if the address has no register.
	ReadRegister(addr uint64) (value uint64, ok bool)
	// WriteRegister changes a register. It returns false if there is none, or the value is
	// invalid.
	WriteRegister(addr, value uint64) (ok bool)
}

// Server serves the ports of a node.
//
// Concurrency: all methods may be called from many goroutines.
type Server struct {
	cfg Config

	hub     rpc.Hub
	dialing sync.Mutex // one connection to a peer is made at a time

	mu sync.Mutex
	// ports: by unit and VPID.
	ports map[wire.Unit]map[fabric.VPID]*port // +checklocks:mu
	// next: where the search for a free VPID begins, so that none is used again soon.
	next  fabric.VPID                // +checklocks:mu
	peers map[fabric.NodeID]*peer    // +checklocks:mu
	fars  map[fabric.NodeID]*farNode // +checklocks:mu
	// farsOver: the last session with a node that is over.
	farsOver map[fabric.NodeID]uint64 // +checklocks:mu
	copies   copies                   // +checklocks:mu
	copyTime time.Duration            // how long a transfer is waited for; tests change it before all else
	// lingers: pairs with ports of other hosts that have ended and still send, of each user and in
	// all.
	lingers    map[caller.Account]int // +checklocks:mu
	lingersAll int                    // +checklocks:mu
	// carrier: for VELO pairs with ports of other hosts; nil: there were none. streams: the number
	// of the last of its pairs.
	carrier *carrier      // +checklocks:mu
	streams uint32        // +checklocks:mu
	farTime time.Duration // how long a node of another host may take; as copyTime
	// ended: the ports opened so far, and what those that have ended had counted.
	ended Stats // +checklocks:mu
}

// New returns a Server without ports.
func New(cfg Config) *Server {
	if cfg.PerUser == 0 {
		cfg.PerUser = DefaultPerUser
	}
	return &Server{
		cfg: cfg, next: wire.FirstVPID, peers: make(map[fabric.NodeID]*peer), fars: make(map[fabric.NodeID]*farNode), farsOver: make(map[fabric.NodeID]uint64),
		hub:    rpc.Hub{PerAccount: connectionsPerPort * cfg.PerUser, Total: connectionsMax},
		copies: copies{users: make(map[caller.Account]*userCopies)}, copyTime: copyTime,
		lingers: make(map[caller.Account]int), farTime: farTime,
		ports: map[wire.Unit]map[fabric.VPID]*port{fabric.UnitVELO: {}, fabric.UnitRMA: {}},
	}
}

// Process serves a process until it ends, breaks the rules, or the server is closed. It takes
// conn, a SOCK_SEQPACKET socket. An error concerns that process only; the server continues.
func (s *Server) Process(conn *net.UnixConn) error {
	link, err := rpc.Serve(&s.hub, conn, &form, waiting, true, nil)
	if err != nil {
		return err
	}
	defer link.Close()
	h, err := link.Receive()
	defer func() { link.Throw(h.Fds) }() // those that open has not taken
	switch {
	case rpc.HungUp(err):
		return nil // it has looked whether there is a node
	case err != nil:
		return err
	}
	p, err := s.openPort(h.Message, h.Fds, link)
	switch {
	case rpc.HungUp(err):
		return nil // it has ended
	case p == nil:
		return err
	}
	defer s.endPort(p)
	for link.Out.Drained() { // the process reads its answers
		h, err := link.Receive()
		if err == nil {
			err = s.request(p, h.Message, h.Fds)
		}
		link.Throw(h.Fds)
		if rpc.HungUp(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openPort answers OpOpen. It returns neither a port nor an error if it has refused the request.
// The first of fds is the memory of an RMA port that the process has open already.
//
// +checklocksignore: it takes the two defers for a leak
func (s *Server) openPort(m wire.Message, fds rpc.Descriptors, link *rpc.Link[wire.Message]) (*port, error) {
	if m.Op != wire.OpOpen || m.Unit == 0 {
		return nil, fmt.Errorf("%w: %d before a port was opened", wire.ErrMessage, m.Op)
	}
	reply := wire.Message{Op: wire.OpOpen, Number: m.Number, Unit: m.Unit, Addr: wire.Addr{Node: s.cfg.Node}}
	refuse := func(why wire.Status) (*port, error) {
		reply.Status = why
		return nil, link.Post(reply, nil)
	}
	version, ok := wire.Versions.Agreed(m.A, m.C)
	if !ok {
		reply.A = version
		return refuse(wire.StatusVersion)
	}
	if m.B != 0 && (m.B < uint64(wire.FirstVPID) || m.B >= fabric.VPIDs) {
		return refuse(wire.StatusInvalid)
	}
	theirs := -1
	if len(fds) > 0 && m.Unit == fabric.UnitRMA {
		if !isMemory(fds[0]) {
			return refuse(wire.StatusInvalid)
		}
		theirs = fds.Take(0)
	}
	p, own, err := s.newPort(m.Unit, theirs)
	if err != nil {
		return refuse(wire.StatusFull)
	}
	defer closeAll(own...)
	who := link.Who
	p.link, p.pid, p.rights.uid, p.account = link, int32(who.PID), who.UID, who.Account
	s.mu.Lock()
	defer s.mu.Unlock()
	if why := s.enterLocked(p, fabric.VPID(m.B)); why != wire.StatusOK {
		p.close()
		return refuse(why)
	}
	reply.Addr.VPID, reply.A, reply.C = p.vpid, wire.Base(p.vpid), version
	grant := []int{p.page, own[0]}
	if p.memory >= 0 {
		grant = append(grant, p.memory, own[1])
	}
	if err := p.sendToProcess(reply, grant...); err != nil {
		delete(s.ports[p.unit], p.vpid)
		p.close()
		return nil, err
	}
	s.ended.Opened++
	return p, nil
}

// enterLocked gives p the VPID wants or, for 0, any free one.
//
// +checklocks:s.mu
func (s *Server) enterLocked(p *port, wants fabric.VPID) wire.Status {
	mine := 0
	for _, all := range s.ports {
		for _, o := range all {
			if o.account == p.account {
				mine++
			}
		}
	}
	if s.hub.Ended() || !p.account.Unlimited() && mine >= s.cfg.PerUser {
		return wire.StatusFull
	}
	if wants != 0 {
		if s.ports[p.unit][wants] != nil {
			return wire.StatusInUse
		}
		p.vpid = wants
		s.ports[p.unit][wants] = p
		return wire.StatusOK
	}
	const n = fabric.VPIDs - wire.FirstVPID
	for i := range n {
		v := wire.FirstVPID + (s.next-wire.FirstVPID+i)%n
		if s.ports[p.unit][v] == nil {
			p.vpid, s.next = v, wire.FirstVPID+(v-wire.FirstVPID+1)%n
			s.ports[p.unit][v] = p
			return wire.StatusOK
		}
	}
	return wire.StatusFull
}

// endPort frees a port: its VPID, its memory here, and its grants.
func (s *Server) endPort(p *port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ports[p.unit], p.vpid)
	s.ended.addPort(p.unit, p.counters())
	for who, other := range p.pairs {
		if who != p.addr() {
			other.gone(p.addr())
		}
	}
	p.close()
}

// request answers a message of a process. It closes the descriptors that it takes, and no others.
func (s *Server) request(p *port, m wire.Message, fds rpc.Descriptors) error {
	switch m.Op {
	case wire.OpReach:
		return s.answerReach(p, m, fds)
	case wire.OpTransfer:
		return s.transfer(p, m)
	case wire.OpConnect:
		return s.connect(p, m)
	case wire.OpProtect:
		s.mu.Lock()
		p.rights.protect = uint16(m.A)
		s.mu.Unlock()
		return p.sendToProcess(wire.Message{Op: m.Op, Number: m.Number})
	case wire.OpRegister:
		return s.register(p, m)
	case wire.OpMember:
		return p.sendToProcess(s.member(m))
	}
	return fmt.Errorf("%w: operation %d", wire.ErrMessage, m.Op)
}

// connect grants a port the memory of another.
func (s *Server) connect(p *port, m wire.Message) error {
	if f := s.far(m.Addr.Node); f != nil {
		return s.connectFar(p, f, m)
	}
	if m.Addr.Node != s.cfg.Node {
		return s.connectPeer(p, m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := wire.Message{Op: wire.OpConnect, Number: m.Number, Addr: m.Addr, Unit: p.unit, Status: wire.StatusNoPort}
	to := s.ports[p.unit][m.Addr.VPID]
	if to == nil {
		return p.sendToProcess(reply)
	}
	fds, bell, why := to.grantTo(p, p.rights, p.unit)
	defer closeAll(bell)
	if reply.Status = why; why == wire.StatusOK {
		p.pairs[to.addr()] = to
		reply.A = wire.Base(to.vpid)
	}
	return p.sendToProcess(reply, fds...)
}

// member answers OpMember: A is the group, B the index of a member.
func (s *Server) member(m wire.Message) wire.Message {
	r := wire.Message{Op: m.Op, Number: m.Number, Status: wire.StatusInvalid}
	if m.A >= fabric.Groups || s.cfg.Members == nil {
		return r
	}
	members := s.cfg.Members(fabric.GroupID(m.A))
	r.Status, r.A = wire.StatusOK, uint64(len(members))
	if m.B < r.A {
		r.Addr.Node = members[m.B]
	}
	return r
}

// Bits of C in OpRegister.
const registerWrite = 1

// register answers OpRegister: A is the address, B the value to write. Only root writes.
func (s *Server) register(p *port, m wire.Message) error {
	if f := s.far(m.Addr.Node); f != nil {
		return s.registerFar(p, f, m)
	}
	if m.Addr.Node != s.cfg.Node {
		return s.registerPeer(p, m)
	}
	s.mu.Lock()
	root := p.rights.uid == 0
	s.mu.Unlock()
	return p.sendToProcess(s.access(m, root))
}

// access reads or writes a register of this node.
func (s *Server) access(m wire.Message, root bool) wire.Message {
	r := wire.Message{Op: m.Op, Number: m.Number, Addr: m.Addr, A: m.A, Status: wire.StatusInvalid}
	ok := false
	switch {
	case s.cfg.Registers == nil:
	case m.C&registerWrite == 0:
		r.B, ok = s.cfg.Registers.ReadRegister(m.A)
	case !root:
		r.Status = wire.StatusDenied
	default:
		ok = s.cfg.Registers.WriteRegister(m.A, m.B)
	}
	if ok {
		r.Status = wire.StatusOK
	}
	return r
}

// Close ends all ports. It does not wait for Process and Peer to return.
func (s *Server) Close() {
	s.hub.End()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.fars {
		s.farDownLocked(f)
	}
	if s.carrier != nil {
		s.carrier.stopDriver()
	}
}
