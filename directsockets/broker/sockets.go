package broker

import (
	"maps"
	"net/netip"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/packet"
)

// maxShown is how many connections are shown. With more, each client has its share.
const maxShown = 65536

// Connections returns the connections of all clients: what is in their statistics
// now. A client that writes nonsense there shows nonsense of itself.
func (s *Server) Connections() []connstats.Connection {
	s.mu.Lock()
	clients := s.tablesLocked()
	s.mu.Unlock()
	var all []*connstats.Connection // pointers: sorting the values themselves would take 17 KB of code
	for _, c := range clients {
		for _, conn := range connstats.Read(c.fd, max(64, maxShown/len(clients))) {
			conn.Program, conn.PID = c.program, c.pid
			all = append(all, &conn)
		}
		_ = unix.Close(c.fd)
	}
	connstats.Sort(all)
	values := make([]connstats.Connection, len(all))
	for i, c := range all {
		values[i] = *c
	}
	return values
}

// clientTable is a copy of the descriptor of a client's statistics.
type clientTable struct {
	program string
	pid     int
	fd      int
}

// tablesLocked returns those of all clients. The caller closes the descriptors.
//
// +checklocks:s.mu
func (s *Server) tablesLocked() []clientTable {
	tables := make([]clientTable, 0, len(s.sessions))
	for c := range s.sessions {
		if fd, err := packet.Dup(c.tableFd()); err == nil {
			tables = append(tables, clientTable{c.program, c.pid, fd})
		}
	}
	return tables
}

// tableFd is the client's statistics; -1: there are none yet. The Server's lock is held, or the
// client is not among its sessions any more.
func (c *session) tableFd() int {
	if c.table != nil {
		return c.table.Fd()
	}
	return c.stats
}

// shared is what has moved through memory that both programs of a connection map, by the
// address of the other end. It belongs to the Server's lock.
type shared struct {
	past  map[netip.Addr]connstats.Total // of clients that have ended
	shown map[netip.Addr]connstats.Total // what Shared has returned
}

// maxShared is how many addresses it has, at most: what a client says of more is left out.
const maxShared = 1 << 16

func sumInto(to, from map[netip.Addr]connstats.Total) {
	for a, t := range from {
		if before, known := to[a]; known || len(to) < maxShared {
			to[a] = before.Plus(t)
		}
	}
}

// Shared returns what the programs here, those that have ended included, have exchanged by
// direct sockets in shared memory, by the address of the other end: what no link carries. It
// never goes down.
func (s *Server) Shared() map[netip.Addr]connstats.Total {
	s.mu.Lock()
	now, clients := maps.Clone(s.shared.past), s.tablesLocked()
	s.mu.Unlock()
	for _, c := range clients { // also those that end meanwhile: they are not among the past ones here
		sumInto(now, connstats.Sum(c.fd))
		_ = unix.Close(c.fd)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, t := range s.shared.shown {
		now[a] = now[a].Max(t)
	}
	s.shared.shown = now
	return maps.Clone(now)
}
