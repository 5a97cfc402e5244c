package mesh

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"exnet/fabric/emp"
	"exnet/internal/ctxend"
)

// part is one of the connections of a link.
type part struct {
	conn      net.Conn
	index, of int
}

// makeLink makes the link; nil: there is to be none.
func (s *session) makeLink(ctx context.Context) (emp.Link, error) {
	defer s.endParts()
	s.m.mu.Lock()
	linker := s.m.linker
	s.m.mu.Unlock()
	if s.shared || s.isOver() {
		return nil, nil
	}
	ctx, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stop()
	watch.Go(func() {
		select {
		case <-s.over:
			stop()
		case <-ctx.Done():
		}
	})
	conns, err := s.gatherConns(ctx)
	if err != nil {
		return nil, err
	}
	defer ctxend.Do(ctx, func() { // closed, they have the Linker fail
		for _, c := range conns {
			c.Close()
		}
	})()
	return linker(conns, s.desc.Node)
}

// maxParts is how many data connections a link has at most.
const maxParts = 4

// parts are the data connections that have come for a session. Mesh.mu guards all but the channel.
type parts struct {
	come  chan part // never full: each index is taken once
	of    int       // as the first of them says
	taken [maxParts]bool
	ended bool // no more are taken
}

func newParts() parts { return parts{come: make(chan part, maxParts)} }

// takePart takes the place of a data connection that is welcome.
func (p *parts) takePart(h hello) error {
	switch {
	case h.Of < 1 || h.Of > maxParts || h.Index < 0 || h.Index >= h.Of:
		return fmt.Errorf("%w: data connection %d of %d", emp.ErrHello, h.Index, h.Of)
	case p.ended:
		return fmt.Errorf("%w: data connection %d of %d, of a link that takes none any more", emp.ErrHello, h.Index, h.Of)
	case p.of != 0 && p.of != h.Of || p.taken[h.Index]:
		return fmt.Errorf("%w: data connection %d of %d, which there is already", emp.ErrHello, h.Index, h.Of)
	}
	p.of, p.taken[h.Index] = h.Of, true
	return nil
}

// endParts takes no more data connections, and closes those that nobody has gathered.
func (s *session) endParts() {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.parts.ended = true
	for {
		select {
		case p := <-s.parts.come:
			hangUp(p.conn)
		default:
			return
		}
	}
}

// gatherConns returns the data connections: made, or come.
func (s *session) gatherConns(ctx context.Context) (conns []net.Conn, err error) {
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
			c, reply, p, err := s.m.connectTo(ctx, s.endpoint.String(), h)
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
		case p := <-s.parts.come:
			if conns == nil {
				conns = make([]net.Conn, p.of)
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

// servePart returns what hands a data connection to the session that it belongs to. It does not
// wait.
func (m *Mesh) servePart(conn net.Conn, h hello) (func(context.Context), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.cookies[h.Cookie]
	if s == nil || s.dialed || s.desc.Node != h.Self.Node || s.desc.Token != h.Self.Token {
		return nil, fmt.Errorf("%w: data connection without a session", emp.ErrHello)
	}
	if err := s.parts.takePart(h); err != nil {
		return nil, err
	}
	return func(context.Context) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if s.parts.ended {
			hangUp(conn)
			return
		}
		s.parts.come <- part{conn, h.Index, h.Of}
	}, nil
}
