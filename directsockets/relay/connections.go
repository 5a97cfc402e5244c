package relay

import (
	"cmp"
	"net/netip"
	"slices"

	"exnet/directsockets/segment"
	"exnet/fabric"
)

// Connection describes a connection.
type Connection struct {
	Local, Remote netip.AddrPort
	Node          fabric.NodeID // where the other program is
	State         string        // as SPEC.md (5.9) has it
	Gate          string        // what happens to packets of its shadow that the program here sends
	Held          int           // how many of these packets wait
	// Packets of its shadow that were dropped, and that TCP sends again: HeldDropped were sent by
	// the program here, EarlyDropped have come from the other node.
	HeldDropped, EarlyDropped uint64
	Waits                     string // what it waits for; "": nothing
	// Back: it goes back to TCP for good, also before the program here has looked.
	Back bool
}

// Connections returns all connections, sorted by local address. ErrClosed: the Engine is closed.
func (e *Engine) Connections() ([]Connection, error) {
	all := make(chan []Connection, 1)
	if err := e.doLater(func() {
		list := make([]Connection, 0, len(e.conns))
		for _, c := range e.conns {
			list = append(list, c.describeConn())
		}
		all <- list
	}); err != nil {
		return nil, err
	}
	list := <-all
	slices.SortFunc(list, func(a, b Connection) int {
		return cmp.Or(a.Local.Compare(b.Local), a.Remote.Compare(b.Remote))
	})
	return list, nil
}

// describeConn describes a connection. The poll list's owner calls it.
func (c *conn) describeConn() Connection {
	i := c.seg.Info()
	s := Connection{Local: i.Client, Remote: i.Server, Node: c.node.id, State: c.state.String(), Back: c.relay.Said(segment.MarkFallenBack)}
	if c.relay.Side() == segment.Client { // the program here is the server
		s.Local, s.Remote = s.Remote, s.Local
	}
	g := c.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Held, s.HeldDropped, s.EarlyDropped = len(g.held), g.dropped, g.early
	switch {
	case isSuspended(c.state):
		s.Waits = c.waitsFor()
	case c.mayOwe():
		s.Waits = "an acknowledgement"
	}
	switch {
	case g.free:
		s.Gate = "open"
	case g.stopped:
		s.Gate = "stopped"
	default:
		s.Gate = "in order"
	}
	return s
}

// waitsFor says why a suspended connection has not gone on yet.
func (c *conn) waitsFor() string {
	switch n := c.node; {
	case n.port == nil:
		return "a link"
	case n.down:
		return "the next session"
	case isCut(c.state) && c.cutIn == n:
		return "the end of this session"
	case c.blocked:
		return "room in its channel"
	case c.state == stateResuming || c.state == stateFinishedResuming:
		return "RESUME"
	}
	return "what is under way to end"
}
