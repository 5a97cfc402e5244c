package pool

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"exnet/fabric"
	"exnet/memory/lease"
	"exnet/memory/wire"
)

// lenderAt returns a node as a lender.
func (s *Server) lenderAt(n fabric.NodeID) (lender, error) {
	if n == s.cfg.Node {
		return s.own, nil
	}
	return s.dial(n)
}

// lendAt asks one node.
func (s *Server) lendAt(b *borrower, n fabric.NodeID, r request) (grant, wire.Message) {
	from, err := s.lenderAt(n)
	if err != nil {
		return grant{}, wire.Message{Status: wire.StatusNoNode, Node: n}
	}
	return from.lend(b, r)
}

// offer is what a neighbour would lend.
type offer struct {
	Neighbor
	left int64
	why  wire.Status // it is not more
}

// lendAnywhere asks the other nodes, nearest first: of those that are equally near, the one that
// has most left. If none of them all has enough, the nearest one that has the minimum lends what it
// has. A node whose number is avoid-1 is not asked.
func (s *Server) lendAnywhere(b *borrower, r request, avoid uint64) (grant, wire.Message) {
	var near []Neighbor
	if s.cfg.Nodes != nil {
		near = slices.DeleteFunc(s.cfg.Nodes(), func(n Neighbor) bool { return uint64(n.Node)+1 == avoid })
	}
	best := wire.Message{Status: wire.StatusNoLender}
	refused := func(m wire.Message) {
		if best.Status == wire.StatusNoLender || m.Status != wire.StatusNoLender && m.Status != wire.StatusNoNode && m.B > best.B {
			best = m
		}
	}
	var less []offer
	for len(near) > 0 {
		n := 1
		for n < len(near) && near[n].Hops == near[0].Hops {
			n++
		}
		for _, o := range s.offers(near[:n], r) {
			if o.left < r.size {
				refused(wire.Message{Status: o.why, Node: o.Node, B: uint64(o.left)})
				less = append(less, o)
				continue
			}
			whole := r
			whole.min = r.size
			g, m := s.lendAt(b, o.Node, whole)
			if m.Status == wire.StatusOK {
				return g, m
			}
			refused(m)
		}
		near = near[n:]
	}
	for _, o := range less {
		if o.left < r.min {
			continue
		}
		g, m := s.lendAt(b, o.Node, r)
		if m.Status == wire.StatusOK {
			return g, m
		}
		refused(m)
	}
	return grant{}, best
}

// offers asks nodes what they would lend, all at once. Those that lend most come first.
func (s *Server) offers(nodes []Neighbor, r request) []offer {
	all := make([]offer, len(nodes))
	var asked sync.WaitGroup
	for i, n := range nodes {
		all[i] = offer{Neighbor: n, why: wire.StatusNoLender}
		asked.Go(func() {
			p, err := s.dial(n.Node)
			if err != nil {
				return
			}
			a := p.call(wire.Message{Op: wire.OpOffer, Account: uint32(r.account)}.Offering(), nil)
			if a.Status == wire.StatusOK {
				all[i].left, all[i].why = int64(a.B), wire.Status(a.C)
			} else {
				all[i].why = a.Status
			}
		})
	}
	asked.Wait()
	slices.SortStableFunc(all, func(a, b offer) int { return cmp.Compare(b.left, a.left) })
	return all
}

// grantedLocked makes a process a borrower. The server's lock is held, and so that nothing happens
// to the lease before.
//
// +checklocks:s.mu
func (s *Server) grantedLocked(b *borrower, g grant) {
	b.grant, b.since = g, time.Now()
	b.onLocked(lease.OnGranted)
	s.borrowers[b] = struct{}{}
	s.count.Borrowed++
}
