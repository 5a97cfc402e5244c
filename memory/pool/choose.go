package pool

import (
	"cmp"
	"context"
	"math"
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
	return s.sessionWith(n)
}

// lendAt asks one node.
func (s *Server) lendAt(b *borrower, n fabric.NodeID, r request) (grant, wire.Message) {
	from, err := s.lenderAt(n)
	if err != nil {
		return grant{}, wire.Message{Status: wire.StatusNoNode, Node: n}
	}
	return from.lendMemory(b, r)
}

// How the way to a lender is measured.
const (
	// mostTrips is how many questions a lender gets: what delays one seldom delays all.
	mostTrips = 5
	// tripsTime is when a lender gets no further question: of that much, little is chance.
	tripsTime = 100 * time.Millisecond
	// tripFactor is by how much the times of lenders that are equally near differ at most.
	tripFactor = 2
	// laterTime is for how long a lender may still answer when another one has offered enough.
	laterTime = time.Second
)

// offer is what a neighbour would lend.
type offer struct {
	Neighbor
	bytesLeft int64
	why       wire.Status   // it is not more
	trip      time.Duration // the shortest round trip of a question and its answer
	ring      int           // 0: no lender is nearer; see rings
}

// lendAnywhere asks the other nodes, nearest first. If none of them all has enough, the nearest
// one that has the minimum lends what it has. A node whose number is avoid-1 is not asked.
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
	for _, o := range s.askOffers(near, r) {
		if o.bytesLeft < r.size {
			refused(wire.Message{Status: o.why, Node: o.Node, B: uint64(o.bytesLeft)})
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
	for _, o := range less {
		if o.bytesLeft < r.min {
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

// askOffers asks nodes what they would lend, all at once. The nearest come first: by their round
// trips (thesis 004, section 8.1), or else by hops. Of equally near ones, those come first that
// have most left. It does not wait for one that is so slow that it is none of the nearest.
func (s *Server) askOffers(nodes []Neighbor, r request) []offer {
	all := make([]offer, len(nodes))
	ctx, stop := context.WithTimeout(context.Background(), s.askTime)
	defer stop()
	var enough sync.Once
	var asked sync.WaitGroup
	for i, n := range nodes {
		asked.Go(func() {
			if all[i] = s.offerOf(ctx, n, r); all[i].bytesLeft >= r.size {
				enough.Do(func() { time.AfterFunc(laterTime, stop) })
			}
		})
	}
	asked.Wait()
	sortIntoRings(all)
	slices.SortStableFunc(all, func(a, b offer) int {
		return cmp.Or(cmp.Compare(a.ring, b.ring), cmp.Compare(a.Hops, b.Hops), cmp.Compare(b.bytesLeft, a.bytesLeft))
	})
	return all
}

// offerOf asks a node what it would lend, and measures how far away it is. A node that does not
// answer, or has not enough, is farther away than all others.
func (s *Server) offerOf(ctx context.Context, n Neighbor, r request) offer {
	o := offer{Neighbor: n, why: wire.StatusNoLender, trip: math.MaxInt64}
	p, err := s.sessionWith(n.Node)
	if err != nil {
		return o
	}
	var took time.Duration
	for range mostTrips {
		var a wire.Message
		trip := s.cfg.RoundTrip(n.Node, func() {
			a = p.askPeer(ctx, wire.Message{Op: wire.OpOffer, Account: uint32(r.account)}.Offering(), nil)
		})
		if a.Status != wire.StatusOK {
			o.bytesLeft, o.why, o.trip = 0, a.Status, math.MaxInt64
			break
		}
		if o.bytesLeft, o.why = int64(a.B), wire.Status(a.C); o.bytesLeft < r.min {
			break
		}
		o.trip = min(o.trip, trip)
		if took += trip; took >= tripsTime {
			break
		}
	}
	return o
}

// sortIntoRings says which offers are equally near by their round trips. A ring reaches from its
// nearest offer to tripFactor times as far. It sorts the offers.
func sortIntoRings(all []offer) {
	slices.SortStableFunc(all, func(a, b offer) int { return cmp.Compare(a.trip, b.trip) })
	begin, ring := 0, 0
	for i := range all {
		if all[i].trip > tripFactor*min(all[begin].trip, math.MaxInt64/tripFactor) {
			begin = i
			ring++
		}
		all[i].ring = ring
	}
}

// byClock is Config.RoundTrip.
func byClock(_ fabric.NodeID, ask func()) time.Duration {
	begin := time.Now()
	ask()
	return time.Since(begin)
}

// grantedLocked makes a process a borrower. The server's lock is held, and so that nothing
// happens to the lease before.
//
// +checklocks:s.mu
func (s *Server) grantedLocked(b *borrower, g grant) {
	b.grant, b.since = g, time.Now()
	b.onLocked(lease.OnGranted)
	s.borrowers[b] = struct{}{}
	s.count.Borrowed++
}
