package broker

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/packet"
)

// maxShown is how many connections are shown. With more, each client has its share.
const maxShown = 65536

// Connections returns the connections of all clients: what is in their statistics
// now. A client that writes nonsense there shows nonsense of itself.
func (s *Server) Connections() []connstats.Connection {
	type client struct {
		session
		fd int
	}
	s.mu.Lock()
	clients := make([]client, 0, len(s.sessions))
	for c := range s.sessions {
		from := c.stats
		if c.table != nil {
			from = c.table.Fd()
		}
		if fd, err := packet.Dup(from); err == nil {
			clients = append(clients, client{session{program: c.program, pid: c.pid}, fd})
		}
	}
	s.mu.Unlock()
	all := []connstats.Connection{}
	for _, c := range clients {
		for _, conn := range connstats.Read(c.fd, max(64, maxShown/len(clients))) {
			conn.Program, conn.PID = c.program, c.pid
			all = append(all, conn)
		}
		_ = unix.Close(c.fd)
	}
	slices.SortFunc(all, func(a, b connstats.Connection) int {
		return cmp.Or(a.Since.Compare(b.Since), a.Local.Compare(b.Local), a.Remote.Compare(b.Remote), cmp.Compare(a.PID, b.PID))
	})
	return all
}
