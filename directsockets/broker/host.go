package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"exnet/directsockets/broker/wire"
	"exnet/fabric"
	"exnet/node/rpc"
)

// Carrier brings messages for another node's broker, and connections, to that node through the
// fabric. A relay.Engine is one.
type Carrier interface {
	// Send brings b there, in order. It copies b.
	Send(to fabric.NodeID, b []byte) error
	// Offer offers a connection at that node. It takes the descriptors. hardware: RDMA hardware is
	// the reason, not a rule. rpc.ErrOver: there is no way there now, and may be one later.
	Offer(to fabric.NodeID, id uint32, hardware bool, seg, bell int) error
	// Versions are the versions that it speaks with other Carriers, 1 to 15.
	Versions() rpc.Versions
	// Speak sets the version in which it speaks to a node's Carrier, one that both know. Until then
	// it speaks its oldest one.
	Speak(to fabric.NodeID, version uint8)
}

// host is what this broker knows of one on another host.
type host struct {
	sessionNumber uint32 // number of this broker's session with it
	far           uint32 // of its session with this one; 0: it has not said
	rdma          bool   // hardware joins the hosts
	peer          *peer  // nil: it has not said who it is
	// carried is the version in which the Carriers of both speak, if peer is not nil.
	carried uint8
	// strays are the messages since the last NODE that are not of the session far.
	strays int
}

// hostWay is the way to a broker on another host. Every message begins with the number of
// the session, as either broker may begin anew.
type hostWay struct {
	c             Carrier
	node          uint16
	sessionNumber uint32
	// version: of the session, and carried: of the Carriers; 0: nothing but NODE is said yet.
	version, carried uint8
}

// sessionLen is the length of a session's number before a message.
const sessionLen = 4

func (w hostWay) send(m peerMessage, _ ...int) error {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, sessionLen+peerHandLen), w.sessionNumber)
	b, err := m.forVersion(w.version).AppendBinary(b)
	if err != nil {
		return err
	}
	carried := w.carried
	if m.Type == peerNode {
		carried, b[sessionLen+carrierNewestOff] = w.c.Versions().Oldest, w.c.Versions().Newest
	}
	b[sessionLen+peerVersionOff] |= carried << carrierShift
	return w.c.Send(fabric.NodeID(w.node), b)
}

// carrierShift: between two hosts, the upper 4 bits of a message's version are the Carrier's, in
// NODE its oldest one. The newest one is the byte at carrierNewestOff of NODE, in the id. So nodes
// whose Carriers do not understand each other offer nothing to each other, and either one says why.
const (
	carrierShift     = 4
	carrierNewestOff = peerIDOff + 1
)

// takeCarried takes the Carrier's version out of a message of another host, and returns the one to
// speak with it.
func (s *Server) takeCarried(node fabric.NodeID, said []byte) (version uint8, err error) {
	ours, theirs := s.cfg.Carrier.Versions(), rpc.Said(said[peerVersionOff]>>carrierShift, 0)
	said[peerVersionOff] &= 1<<carrierShift - 1
	if peerType(said[peerTypeOff]) == peerNode {
		theirs = rpc.Said(theirs.Oldest, uint64(said[carrierNewestOff]))
		said[carrierNewestOff] = 0
	}
	version, ok := ours.Common(theirs)
	if !ok {
		err = fmt.Errorf("%w: node %d has version %v of what carries direct sockets between hosts, this one %v: update one of them",
			wire.ErrMessage, node, theirs, ours)
	}
	return version, err
}

func (hostWay) Abort() {}
func (hostWay) Close() {}

// carryLocked has an offer be made to its peer's node. hardware: as in Carrier.
//
// +checklocks:s.mu
func (s *Server) carryLocked(o *offer, hardware bool) error {
	own, err := rpc.DupAll(o.seg, o.bell)
	if err != nil {
		return err
	}
	defer own.Close()
	node, id, seg, bell := fabric.NodeID(o.peer.node), o.peerID, own.Take(0), own.Take(1)
	go func() { // it maps memory: nobody waits for that
		if err := s.cfg.Carrier.Offer(node, id, hardware, seg, bell); err != nil {
			s.notCarried(o, err)
		}
	}()
	return nil
}

// notCarried refuses an offer that its Carrier does not take.
func (s *Server) notCarried(o *offer, err error) {
	why := wire.TooMany
	if errors.Is(err, rpc.ErrOver) { // its client tries again each second
		why = wire.Unreachable
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !o.done && !s.closed {
		o.peer.sentResultLocked(s, o, why)
	}
}

// Meet begins a session with the broker of a node on another host, which hears from here
// until Part. It is called at both ends of a link. hardware: RDMA hardware is the link, so that
// connections to there go through the fabric without a rule.
func (s *Server) Meet(node fabric.NodeID, hardware bool) error {
	if s.cfg.Carrier == nil {
		return nil
	}
	s.hostsMu.Lock()
	defer s.hostsMu.Unlock()
	h := &host{sessionNumber: newSession(), rdma: hardware}
	s.hosts[uint16(node)] = h
	return s.sayHello(h, uint16(node))
}

// sayHello says who this broker is.
func (s *Server) sayHello(h *host, node uint16) error {
	return hostWay{c: s.cfg.Carrier, node: node, sessionNumber: h.sessionNumber}.send(s.describeSelf())
}

// Part ends the session with the broker of a node on another host.
func (s *Server) Part(node fabric.NodeID) {
	s.hostsMu.Lock()
	defer s.hostsMu.Unlock()
	if h := s.hosts[uint16(node)]; h != nil {
		delete(s.hosts, uint16(node))
		if h.peer != nil {
			s.dropPeer(h.peer)
		}
	}
}

// Hear takes what the broker of a node on another host says. It borrows b until return. An
// error ends that broker's session.
func (s *Server) Hear(node fabric.NodeID, b []byte) error {
	if len(b) < sessionLen+wire.HeaderLen {
		return fmt.Errorf("%w: %d bytes: %w", wire.ErrMessage, len(b), io.ErrUnexpectedEOF)
	}
	said := append([]byte(nil), b[sessionLen:]...)
	carried, err := s.takeCarried(node, said)
	if err != nil {
		return err
	}
	var m peerMessage
	if err := m.UnmarshalBinary(said); err != nil {
		return fmt.Errorf("node %d: %w", node, err)
	}
	if m.Type == peerHand {
		return fmt.Errorf("%w: HAND without descriptors", wire.ErrRule)
	}
	s.hostsMu.Lock()
	defer s.hostsMu.Unlock()
	h := s.hosts[uint16(node)]
	if h == nil {
		return nil // the link is known here soon: Meet, which it answers
	}
	if far := binary.LittleEndian.Uint32(b); far != h.far && m.Type != peerNode {
		return s.refuseStray(h, uint16(node))
	} else if far != h.far {
		return s.meetAgain(h, uint16(node), far, m, carried)
	}
	if h.peer == nil {
		return nil
	}
	if m.Type != peerNode && carried != h.carried {
		err = fmt.Errorf("%w: version %d of what carries direct sockets, %d was agreed", wire.ErrRule, carried, h.carried)
	} else {
		err = h.peer.checkVersion(m)
	}
	if err == nil {
		err = s.fromPeer(h.peer, m, nil, false)
	}
	if err != nil {
		s.dropPeer(h.peer)
		h.peer = nil
	}
	return err
}

// refuseStray takes a message of another session than the current one. Usually the other broker
// sent it before it heard of the session that has begun here, and will answer that. But it may
// not have heard, or its answer was lost. So after some strays this broker says once more who it
// is, in a new session, which the other one has to answer.
//
// +checklocks:s.hostsMu
func (s *Server) refuseStray(h *host, node uint16) error {
	switch h.strays++; h.strays {
	case 1:
	case 2:
		h.sessionNumber = newSession()
	default:
		return nil
	}
	return s.sayHello(h, node)
}

// newSession is the number of a session. No other one is likely to have it.
func newSession() uint32 { return rand.Uint32() | 1 }

// meetAgain follows the other broker into its new session; carried is the version of the Carriers.
//
// +checklocks:s.hostsMu
func (s *Server) meetAgain(h *host, node uint16, far uint32, m peerMessage, carried uint8) error {
	if m.Node != node {
		return fmt.Errorf("%w: node %d says that it is node %d", wire.ErrRule, node, m.Node)
	}
	if h.peer != nil {
		s.dropPeer(h.peer)
		h.peer = nil
	}
	h.far, h.strays = far, 0
	if err := s.sayHello(h, node); err != nil {
		return err
	}
	version, _ := m.agreedVersion() // else it was no message
	s.cfg.Carrier.Speak(fabric.NodeID(node), carried)
	p := s.newPeer(m, hostWay{s.cfg.Carrier, node, h.sessionNumber, version, carried})
	p.host, p.rdma = true, h.rdma
	if err := s.addPeer(p); err != nil {
		return err
	}
	h.peer, h.carried = p, carried
	return nil
}

// Receive takes a connection that a program of another node offers through the fabric: the other
// broker's number of the offer, the content of the segment's header, the segment, and side 1's
// doorbell.
func (s *Server) Receive(node fabric.NodeID, id uint32, nonce wire.Nonce, key wire.Key, seg, bell int) {
	fds := rpc.Descriptors{seg, bell}
	p := s.peerOf(uint16(node))
	if p == nil {
		fds.Close()
		return
	}
	m := peerMessage{Type: peerHand, ID: id, Nonce: nonce, Client: key.Client, Server: key.Server}
	if err := s.receiveOffer(p, m, fds, false); err != nil {
		s.dropPeer(p)
	}
	p.trash.Throw(fds...)
}

// peerOf is the broker of a node.
func (s *Server) peerOf(node uint16) *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.peers {
		if p.node == node && !p.gone {
			return p
		}
	}
	return nil
}
