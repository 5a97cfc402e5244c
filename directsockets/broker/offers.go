package broker

import (
	"container/list"
	"time"

	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"
)

// offer is a segment that waits for the server's side of a connection. It came
// from a client of this broker (from), or of a peer's.
//
//	from, peer nil   a connection within the namespace
//	from, peer       it was handed to the peer, whose answer is awaited
//	peer only        the peer has handed it over; peerID is its number there
type offer struct {
	key wire.Key
	// ends are those in the segment's header, which are the client's socket's. key has the
	// server's, which differ if addresses are translated on the way.
	ends wire.Key
	// socket is the client's or, from a peer, the server's here; zero: TCP is in user space.
	socket shadow
	// flow: the sockets of an offer of UDP; nil: it is of TCP.
	flow    *flowEnds
	nonce   wire.Nonce
	from    *session
	id      uint32 // of the client's message
	peer    *peer
	peerID  uint32
	pair    *pair     // nil: it is in no Group, or within the namespace
	stands  bool      // the peer was told that it still stands, or has told so
	done    bool      // it is in no table any more
	made    time.Time // when it came
	expires time.Time
	queue   *expiry
	place   *list.Element // in queue
	payer   levels        // whose descriptors these are while they are here; nil: nobody's that counts
	// seg and bell are the segment and side 1's doorbell; -1: handed over.
	seg, bell int
}

// close closes the descriptors, and may wait for that.
func (o *offer) close() { rpc.Descriptors{o.seg, o.bell}.Close() }

// throwAway closes them without waiting.
func (o *offer) throwAway() {
	if o.from != nil {
		o.from.user.trash.Throw(o.seg, o.bell)
	} else {
		o.peer.trash.Throw(o.seg, o.bell)
	}
	o.seg, o.bell = -1, -1
}

// addOffer takes an offer of a client, or returns why it does not.
func (s *Server) addOffer(o *offer) wire.Reason {
	if !s.mayOffer(o) {
		return wire.SwitchedOff
	}
	var local bool
	var pair *pair
	known := true
	if o.flow == nil {
		local = s.isLocal(o.key)
		pair, known = s.pairOf(o)
	}
	o.made = time.Now()
	s.count.Offers.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := o.from
	if s.closed || c.offers == nil {
		return wire.Expired
	}
	if before := c.offers[o.nonce]; before != nil {
		s.endOfferLocked(before, wire.Expired)
	}
	if len(c.offers) >= maxOffers || !c.user.levels.takeAll(descriptors, 2) {
		return wire.TooMany
	}
	why := s.placeLocked(o, local, known, pair)
	if why != 0 {
		c.user.levels.chargeAll(descriptors, -2)
	}
	return why
}

// placeLocked puts an offer where it will be claimed, or returns why it cannot. local: the server's
// address is in this namespace; known: the connection's other end is known.
//
// +checklocks:s.mu
func (s *Server) placeLocked(o *offer, local, known bool, pair *pair) wire.Reason {
	if o.flow != nil {
		return s.addFlowLocked(o)
	}
	p := s.byAddr[o.key.Server.Addr()]
	switch {
	case p != nil:
		// From another address of the namespace the peer would not believe it.
		if !s.isOwn(o.key.Client.Addr()) || !p.hasListener(o.key) {
			return wire.NoListener
		}
		return s.handOverLocked(o, p, nil)
	case pair != nil:
		return s.handOverLocked(o, pair.to, pair)
	case !local && !known:
		return wire.NoPair
	case !local || !s.listensLocked(o.key):
		return wire.NoListener
	}
	o.from.offers[o.nonce], o.payer = o, o.from.user.levels
	s.showLocked(o)
	s.queueLocked(o, &s.waiting)
	return 0
}

// isLocal reports whether the server's address is of this namespace.
func (s *Server) isLocal(key wire.Key) bool {
	a := key.Server.Addr()
	if a.IsLoopback() || a == key.Client.Addr() {
		return true
	}
	return s.isOwn(a) || s.routes != nil && s.routes.isLocal(a, key.Zone)
}

// showLocked has an offer be claimed here, in place of an older one.
//
// +checklocks:s.mu
func (s *Server) showLocked(o *offer) {
	if before := s.offers[o.key]; before != nil {
		s.endOfferLocked(before, wire.Expired)
	}
	s.offers[o.key] = o
	s.page.AddOffer(o.key.Bucket())
}

// standingOffer returns the offer for a connection, or nil. It ends an offer that was made for an
// earlier connection between the same addresses. That is so in this namespace if the client's
// socket has changed or is gone, and for a peer's offer if server, the socket that claims it, is
// not the one that was there when the client's socket was confirmed.
func (s *Server) standingOffer(key wire.Key, server shadow) *offer {
	s.mu.Lock()
	o := s.offers[key]
	s.mu.Unlock()
	if o == nil || o.socket.cookie == 0 {
		return o
	}
	var same bool
	var err error
	if o.from == nil {
		same = o.socket.cookie == server.cookie
	} else {
		same, err = s.diag.isStanding(o.socket, key.Client, key.Server)
	}
	if err == nil && same {
		return o
	}
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.endOfferLocked(o, wire.Expired)
	}
	return nil
}

// takeOffer removes the standing offer of a connection, for the caller to hand over to c; nil:
// there is none, or it has been replaced.
func (s *Server) takeOffer(c *session, key wire.Key, o *offer) *offer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o == nil || s.offers[key] != o {
		return nil
	}
	seg, bell := o.seg, o.bell
	o.seg, o.bell = -1, -1
	s.forgetLocked(o)
	s.meetLocked(c, key.Client.Addr())
	s.cfg.Group.halfUp(o, 1, half{s: s, local: key.Server, remote: key.Client, socket: o.socket, pid: c.pid, owner: c.owner})
	if o.from == nil {
		o.peer.sendLocked(peerMessage{Type: peerResult, ID: o.peerID})
	} else {
		s.setUpLocked(o)
	}
	return &offer{key: key, ends: o.ends, nonce: o.nonce, seg: seg, bell: bell}
}

// withdrawOffer ends an offer that its client takes back. The client's own goroutine calls it, and
// closes descriptors that are quick to close: waking another goroutine costs more.
func (s *Server) withdrawOffer(c *session, nonce wire.Nonce) {
	if quick := s.retractOffer(c, nonce); quick != nil {
		c.user.closeQuickly(quick)
	}
}

// retractOffer ends the offer. It returns its descriptors if they are quick to close, which they
// are if the doorbell's queue is empty.
func (s *Server) retractOffer(c *session, nonce wire.Nonce) (quick rpc.Descriptors) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := c.offers[nonce]
	if o == nil {
		return nil
	}
	if o.bell >= 0 && isEmpty(o.bell) {
		quick = rpc.Descriptors{o.seg, o.bell}
		o.seg, o.bell = -1, -1
	}
	s.endOfferLocked(o, 0)
	return quick
}

// endOfferLocked ends an offer that nobody claimed, and tells its client why; 0: the client knows.
//
// +checklocks:s.mu
func (s *Server) endOfferLocked(o *offer, why wire.Reason) {
	if o.done {
		return
	}
	s.forgetLocked(o)
	defer o.throwAway() // whoever made it knows why before the doorbell ends
	if why == wire.Expired && o.from != nil {
		s.count.OffersExpired.Add(1)
	}
	switch {
	case o.from == nil && why != 0:
		o.peer.sendLocked(peerMessage{Type: peerResult, ID: o.peerID, Reason: why})
	case o.from != nil && why != 0:
		if o.from.sendRefusal(o.id, why) != nil {
			o.from.out.Abort()
		}
	}
	if o.from != nil && o.peer != nil && why != wire.Unreachable {
		o.peer.sendLocked(peerMessage{Type: peerRetract, ID: o.peerID})
	}
}

// forgetLocked removes an offer from all tables.
//
// +checklocks:s.mu
func (s *Server) forgetLocked(o *offer) {
	o.done = true
	o.queue.offers.Remove(o.place)
	if o.flow != nil {
		s.removeFlowLocked(o)
	} else if s.offers[o.key] == o {
		delete(s.offers, o.key)
		s.page.RemoveOffer(o.key.Bucket())
	}
	if o.from != nil {
		delete(o.from.offers, o.nonce)
	}
	o.payer.chargeAll(descriptors, -2)
	if o.from == nil {
		o.peer.offersHeld--
	}
	if o.peer != nil {
		delete(o.peer.offers, handID{o.peerID, o.from != nil})
	}
}

// queueLocked has an offer expire after a time.
//
// +checklocks:s.mu
func (s *Server) queueLocked(o *offer, q *expiry) {
	o.expires = time.Now().Add(q.after)
	o.queue, o.place = q, q.offers.PushBack(o)
	if q.offers.Len() == 1 {
		q.timer.Reset(q.after)
	}
}

// expiry is a queue of offers that end after the same time.
type expiry struct {
	after  time.Duration
	why    wire.Reason
	offers list.List // of *offer
	timer  *time.Timer
}

// endExpired ends the offers whose time has come.
func (q *expiry) endExpired(s *Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	now := time.Now()
	for {
		first := q.offers.Front()
		if first == nil {
			return
		}
		o := first.Value.(*offer)
		if wait := o.expires.Sub(now); wait > 0 {
			q.timer.Reset(wait)
			return
		}
		s.endOfferLocked(o, q.why)
	}
}
