package broker

import (
	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/node/rpc"
)

const (
	// maxShown is how many connections are shown. With more, each client has its share.
	maxShown = 65536
	// maxRead is how many entries of the statistics of one owner's clients are read at a time, and
	// maxReadAll those of all users.
	maxRead    = 4 * connstats.MaxEntries
	maxReadAll = 16 * maxRead
)

// budgets limit how much of the clients' statistics is read at a time.
type budgets struct {
	owners    map[owner]*int
	remaining int
}

func newBudgets() *budgets { return &budgets{make(map[owner]*int), maxReadAll} }

// readWith has f read from what an owner still has.
func (b *budgets) readWith(o owner, f func(budget *int)) {
	left := b.owners[o]
	if left == nil {
		left = new(int)
		*left = maxRead
		b.owners[o] = left
	}
	n := min(*left, b.remaining)
	before := n
	f(&n)
	used := before - max(n, 0)
	*left -= used
	b.remaining -= used
}

// Connections returns the connections of all clients, from their statistics. A client that writes
// nonsense there shows nonsense of itself. Of an owner's clients that report too many, some are
// left out.
func (s *Server) Connections() []connstats.Connection {
	s.scanning.Lock()
	defer s.scanning.Unlock()
	s.mu.Lock()
	clients := s.tablesLocked()
	s.mu.Unlock()
	var all []*connstats.Connection // pointers: sorting the values themselves would take 17 KB of code
	left := newBudgets()
	for _, c := range clients {
		left.readWith(c.owner, func(budget *int) {
			for _, conn := range connstats.Read(c.fd, max(64, maxShown/len(clients)), budget) {
				conn.Program, conn.PID = c.program, c.pid
				conn.Rule = s.decidedBy(&conn)
				all = append(all, &conn)
			}
		})
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
	owner   owner
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
		if t, err := s.tableOf(c); err == nil {
			tables = append(tables, t)
		}
	}
	return tables
}

// tableOf returns that of a client. The caller closes the descriptor.
//
// +checklocks:s.mu
func (s *Server) tableOf(c *session) (clientTable, error) {
	fd, err := rpc.Dup(c.tableFd())
	return clientTable{c.owner, c.program, c.pid, fd}, err
}

// tableFd is the client's statistics; -1: there are none yet. The Server's lock is held, or the
// client is not among its sessions any more.
func (c *session) tableFd() int {
	if c.table != nil {
		return c.table.Fd()
	}
	return c.stats
}
