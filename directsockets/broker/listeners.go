package broker

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"exnet/directsockets/broker/wire"
)

// listener is a listening socket that takes direct connections.
type listener struct {
	bound
	c *session
}

// addListener adds a listener; false: the client, or its owner, has too many.
func (s *Server) addListener(c *session, id uint32, b bound) (ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.listeners == nil {
		return false, wire.ErrClosed
	}
	if c.listeners[id] != nil || c.receivers[id] != nil {
		return false, fmt.Errorf("%w: LISTEN %d exists already", wire.ErrRule, id)
	}
	if len(c.listeners)+len(c.receivers) >= wire.MaxListeners || !c.user.levels.takeAll(listeners, 1) {
		s.count.ListenersRefused.Add(1)
		return false, nil
	}
	l := &listener{bound: b, c: c}
	c.listeners[id] = l
	s.listeners[b.port]++
	c.chargeTime(s.cfg.Group.countListeners(b.port, 1))
	s.bounds[b]++
	s.announceLocked(b, 1)
	s.showPortLocked(b.port)
	return true, nil
}

// +checklocks:s.mu
func (s *Server) removeListenerLocked(l *listener) {
	l.c.user.levels.chargeAll(listeners, -1)
	if s.listeners[l.port]--; s.listeners[l.port] == 0 {
		delete(s.listeners, l.port)
	}
	l.c.chargeTime(s.cfg.Group.countListeners(l.port, -1))
	if s.bounds[l.bound]--; s.bounds[l.bound] == 0 {
		delete(s.bounds, l.bound)
	}
	s.announceLocked(l.bound, -1)
	s.showPortLocked(l.port)
}

// showPortLocked puts the number of listeners of a port into the page: those here,
// those of the peers and those of the group.
//
// +checklocks:s.mu
func (s *Server) showPortLocked(port uint16) {
	n, deep := s.listeners[port]+s.cfg.Group.othersAt(s.listeners[port], port), false
	for p := range s.peers {
		n += p.ports[port]
		deep = deep || p.ports[port] > 0 && (p.rdma || slices.ContainsFunc(p.addrs, func(a netip.Addr) bool {
			return s.cfg.Carried(netip.AddrPortFrom(a, port))
		}))
	}
	s.page.SetListeners(port, n, deep)
}

// announceLocked tells the peers of a change, if the listener can be reached from
// their nodes.
//
// +checklocks:s.mu
func (s *Server) announceLocked(b bound, change int) {
	if !isReachable(b, *s.addrs.Load()) {
		return
	}
	s.announced[b] += change
	s.tellLocked(b)
}

// tellLocked tells the peers how many listeners there are.
//
// +checklocks:s.mu
func (s *Server) tellLocked(b bound) {
	n := s.announced[b]
	if n == 0 {
		delete(s.announced, b)
	}
	for p := range s.peers {
		p.sendLocked(peerMessage{Type: peerPort, Bound: b, Count: uint32(n)})
	}
}

// SetAddrs changes the node's addresses on the fabric.
func (s *Server) SetAddrs(addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(addrs, *s.addrs.Load()) {
		return
	}
	for b := range s.announced {
		if !isReachable(b, addrs) {
			delete(s.announced, b)
			s.tellLocked(b)
		}
	}
	own := slices.Clone(addrs[:min(len(addrs), maxAddrs)])
	s.addrs.Store(&own)
	for p := range s.peers {
		p.sendLocked(s.describeSelf())
		s.findLocked(p)
	}
	before := maps.Clone(s.announced)
	for b, n := range s.bounds {
		if before[b] == 0 && isReachable(b, own) {
			s.announced[b] = n
		}
	}
	for b := range s.announced {
		if before[b] == 0 {
			s.tellLocked(b)
		}
	}
}

// isReachable reports whether the peers of a node with these addresses can connect to a
// listener.
func isReachable(b bound, addrs []netip.Addr) bool {
	if b.addr.IsUnspecified() {
		return len(addrs) > 0
	}
	return slices.Contains(addrs, b.addr)
}

// isOwn reports whether an address is the node's, on the fabric.
func (s *Server) isOwn(a netip.Addr) bool { return slices.Contains(*s.addrs.Load(), a) }

// +checklocks:s.mu
func (s *Server) listensLocked(key wire.Key) bool { return isTaken(s.bounds, key.Server) }

// isTaken reports whether any of the listeners takes connections to an address.
func isTaken(at map[bound]int, to netip.AddrPort) bool {
	for _, b := range []bound{
		{addr: to.Addr()}, {addr: netip.IPv6Unspecified()}, {addr: netip.IPv4Unspecified()},
	} {
		for _, v6only := range []bool{false, true} {
			b.port, b.v6only = to.Port(), v6only
			if at[b] > 0 && b.isAccepting(to.Addr()) {
				return true
			}
		}
	}
	return false
}
