package broker

import "fmt"

// listener is a listening socket that takes direct connections.
type listener struct {
	bound
	c *session
}

// addListener adds a listener; false: the client has too many.
func (s *Server) addListener(c *session, id uint32, b bound) (ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.listeners == nil {
		return false, ErrClosed
	}
	if c.listeners[id] != nil {
		return false, fmt.Errorf("%w: LISTEN %d is there already", ErrRule, id)
	}
	if len(c.listeners) >= maxListeners {
		return false, nil
	}
	l := &listener{bound: b, c: c}
	c.listeners[id] = l
	if s.listeners[b.port] == nil {
		s.listeners[b.port] = make(map[*listener]struct{})
	}
	s.listeners[b.port][l] = struct{}{}
	s.announceLocked(b, 1)
	s.showPortLocked(b.port)
	return true, nil
}

// +checklocks:s.mu
func (s *Server) removeListenerLocked(l *listener) {
	at := s.listeners[l.port]
	delete(at, l)
	if len(at) == 0 {
		delete(s.listeners, l.port)
	}
	s.announceLocked(l.bound, -1)
	s.showPortLocked(l.port)
}

// showPortLocked puts the number of listeners of a port into the page: those here
// and those of the peers.
//
// +checklocks:s.mu
func (s *Server) showPortLocked(port uint16) {
	n := len(s.listeners[port])
	for p := range s.peers {
		n += p.ports[port]
	}
	s.page.setListeners(port, n)
}

// announceLocked tells the peers of a change, if the listener can be reached from
// their nodes.
//
// +checklocks:s.mu
func (s *Server) announceLocked(b bound, change int) {
	if !s.reachable(b) {
		return
	}
	n := s.announced[b] + change
	if n == 0 {
		delete(s.announced, b)
	} else {
		s.announced[b] = n
	}
	for p := range s.peers {
		p.sendLocked(peerMessage{Type: peerPort, Bound: b, Count: uint32(n)})
	}
}

// reachable reports whether peers can connect to a listener.
func (s *Server) reachable(b bound) bool {
	if b.addr.IsUnspecified() {
		return len(s.cfg.Addrs) > 0
	}
	for _, a := range s.cfg.Addrs {
		if a == b.addr {
			return true
		}
	}
	return false
}

// +checklocks:s.mu
func (s *Server) listensLocked(key Key) bool {
	for l := range s.listeners[key.Server.Port()] {
		if l.takes(key.Server.Addr()) {
			return true
		}
	}
	return false
}
