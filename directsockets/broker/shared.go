package broker

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/node/rpc"
)

// shared counts what has moved through shared memory, by the address of the other end.
type shared struct {
	// These belong to the Server's lock.
	past  map[netip.Addr]connstats.Total // of clients that have ended
	shown map[netip.Addr]connstats.Total // what Shared has returned

	met met
}

// met are the addresses between which this broker has set up connections. Others in a client's
// statistics are ignored: it could name any number of them.
type met struct {
	mu    sync.RWMutex
	addrs map[netip.Addr]struct{} // +checklocks:mu
}

const (
	// maxMet is how many addresses are kept in all, and maxMetUser how many the clients of one
	// owner may add. What has moved between others is not counted.
	maxMet     = 1 << 16
	maxMetUser = 1024
	// maxEnded is how many tables of an owner's clients that have ended wait to be added up.
	maxEnded = 1024
)

func (m *met) hasAddr(a netip.Addr) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	_, there := m.addrs[a]
	return there
}

// addAddr reports whether there is an address more.
func (m *met) addAddr(a netip.Addr) bool {
	if m.hasAddr(a) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.addrs == nil {
		m.addrs = make(map[netip.Addr]struct{})
	}
	before := len(m.addrs)
	if before < maxMet {
		m.addrs[a] = struct{}{}
	}
	return len(m.addrs) > before
}

// meetLocked says that a client's connection to an address was set up.
//
// +checklocks:s.mu
func (s *Server) meetLocked(c *session, a netip.Addr) {
	if c.user != nil && c.user.met < maxMetUser && s.shared.met.addAddr(a) {
		c.user.met++
	}
}

func sumInto(to, from map[netip.Addr]connstats.Total) {
	for a, t := range from {
		to[a] = to[a].Plus(t)
	}
}

// sumUpLocked has a goroutine of the owner add the statistics of an ended client to those of the
// past, one table at a time and within the owner's processor time. Nobody waits for that; until
// then Shared reads them itself.
//
// +checklocks:s.mu
func (s *Server) sumUpLocked(c *session) {
	fd := c.stats
	if c.stats = -1; c.table != nil {
		fd, _ = rpc.Dup(c.table.Fd()) // -1: there are no descriptors, or none any more
	}
	u := c.user
	if fd < 0 {
		return
	}
	if s.closed || len(u.ended) >= maxEnded {
		s.count.StatisticsUnread.Add(1)
		_ = unix.Close(fd)
		return
	}
	u.ended = append(u.ended, fd)
	u.levels.chargeAll(descriptors, 1)
	if !u.summing {
		u.summing = true
		s.work.Add(1)
		go s.sumUp(c.owner, u)
	}
}

// sumUp adds up what waits of an owner.
func (s *Server) sumUp(o owner, u *usage) {
	defer s.work.Done()
	for {
		s.mu.Lock()
		if s.closed || len(u.ended) == 0 {
			rpc.Descriptors(u.ended).Close()
			u.levels.chargeAll(descriptors, -len(u.ended))
			u.ended, u.summing = nil, false
			s.leaveLocked(o, u)
			s.mu.Unlock()
			return
		}
		fd := u.ended[0]
		s.mu.Unlock()
		if wait := u.levels.chargeTime(monotonicTime(), 0); wait > 0 && len(u.levels) > 1 {
			select {
			case <-time.After(wait):
			case <-s.ctx.Done():
				continue
			}
		}
		sums := s.readEnded(u, fd)
		s.mu.Lock()
		if !s.closed {
			sumInto(s.shared.past, sums)
			u.ended = u.ended[1:]
			u.levels.chargeAll(descriptors, -1)
			_ = unix.Close(fd)
		}
		s.mu.Unlock()
	}
}

// readEnded adds up one table, at the cost of its owner.
func (s *Server) readEnded(u *usage, fd int) (sums map[netip.Addr]connstats.Total) {
	s.scanning.Lock()
	defer s.scanning.Unlock()
	spent := measureTime(func() {
		budget := maxRead
		sums = connstats.Sum(fd, s.shared.met.hasAddr, &budget)
	})
	u.levels.chargeTime(monotonicTime(), paceShare*spent)
	return sums
}

// Shared returns what the programs here, those that have ended included, have exchanged by
// direct sockets in shared memory, by the address of the other end: what no link carries. It
// never goes down.
func (s *Server) Shared() map[netip.Addr]connstats.Total {
	s.scanning.Lock()
	defer s.scanning.Unlock()
	s.mu.Lock()
	sums, clients := maps.Clone(s.shared.past), s.tablesLocked()
	for o, u := range s.users {
		for _, fd := range u.ended {
			if fd, err := rpc.Dup(fd); err == nil {
				clients = append(clients, clientTable{owner: o, fd: fd})
			}
		}
	}
	s.mu.Unlock()
	left := newBudgets()
	for _, c := range clients { // also those that end meanwhile: they are not among the past ones here
		left.readWith(c.owner, func(budget *int) { sumInto(sums, connstats.Sum(c.fd, s.shared.met.hasAddr, budget)) })
		_ = unix.Close(c.fd)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, t := range s.shared.shown {
		sums[a] = sums[a].Max(t)
	}
	s.shared.shown = sums
	return maps.Clone(sums)
}
