package ports

import (
	"fmt"
	"sync/atomic"
	"time"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
	"exnet/internal/shm"
	"exnet/node/rpc"

	"golang.org/x/sys/unix"
)

// Far reaches the servers of nodes of other hosts. Its methods may be called from many goroutines.
type Far interface {
	// Reaches returns whether the node has such a server.
	Reaches(fabric.NodeID) bool
	// Session returns the number of the session with the node. It begins one if there is none. A
	// later session has a higher number.
	Session(fabric.NodeID) (uint64, error)
	// Send sends b, in order, as a message of a session. It copies b, and may wait for credit. An
	// error says that the session is over.
	Send(to fabric.NodeID, session uint64, b []byte) error
	// TrySend is Send that does not wait: the error wraps fabric.ErrAgain if there is no credit.
	// Flush follows, after one message or several.
	TrySend(to fabric.NodeID, session uint64, b []byte) error
	Flush(to fabric.NodeID)
}

// farNode is a node of another host, during one session with its server. Its fields belong to the
// server's lock.
type farNode struct {
	server  *Server
	id      fabric.NodeID
	session uint64                     // it does not change
	number  uint32                     // of the last request
	asked   map[uint32]chan farMessage // unanswered requests
	pairs   map[pair]*farPair
	// streams: the pairs that a carrier serves, by the number that it has at the other node.
	streams map[uint32]*farPair
	down    bool
	// posts wait for posting, which sends them.
	posts   []farPost
	posting bool
}

// farPost is a message to a node that nobody waits to have sent. It may be a request of that node
// for a register, to be answered.
type farPost struct {
	wire.Message
	access bool
}

// farMessage is a message with what follows it.
type farMessage struct {
	wire.Message
	data []byte
}

// farPair is a port of another host, paired with one of ours. A goroutine
// carries out the far port's operations on ours; another one, or the carrier, those of our port on
// the far one.
type farPair struct {
	node  *farNode
	pair  pair
	ours  *port
	state pairState // the server's lock guards it
	// requests of the far port. It cannot overflow if the far node keeps the rules.
	requests chan farMessage
	// ended is closed when the pair does not last, cut in pairCut, and overDone in pairOver, for
	// those who wait without the server's lock.
	ended, cut, overDone chan struct{}
	// next: the far port has ended, and the next one with its VPID wants to be paired with ours.
	// It is answered when the pair is over. The server's lock guards it.
	next *wire.Message

	// queued is how many of requests are not worked off: only without any, a slot is written as it
	// comes.
	queued atomic.Int32
	slots  slotCount     // of the far port's slots: who works off requests has it, or the server's lock
	stream uint32        // of our port's slots
	sent   atomic.Uint64 // of them
	taken  atomic.Uint64 // of those, what is in the far port's flow
	carry  carriage      // the carrier's

	// The server's lock guards these; those that move use what out and in point to.
	out *farOut // to our port, from pairHeard on
	in  *reader // from our port, from pairPaired on; knows and carried do not change then
	// knows: what the far node can do, as bits of its answer (farMoves and so on).
	knows   uint64
	carried bool // the carrier reads in, and pump does not

	moving chan struct{} // has an element for each request of our port's GETs and PUTs under way
}

const (
	// farWindow is the number of requests that a pair has under way in each direction.
	farWindow = 64
	// farLingers is how many pairs of a user's ports may have ended and still wait for the far port
	// to take what was sent before, and farLingersAll how many of all users and root. Of more, what
	// was not taken is lost.
	farLingers, farLingersAll = 64, 1024
	// farPosts is how many posts wait for a node: more than all ports of both nodes cause, if both
	// keep the rules. Further ones are dropped.
	farPosts = 1 << 16
	// farMoves, farCounts and farLarge are bits of B in the answer to OpFarConnect: the node knows
	// OpFarGive and OpFarTake; OpFarSlot; and farPart bytes by one of the former.
	farMoves, farCounts, farLarge = 1, 2, 4
	// farTime is how long a node may take to say whether it has a port or a register.
	farTime = 10 * time.Second
)

func (f *farPair) addr() wire.Addr { return wire.Addr{Node: f.node.id, VPID: f.pair.theirs} }

// gone implements party: our port has ended. The pair first sends on what the port sent before,
// then reports the end to the far port.
func (f *farPair) gone(wire.Addr) {
	delete(f.ours.pairs, f.addr()) // it need not hear of the end
	f.handleEvent(pairParted)
}

// hasSent is the end of pump, or of what the carrier does for the pair.
func (f *farPair) hasSent() {
	s := f.node.server
	s.mu.Lock()
	defer s.mu.Unlock()
	f.handleEvent(pairSent)
}

// Hear processes a message from the server of a node of another host, by the session that it is of.
// It borrows b until return, and does not block.
func (s *Server) Hear(from fabric.NodeID, session uint64, b []byte) {
	if slot, message, ok := wire.CutSlot(b); ok {
		s.hearSlot(from, session, slot, message)
		return
	}
	m := farMessage{}
	if len(b) < wire.MessageSize || m.UnmarshalBinary(b[:wire.MessageSize]) != nil {
		return
	}
	m.data = append([]byte(nil), b[wire.MessageSize:]...)
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.farLocked(from, session)
	if f == nil {
		return
	}
	if m.Number&rpc.Answered != 0 {
		if c := f.asked[m.Number]; c != nil {
			delete(f.asked, m.Number)
			c <- m
		}
		return
	}
	switch m.Op {
	case wire.OpFarConnect:
		if p := f.pairs[pairOf(m.Message)]; p != nil && !p.state.begins() {
			p.next = &m.Message
			return
		}
		f.postLocked(s.admitFarLocked(f, m.Message), false)
	case wire.OpFarGone:
		if p := f.pairs[pairOf(m.Message)]; p != nil {
			p.hearGone(m)
		}
	case wire.OpRegister:
		f.postLocked(m.Message, true)
	case wire.OpFarTaken:
		s.takenLocked(f, m.Message)
	default:
		p := f.pairs[pairOf(m.Message)]
		if p == nil || !p.state.hears() {
			if m.Number != 0 {
				f.postLocked(wire.Message{Op: m.Op, Number: m.Number | rpc.Answered, Status: wire.StatusNoPort}, false)
			}
			return
		}
		if !p.enqueue(m) { // it has more under way than it may
			p.handleEvent(pairParted)
		}
	}
}

// pairOf returns which pair a message of a far port is of.
func pairOf(m wire.Message) pair { return pair{m.Unit, fabric.VPID(m.A), m.Addr.VPID} }

// hearGone processes OpFarGone: the end of the far port comes after what that has sent. The
// server's lock is held.
func (f *farPair) hearGone(m farMessage) {
	switch {
	case f.state.hears():
		if f.handleEvent(pairGone); !f.enqueue(m) {
			f.handleEvent(pairParted)
		}
	case f.state == pairAsking:
		f.handleEvent(pairGone)
	case f.next != nil: // it waits no more
		f.node.postLocked(wire.Message{Op: f.next.Op, Number: f.next.Number | rpc.Answered, Addr: f.next.Addr, Unit: f.next.Unit, Status: wire.StatusNoPort}, false)
		f.next = nil
	}
}

// enqueue leaves a message to serve. It returns false if too many wait.
func (f *farPair) enqueue(m farMessage) bool {
	f.queued.Add(1)
	select {
	case f.requests <- m:
		return true
	default:
		f.queued.Add(-1)
		return false
	}
}

// farRegister answers a request for a register. Root on another host may not write here.
func (s *Server) farRegister(m wire.Message) wire.Message {
	r := s.access(m, false)
	r.Number = m.Number | rpc.Answered
	return r
}

// registerFar does register for a register of a node of another host.
func (s *Server) registerFar(p *port, f *farNode, m wire.Message) error {
	a := f.callSoon(m)
	a.Op, a.Number, a.Addr = m.Op, m.Number, m.Addr
	return p.sendToProcess(a)
}

// FarDown reports that a session with a node of another host is over.
func (s *Server) FarDown(n fabric.NodeID, session uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.fars[n]; f != nil && f.session <= session {
		s.farDownLocked(f)
	}
	s.farsOver[n] = max(s.farsOver[n], session)
}

// +checklocks:s.mu
func (s *Server) farDownLocked(f *farNode) {
	if f.down {
		return
	}
	delete(s.fars, f.id)
	s.farsOver[f.id] = max(s.farsOver[f.id], f.session)
	f.down = true
	for _, p := range f.pairs {
		p.handleEvent(pairParted)
	}
	for _, p := range f.streams { // nobody takes what is left of them
		p.handleEvent(pairLost)
	}
	for _, c := range f.asked {
		close(c)
	}
	f.asked = nil
}

// pairLocked returns the pair of a port of ours with one of the node. It makes it if needed.
//
// +checklocks:s.mu
func (s *Server) pairLocked(f *farNode, ours *port, theirs fabric.VPID) *farPair {
	key := pair{ours.unit, theirs, ours.vpid}
	p := f.pairs[key]
	if p == nil {
		p = &farPair{node: f, pair: key, ours: ours, requests: make(chan farMessage, farSlots+farWindow), ended: make(chan struct{}), cut: make(chan struct{}), overDone: make(chan struct{}), moving: make(chan struct{}, farParts)}
		f.pairs[key] = p
	}
	return p
}

// openLocked gives our port the flow of the far one, if it has none yet.
//
// +checklocks:s.mu
func (s *Server) openLocked(p *farPair) error {
	ours := p.ours
	if p.state != pairAsking {
		return nil
	}
	if err := ours.view(); err != nil {
		return err
	}
	bell, err := reopen(ours.bell, unix.O_WRONLY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	fd, err := sealedMemory("exnet-flow", wire.FlowHeader+flowBytes(ours.unit))
	if err != nil {
		closeAll(bell)
		return err
	}
	w, err := newWriter(ours.unit, fd, bell)
	if err != nil {
		closeAll(fd)
		return err
	}
	p.out = &farOut{writer: w, ended: p.ended}
	ours.pairs[p.addr()], ours.flows[p.addr()] = p, fd
	p.handleEvent(pairOpened)
	ours.event(wire.Message{Op: wire.OpFlow, Addr: p.addr(), Unit: ours.unit, A: 1}, fd)
	go p.serveRequests(p.out)
	return nil
}

func flowBytes(u wire.Unit) int {
	n, size := wire.Slots(u)
	return n * size
}

// view maps the memory of an RMA port, for ports of other hosts. The server's lock is held.
func (p *port) view() (err error) {
	if p.unit != fabric.UnitRMA || p.mapped != nil {
		return nil
	}
	v := new(views)
	if v.memory, err = shm.MapShared(p.memory, wire.MemorySize, wire.MemorySize, unix.F_SEAL_SHRINK, true); err != nil {
		return fmt.Errorf("ports: memory of a port: %w", err)
	}
	if v.table, err = shm.MapShared(p.table, wire.TableSize, wire.TableSize, unix.F_SEAL_SHRINK, false); err != nil {
		return fmt.Errorf("ports: table of a port: %w", err)
	}
	p.mapped = v
	return nil
}

// views are the memory and the table of an RMA port.
type views struct{ memory, table *shm.Foreign }

// ofPort returns the memory of the port vpid.
func (v *views) ofPort(vpid fabric.VPID) wire.Memory {
	return wire.Memory{VPID: vpid, Table: v.table.Memory(), Memory: v.memory.Memory()}
}

// admitFarLocked answers OpFarConnect: A is the port that asks, B its user and protection ID.
//
// +checklocks:s.mu
func (s *Server) admitFarLocked(f *farNode, m wire.Message) wire.Message {
	r := wire.Message{Op: m.Op, Number: m.Number | rpc.Answered, Addr: m.Addr, Unit: m.Unit, Status: wire.StatusNoPort}
	from := fabric.VPID(m.A)
	ours := s.ports[m.Unit][m.Addr.VPID]
	switch {
	case ours == nil || !from.Valid() || m.A >= fabric.VPIDs:
		return r
	case (rights{uint32(m.B), uint16(m.B >> 32)}) != ours.rights: // root of another host is not root here
		r.Status = wire.StatusDenied
		return r
	}
	p := s.pairLocked(f, ours, from)
	if s.openLocked(p) != nil {
		p.handleEvent(pairRefused)
		r.Status = wire.StatusFull
		return r
	}
	r.Status, r.A, r.B = wire.StatusOK, wire.Base(ours.vpid), farCounts
	if s.cfg.Mover != nil {
		r.B |= farMoves | farLarge
	}
	return r
}

// connectTries is how often a port is connected while the pair that it had ends.
const connectTries = 3

// connectFar connects a port to one of another host: it grants a flow that the node reads.
func (s *Server) connectFar(p *port, f *farNode, m wire.Message) error {
	reply := wire.Message{Op: wire.OpConnect, Number: m.Number, Addr: m.Addr, Unit: p.unit, Status: wire.StatusNoNode, B: 1}
	for range connectTries {
		// Make the pair before the node can report the port's end.
		pair := s.pairAnew(f, p, m.Addr.VPID)
		if pair == nil {
			break
		}
		s.mu.Lock()
		ask := wire.Message{Op: wire.OpFarConnect, Addr: m.Addr, Unit: p.unit, A: uint64(p.vpid), B: uint64(p.rights.uid) | uint64(p.rights.protect)<<32}
		s.mu.Unlock()
		a := f.callSoon(ask)
		s.mu.Lock()
		fds, bell, why := s.answeredLocked(pair, a)
		if reply.Status = why; why == wire.StatusNoPort && a.Status == wire.StatusOK { // the end was of the port before
			s.mu.Unlock()
			continue
		}
		reply.A = a.A
		defer closeAll(bell)
		defer s.mu.Unlock()
		return p.sendToProcess(reply, fds...)
	}
	return p.sendToProcess(reply)
}

// pairAnew returns a pair in which the far port may be heard. It waits for a while for the end of
// one of the port that had its VPID before, or returns nil.
func (s *Server) pairAnew(f *farNode, ours *port, theirs fabric.VPID) *farPair {
	limit := time.After(s.farTime)
	for {
		s.mu.Lock()
		p := s.pairLocked(f, ours, theirs)
		begins := p.state.begins()
		s.mu.Unlock()
		if begins {
			return p
		}
		select {
		case <-p.overDone:
		case <-limit:
			return nil
		}
	}
}

// answeredLocked works off the answer to OpFarConnect. It returns the flow of the pair and its
// bell, which the caller closes, or -1.
//
// +checklocks:s.mu
func (s *Server) answeredLocked(p *farPair, a wire.Message) (fds []int, bell int, why wire.Status) {
	switch a.Status {
	case wire.StatusOK:
	case wire.StatusNoNode:
		p.handleEvent(pairFailed)
		return nil, -1, a.Status
	default:
		p.handleEvent(pairRefused)
		return nil, -1, a.Status
	}
	if !p.state.begins() {
		return nil, -1, wire.StatusNoPort
	}
	if p.in == nil {
		p.knows = a.B
	}
	if s.grantLocked(p) == nil {
		if bell, err := reopen(p.in.ring, unix.O_WRONLY|unix.O_NONBLOCK); err == nil {
			return []int{p.in.fd, bell}, bell, wire.StatusOK
		}
	}
	p.handleEvent(pairFailed)
	return nil, -1, wire.StatusFull
}

// grantLocked makes both flows of a pair, if they are not there yet.
//
// +checklocks:s.mu
func (s *Server) grantLocked(p *farPair) (err error) {
	if err := s.openLocked(p); err != nil || p.state == pairPaired {
		return err
	}
	if p.in, err = newReader(p.pair.unit); err != nil {
		return err
	}
	p.handleEvent(pairGranted)
	if p.carried = p.pair.unit == fabric.UnitVELO && p.knows&farCounts != 0 && s.carryLocked(p); !p.carried {
		p.in.mayWait()
		go p.pump(p.in, p.out)
	}
	return nil
}
