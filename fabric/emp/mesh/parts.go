package mesh

import (
	"context"
	"fmt"
	"net"
	"time"

	"exnet/fabric/emp"
)

// part is one of the connections of a link.
type part struct {
	conn      net.Conn
	index, of int
}

// gather returns the data connections: made, or come.
func (s *session) gather(ctx context.Context) (conns []net.Conn, err error) {
	defer func() {
		if err != nil {
			for _, c := range conns {
				if c != nil {
					c.Close()
				}
			}
		}
	}()
	if s.dialed {
		for i := range s.m.cfg.Conns {
			h := hello{Kind: kindData, Cookie: s.cookie, Index: i, Of: s.m.cfg.Conns}
			c, reply, p, err := s.m.connect(ctx, s.endpoint.String(), h)
			if err != nil {
				return conns, err
			}
			conns = append(conns, c)
			if reply.Self.Node != s.desc.Node || reply.Self.Token != s.desc.Token || p != nil && p.Node != s.desc.Node {
				return conns, fmt.Errorf("%w: node %d answers in the place of node %d", emp.ErrRefused, reply.Self.Node, s.desc.Node)
			}
			if err := c.SetDeadline(time.Time{}); err != nil {
				return conns, err
			}
		}
		return conns, nil
	}
	limit := time.After(partTime)
	for have := 0; have == 0 || have < len(conns); have++ {
		select {
		case p := <-s.parts:
			if conns == nil {
				conns = make([]net.Conn, p.of)
			}
			if p.of != len(conns) || conns[p.index] != nil {
				p.conn.Close()
				return conns, fmt.Errorf("%w: data connection %d of %d", emp.ErrHello, p.index, p.of)
			}
			conns[p.index] = p.conn
		case <-limit:
			return conns, fmt.Errorf("no data connection within %v", partTime)
		case <-s.over:
			return conns, s.why()
		}
	}
	return conns, nil
}

// maxParts is how many data connections a link has at most.
const maxParts = 4

// part returns what hands a data connection to the session that it belongs to.
func (m *Mesh) part(conn net.Conn, h hello) (func(context.Context), error) {
	m.mu.Lock()
	s := m.cookies[h.Cookie]
	m.mu.Unlock()
	if s == nil || s.dialed || s.desc.Node != h.Self.Node || s.desc.Token != h.Self.Token {
		return nil, fmt.Errorf("%w: data connection without a session", emp.ErrHello)
	}
	if h.Of < 1 || h.Of > maxParts || h.Index < 0 || h.Index >= h.Of {
		return nil, fmt.Errorf("%w: data connection %d of %d", emp.ErrHello, h.Index, h.Of)
	}
	return func(ctx context.Context) {
		select {
		case s.parts <- part{conn, h.Index, h.Of}:
		case <-s.over:
			conn.Close()
		case <-time.After(partTime):
			conn.Close()
		}
	}, nil
}
