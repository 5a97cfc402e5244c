package broker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"exnet/directsockets/broker/wire"
	"exnet/fabric"
	"exnet/internal/ctxend"
	"exnet/node/rpc"
)

// peer is what this broker knows of another node's broker.
type peer struct {
	s    *Server
	node uint16
	// version: of what it and this broker say but for NODE; a peer in this process has none.
	version uint8
	out     toPeer
	host    bool // on another host
	rdma    bool // which hardware joins with this one

	// All of these belong to the Server's lock.
	addrs      []netip.Addr        // that it says it has
	denied     map[netip.Addr]bool // of them, those that are another's
	offersHeld int                 // offers from it that wait here
	bounds     map[bound]int       // its listeners
	ports      map[uint16]int      // how many of them there are at each port
	offers     map[handID]*offer   // that were handed to it, or came from it
	nextID     uint32
	gone       bool

	trash rpc.Bin // what came from it, or went to it
}

// maxBounds is how many listeners, at different addresses and ports, a peer may report.
const maxBounds = 1 << 16

// handID names an offer between two brokers: ours are numbered here, others there.
type handID struct {
	id   uint32
	ours bool
}

// toPeer is the way to the other broker. send borrows the descriptors, keeps the
// order, and waits for nothing; after an error, and after Abort, drop is called.
type toPeer interface {
	send(m peerMessage, fds ...int) error
	Abort()
	Close()
}

// socketPeer is a peer in another process.
type socketPeer struct {
	*rpc.Outbox
	version uint8 // of the session; 0: nothing but NODE is said yet
}

func (p socketPeer) send(m peerMessage, fds ...int) error {
	m = m.forVersion(p.version)
	b, err := m.AppendBinary(make([]byte, 0, peerHandLen))
	if err != nil {
		return err
	}
	return p.Post(b, fds...)
}

// sendLocked sends a message. A peer that does not take it is dropped soon. The caller
// has p.s.mu.
func (p *peer) sendLocked(m peerMessage, fds ...int) bool {
	if err := p.out.send(m, fds...); err != nil {
		p.out.Abort()
		return false
	}
	return true
}

// hasListener reports whether it has a listener for a connection. The Server's lock is
// held.
func (p *peer) hasListener(key wire.Key) bool {
	return p.ports[key.Server.Port()] > 0 && isTaken(p.bounds, key.Server)
}

// Peer serves the connection to the broker of another node, a connected Unix
// SOCK_SEQPACKET socket whose other end is in its Peer, too. It takes conn, and
// returns when the connection or the Server has ended.
func (s *Server) Peer(conn *net.UnixConn) error {
	out, err := rpc.NewOutbox(conn, maxQueue)
	if err != nil {
		conn.Close()
		return err
	}
	defer func() {
		out.Abort()
		s.strangers.Do(out.Close)
	}()
	if !s.countGoroutine() { // Close waits for it
		return wire.ErrClosed
	}
	defer s.work.Done()
	defer ctxend.Do(s.ctx, out.Abort)()
	in, err := rpc.NewInbound(conn, maxPeerLen, wire.MaxDescriptors)
	if err != nil {
		return err
	}
	to := socketPeer{Outbox: out}
	if err := to.send(s.describeSelf()); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		return err
	}
	var p *peer
	defer func() {
		if p != nil {
			s.dropPeer(p)
		}
	}()
	for {
		b, fds, err := in.Next()
		lost := errors.Is(err, rpc.ErrNoDescriptors)
		if lost {
			s.logLost()
		}
		if err != nil && !lost {
			s.strangers.Throw(fds...)
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		var m peerMessage
		if err = m.UnmarshalBinary(b); err == nil {
			switch {
			case !lost && len(fds) != m.Type.countDescriptors():
				err = fmt.Errorf("%w: %v with %d descriptors", wire.ErrRule, m.Type, len(fds))
			case p == nil && m.Type != peerNode:
				err = fmt.Errorf("%w: first message is %v, not NODE", wire.ErrRule, m.Type)
			case p == nil:
				if err = s.cfg.CheckPeer(conn, m.Node); err != nil {
					s.count.RefusedPeers.Add(1)
					break
				}
				to.version, _ = m.agreedVersion() // else it was no message
				s.carriesOn(m.Node, to.version)
				p = s.newPeer(m, to)
				if err = s.addPeer(p); err == nil {
					err = conn.SetReadDeadline(time.Time{})
				}
			default:
				if err = p.checkVersion(m); err == nil {
					err = s.fromPeer(p, m, fds, lost)
				}
			}
		}
		if p != nil {
			p.trash.Throw(fds...)
		} else {
			s.strangers.Throw(fds...)
		}
		if err != nil {
			return err
		}
	}
}

// checkVersion returns an error unless a message has the version of the session.
func (p *peer) checkVersion(m peerMessage) error {
	if m.Type == peerNode || m.Version == p.version {
		return nil
	}
	return fmt.Errorf("%w: %v of version %d, agreed was %d", wire.ErrRule, m.Type, m.Version, p.version)
}

// carriesOn has the Carrier speak with that of a node on this host, whose broker speaks version
// with this one.
func (s *Server) carriesOn(node uint16, version uint8) {
	if s.cfg.Carrier == nil {
		return
	}
	carried := s.cfg.Carrier.Versions().Oldest
	if version >= 4 {
		carried = carriedVersion
	}
	s.cfg.Carrier.Speak(fabric.NodeID(node), carried)
}

// describeSelf is what this broker says about itself.
func (s *Server) describeSelf() peerMessage {
	return peerMessage{Type: peerNode, ID: uint32(peerVersions.Newest), Node: s.cfg.Node, Addrs: *s.addrs.Load()}
}

// newPeer makes a peer of what it says about itself.
func (s *Server) newPeer(m peerMessage, out toPeer) *peer {
	version, _ := m.agreedVersion() // or it is in this process
	return &peer{s: s, node: m.Node, version: version, addrs: m.Addrs, out: out,
		denied: make(map[netip.Addr]bool), bounds: make(map[bound]int), ports: make(map[uint16]int), offers: make(map[handID]*offer)}
}

// addPeer takes a peer into the tables and tells it of the listeners here.
func (s *Server) addPeer(p *peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || p.gone {
		return wire.ErrClosed
	}
	s.peers[p] = struct{}{}
	s.findLocked(p)
	for port := range p.ports { // that it has reported already
		s.showPortLocked(port)
	}
	for b, n := range s.announced {
		if !p.sendLocked(peerMessage{Type: peerPort, Bound: b, Count: uint32(n)}) {
			break
		}
	}
	return nil
}

// findLocked enters a peer under its addresses, unless they are another's, and gives addresses that
// it no longer has to others.
//
// +checklocks:s.mu
func (s *Server) findLocked(p *peer) {
	s.loseLocked(p)
	s.claimLocked(p)
	s.reviewLocked(p)
}

// claimLocked gives a peer the addresses that it claims. An address in the fabric's directory
// belongs to the node that has it there. Any other address, such as one added by hand, belongs to
// the first node that claims it.
//
// +checklocks:s.mu
func (s *Server) claimLocked(p *peer) {
	for _, a := range p.addrs {
		node, known := s.cfg.Owner(a)
		q := s.byAddr[a]
		switch {
		case s.isOwn(a) || known && node != p.node:
		case known || q == nil || q.node == p.node: // of one node, the last one: it may have been started anew
			s.byAddr[a] = p
			delete(p.denied, a)
			continue
		}
		if q == p { // the directory has changed
			delete(s.byAddr, a)
		}
		if !p.denied[a] {
			p.denied[a] = true
			s.count.AddrConflicts.Add(1)
			s.cfg.Log.Warn("direct sockets: refused a peer's broker that claims another node's address", "node", p.node, "addr", a)
		}
	}
}

// reviewLocked has the other peers claim again what they were denied, when a peer has gone or
// changed its addresses.
//
// +checklocks:s.mu
func (s *Server) reviewLocked(but *peer) {
	for p := range s.peers {
		if p != but && len(p.denied) > 0 {
			s.claimLocked(p)
		}
	}
}

// +checklocks:s.mu
func (s *Server) loseLocked(p *peer) {
	for a, q := range s.byAddr {
		if q == p {
			delete(s.byAddr, a)
		}
	}
}

// dropPeer removes a peer with all that came from it.
func (s *Server) dropPeer(p *peer) {
	s.mu.Lock()
	if p.gone {
		s.mu.Unlock()
		return
	}
	p.gone = true
	p.out.Abort()
	delete(s.peers, p)
	s.loseLocked(p)
	s.reviewLocked(p)
	for _, o := range p.offers {
		s.endOfferLocked(o, wire.Unreachable)
	}
	for port := range p.ports {
		s.showPortLocked(port)
	}
	s.mu.Unlock()
	p.out.Close()
}

// handOverLocked gives an offer to the peer that has the server's address or, of a pair, its
// namespace.
//
// +checklocks:s.mu
func (s *Server) handOverLocked(o *offer, p *peer, pair *pair) wire.Reason {
	if len(o.from.offers) >= maxOffers {
		return wire.TooMany
	}
	if pair == nil && o.key.Zone != 0 && o.key.Zone != s.cfg.Zone {
		return wire.NoListener
	}
	ruled := pair == nil && s.cfg.Carried(o.key.Server)
	carried := ruled || p.rdma
	if p.host && !carried {
		return wire.NoRule
	}
	// What a peer in this process holds counts for the client; another one's process has its own.
	_, here := p.out.(*localPeer)
	var payer levels
	if here && !carried {
		payer = o.from.user.levels
	}
	p.nextID++
	o.peer, o.peerID, o.pair = p, p.nextID, pair
	if carried {
		if s.carryLocked(o, !ruled) != nil {
			return wire.TooMany
		}
	} else if !p.sendLocked(peerMessage{Type: peerHand, ID: o.peerID, Nonce: o.nonce, Client: o.key.Client, Server: o.key.Server, pair: pair, payer: payer}, o.seg, o.bell) {
		return wire.Unreachable
	}
	if payer == nil {
		o.from.user.levels.chargeAll(descriptors, -2)
	}
	o.throwAway()
	o.from.offers[o.nonce] = o
	p.offers[handID{o.peerID, true}] = o
	s.queueLocked(o, &s.handed)
	return 0
}

// fromPeer handles a message of a peer. It takes the fds that it keeps. lost: they could not be
// received.
func (s *Server) fromPeer(p *peer, m peerMessage, fds rpc.Descriptors, lost bool) error {
	switch m.Type {
	case peerHand:
		return s.receiveOffer(p, m, fds, lost)
	case peerFound:
		s.confirmOffer(p, m.ID)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.gone {
		return nil
	}
	switch m.Type {
	case peerNode: // its addresses have changed
		if m.Node != p.node {
			return fmt.Errorf("%w: node %d becomes node %d", wire.ErrRule, p.node, m.Node)
		}
		p.addrs = m.Addrs
		for a := range p.denied {
			if !slices.Contains(p.addrs, a) {
				delete(p.denied, a)
			}
		}
		if _, there := s.peers[p]; there {
			s.findLocked(p)
		}
	case peerPort:
		if !m.Bound.addr.IsUnspecified() && !slices.Contains(p.addrs, m.Bound.addr) || m.Count > 1<<30 {
			return fmt.Errorf("%w: node %d has %d listeners at %v", wire.ErrRule, p.node, m.Count, m.Bound.addr)
		}
		if len(p.bounds) >= maxBounds && p.bounds[m.Bound] == 0 {
			return nil // it has listeners enough
		}
		n := p.ports[m.Bound.port] + int(m.Count) - p.bounds[m.Bound]
		p.bounds[m.Bound] = int(m.Count)
		if m.Count == 0 {
			delete(p.bounds, m.Bound)
		}
		p.ports[m.Bound.port] = n
		if n == 0 {
			delete(p.ports, m.Bound.port)
		}
		s.showPortLocked(m.Bound.port)
	case peerResult:
		if o := p.offers[handID{m.ID, true}]; o != nil {
			o.peer.sentResultLocked(s, o, m.Reason)
		}
	case peerRetract:
		if o := p.offers[handID{m.ID, false}]; o != nil {
			s.endOfferLocked(o, 0)
		}
	case peerStands:
		if o := p.offers[handID{m.ID, false}]; o != nil && !o.stands {
			o.stands = true
			s.showLocked(o)
		}
	}
	return nil
}

// sentResultLocked ends an offer whose outcome the peer has told.
//
// +checklocks:s.mu
func (p *peer) sentResultLocked(s *Server, o *offer, why wire.Reason) {
	s.forgetLocked(o)
	switch why {
	case 0:
		s.setUpLocked(o)
		s.cfg.Group.halfUp(o, 0, half{s: s, local: o.key.Client, remote: o.key.Server, socket: o.socket, pid: o.from.pid, owner: o.from.owner})
		return
	case wire.Expired:
		s.count.OffersExpired.Add(1)
	default:
		s.count.OffersRefused.Add(1)
	}
	if o.from.sendRefusal(o.id, why) != nil {
		o.from.out.Abort()
	}
}

// confirmOffer tells a peer, which has found the server's socket for an offer, whether the client's
// socket is still the one that the offer was made for. If so, it also was when the peer looked, and
// both sockets belong to one connection: only one socket at a time has the client's address and
// port.
func (s *Server) confirmOffer(p *peer, id uint32) {
	s.mu.Lock()
	o := p.offers[handID{id, true}]
	if o == nil || o.stands || s.closed || p.gone {
		s.mu.Unlock()
		return
	}
	o.stands = true // whatever it says again
	s.mu.Unlock()
	same, err := true, error(nil)
	if o.socket.cookie != 0 {
		same, err = s.diag.isStanding(o.socket, o.key.Client, o.key.Server)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case o.done:
	case err != nil:
		s.endOfferLocked(o, wire.TooMany)
	case !same:
		s.endOfferLocked(o, wire.Expired)
	default:
		p.sendLocked(peerMessage{Type: peerStands, ID: id})
	}
}

// receiveOffer takes an offer that a peer hands over, for the server's socket that is there now:
// later another connection may have its addresses. It can be claimed once the peer has said that
// the client's socket still stands.
func (s *Server) receiveOffer(p *peer, m peerMessage, fds rpc.Descriptors, lost bool) error {
	ends := wire.Key{Client: m.Client, Server: m.Server}
	key := ends
	switch {
	case m.pair != nil:
		key = m.pair.key
	case key.Server.Addr().IsLinkLocalUnicast():
		key.Zone = s.cfg.Zone
	}
	why := wire.Reason(0)
	switch {
	case lost || p.trash.Len() > maxOffers:
		why = wire.TooMany
	case !key.Valid() || m.pair == nil && !s.isOwn(key.Server.Addr()): // not any more
		why = wire.NoListener
	case checkSegment(fds[0], segMagic, ends, m.Nonce) != nil || checkBell(fds[1]) != nil:
		why = wire.BadSegment
	}
	var of shadow
	if why == 0 && s.diag != nil { // a socket that is bound to no interface is found with any
		found, err := false, error(nil)
		if of, found, err = s.diag.socketAt(key.Server, key.Client, s.cfg.Zone); err != nil {
			why = wire.TooMany
		} else if !found || m.pair != nil && of.cookie != m.pair.cookie {
			why = wire.NoListener
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || p.gone {
		return nil
	}
	id := handID{m.ID, false}
	if p.offers[id] != nil {
		return fmt.Errorf("%w: node %d hands offer %d over twice", wire.ErrRule, p.node, m.ID)
	}
	if why == 0 && (m.pair == nil && s.byAddr[key.Client.Addr()] != p || !s.listensLocked(key)) {
		why = wire.NoListener
	}
	if why == 0 && 2*p.offersHeld >= descriptorShare() {
		why = wire.TooMany
	}
	if why != 0 {
		s.count.PeerOffersRefused.Add(1)
		p.sendLocked(peerMessage{Type: peerResult, ID: m.ID, Reason: why})
		return nil
	}
	o := &offer{key: key, ends: ends, socket: of, nonce: m.Nonce, peer: p, peerID: m.ID, pair: m.pair, payer: m.payer, seg: fds.Take(0), bell: fds.Take(1)}
	p.offers[id] = o
	p.offersHeld++
	s.queueLocked(o, &s.waiting)
	p.sendLocked(peerMessage{Type: peerFound, ID: m.ID})
	return nil
}
