package broker

import (
	"fmt"
	"net"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
)

// usage is what the clients of one user hold.
type usage struct {
	clients, descriptors int // belong to the Server's lock
	trash                trash
	pace                 pace
}

// held is how many descriptors they hold.
func (u *usage) held() int { return u.descriptors + u.trash.len() }

// admit takes a new session into the tables, before it has said anything.
func (s *Server) admit(c *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	u := s.users[c.uid]
	if u == nil {
		u = new(usage)
		s.users[c.uid] = u
	}
	// Its socket and its statistics.
	if c.uid != 0 && (u.clients >= maxClients || u.held()+2 > s.share()) {
		return fmt.Errorf("%w: user %d has %d clients already", wire.ErrRule, c.uid, u.clients)
	}
	u.clients++
	u.descriptors += 2
	c.user = u
	s.sessions[c] = struct{}{}
	return nil
}

// share is how many descriptors the clients of one user may hold.
func (s *Server) share() int { return descriptorLimit() / 2 }

// dismiss removes a session and all that it has.
func (s *Server) dismiss(c *session) {
	moved := connstats.Sum(c.tableFd())
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.user == nil { // not admitted
		return
	}
	sumInto(s.shared.past, moved)
	for _, l := range c.listeners {
		s.removeListenerLocked(l)
	}
	for _, o := range c.offers {
		s.endOfferLocked(o, 0)
	}
	c.listeners, c.offers = nil, nil
	c.user.clients--
	c.user.descriptors -= 2
	if c.user.clients == 0 && c.user.trash.len() == 0 { // else it has them when it comes back
		delete(s.users, c.uid)
	}
	delete(s.sessions, c)
	if len(s.sessions) == 0 {
		s.idle = time.Now()
	}
}
