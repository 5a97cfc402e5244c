package broker

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"
)

// usage is what the clients of one owner hold here.
type usage struct {
	// levels are the quotas that must have room: local and those of the owner. Root, whose limits
	// are the process's, has only local.
	levels levels
	local  *quota

	// These belong to the Server's lock.
	met              int   // addresses that it has added, see meetLocked
	ended            []int // statistics of those that have ended, see sumUp
	summing, leaving bool  // there is a goroutine, or a timer, for that

	trash *rpc.Bin
	// closing: a client closes descriptors itself, see closeQuickly.
	closing atomic.Bool
	listen  meter
}

// closeQuickly closes what should take no time. If it takes long all the same, nobody else of
// this owner closes anything meanwhile, as each one that waits holds a thread.
func (u *usage) closeQuickly(fds rpc.Descriptors) {
	if !u.closing.CompareAndSwap(false, true) {
		u.trash.Throw(fds...)
		return
	}
	fds.Close()
	u.closing.Store(false)
}

// addSession takes a new session into the tables, before it has said anything.
func (s *Server) addSession(c *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	o := s.ownerOf(c)
	u := s.users[o]
	if u == nil {
		u = &usage{local: newQuota(1)}
		u.levels = levels{u.local}
		if !c.isUnlimited() {
			u.levels = append(u.levels, s.quotas.levelsOf(o)...)
		}
		u.trash = rpc.NewBin(func(n int) { u.levels.chargeAll(descriptors, n) })
		s.users[o] = u
	}
	// Its socket and its statistics.
	if !u.levels.takeAll(clients, 1) {
		return s.refuseLocked(c, o, u, "clients")
	}
	if !u.levels.takeAll(descriptors, 2) {
		u.levels.chargeAll(clients, -1)
		return s.refuseLocked(c, o, u, "descriptors")
	}
	c.owner, c.user = o, u
	s.sessions[c] = struct{}{}
	return nil
}

// refuseLocked ends a client whose owner has too many. Its connection still counts for the owner.
//
// +checklocks:s.mu
func (s *Server) refuseLocked(c *session, o owner, u *usage, what string) error {
	s.refused.noteRefused(c.pid, u)
	if c.shut != nil {
		c.turnAway(wire.TooMany)
		u.trash.End(c.shut, nil)
		c.shut = nil
	}
	s.leaveLocked(o, u)
	return fmt.Errorf("%w: %v, or %v in all, has as many %s as it may have", wire.ErrRule, c.home, c.account, what)
}

// ownerOf says whose limits a client has. All clients outside of containers, in another namespace
// than this process's, share those of one container.
func (s *Server) ownerOf(c *session) owner {
	home := c.home.Group
	if home == "" && s.cfg.Limited {
		home = fmt.Sprint("namespace ", s.cookie)
	}
	return owner{home: home, account: c.account}
}

// dismissSession removes a session and all that it has.
func (s *Server) dismissSession(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.user == nil { // not admitted
		if c.shut != nil {
			s.strangers.End(c.shut, nil)
		}
		return
	}
	for _, l := range c.listeners {
		s.removeListenerLocked(l)
	}
	for _, r := range c.receivers {
		s.removeReceiverLocked(r)
	}
	for _, o := range c.offers {
		s.endOfferLocked(o, 0)
	}
	c.listeners, c.receivers, c.offers = nil, nil, nil
	c.user.levels.chargeAll(clients, -1)
	c.user.levels.chargeAll(descriptors, -2)
	s.sumUpLocked(c)
	delete(s.sessions, c)
	if c.shut != nil {
		c.user.trash.End(c.shut, nil)
	}
	s.leaveLocked(c.owner, c.user)
	if len(s.sessions) == 0 {
		s.idle = time.Now()
	}
}

// leaveLocked forgets an owner that holds nothing any more, neither here nor at a peer in this
// process, and that owes no waiting for its requests. Otherwise the owner's limits are kept for
// when it reconnects.
//
// +checklocks:s.mu
func (s *Server) leaveLocked(o owner, u *usage) {
	if u.local.held[clients].Load() > 0 || u.summing || u.leaving || s.closed {
		return
	}
	rest := time.Duration(u.levels.dueTime() - monotonicTime())
	if u.local.held[descriptors].Load() > 0 {
		rest = max(rest, time.Second)
	}
	if rest <= 0 {
		delete(s.users, o)
		if len(u.levels) > 1 {
			s.quotas.releaseOwner(o)
		}
		return
	}
	u.leaving = true
	time.AfterFunc(rest, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		u.leaving = false
		s.leaveLocked(o, u)
	})
}
