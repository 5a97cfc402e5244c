package broker

import (
	"fmt"
	"net"
	"time"

	"exnet/directsockets/broker/wire"
	"exnet/internal/caller"
)

// usage is what the clients of one user hold.
type usage struct {
	// These belong to the Server's lock.
	clients, descriptors, listeners int
	met                             int   // addresses that it has added, see meetLocked
	ended                           []int // statistics of those that have ended, see sumUp
	summing, leaving                bool  // there is a goroutine, or a timer, for that

	trash  trash
	pace   pace
	listen meter
}

// held is how many descriptors they hold.
func (u *usage) held() int { return u.descriptors + u.trash.len() + len(u.ended) }

// maxListeners is how many listeners the clients of a user may have together; each may have
// wire.MaxListeners.
const maxListeners = 4 * wire.MaxListeners

// admit takes a new session into the tables, before it has said anything.
func (s *Server) admit(c *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	u := s.users[c.account]
	if u == nil {
		u = new(usage)
		s.users[c.account] = u
	}
	// Its socket and its statistics.
	if !c.unlimited() && (u.clients >= maxClients || s.fullLocked(u)) {
		return fmt.Errorf("%w: %v has %d clients already", wire.ErrRule, c.account, u.clients)
	}
	u.clients++
	u.descriptors += 2
	c.user = u
	s.sessions[c] = struct{}{}
	return nil
}

// share is how many descriptors the clients of one user may hold or, of a member of a Group that
// is Limited, those of all users.
func (s *Server) share() int {
	if s.cfg.Limited {
		return descriptorLimit() / 16
	}
	return descriptorLimit() / 2
}

// fullLocked reports whether a user, or all users of a Server that is Limited, may not hold two
// descriptors more.
//
// +checklocks:s.mu
func (s *Server) fullLocked(u *usage) bool {
	held := u.held()
	if s.cfg.Limited {
		held = 0
		for _, each := range s.users {
			held += each.held()
		}
	}
	return held+2 > s.share()
}

// dismiss removes a session and all that it has.
func (s *Server) dismiss(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.user == nil { // not admitted
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
	c.user.clients--
	c.user.descriptors -= 2
	s.sumUpLocked(c)
	delete(s.sessions, c)
	s.leaveLocked(c.account, c.user)
	if len(s.sessions) == 0 {
		s.idle = time.Now()
	}
}

// leaveLocked forgets a user that holds nothing any more and has waited for what it has asked;
// else it has it when it comes back.
//
// +checklocks:s.mu
func (s *Server) leaveLocked(a caller.Account, u *usage) {
	if u.clients > 0 || u.summing || u.leaving || s.closed {
		return
	}
	rest := time.Duration(u.pace.due.Load() - now())
	if u.trash.len() > 0 {
		rest = max(rest, time.Second)
	}
	if rest <= 0 {
		delete(s.users, a)
		return
	}
	u.leaving = true
	time.AfterFunc(rest, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		u.leaving = false
		s.leaveLocked(a, u)
	})
}
