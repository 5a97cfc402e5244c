package pool

import (
	"cmp"
	"slices"
	"time"

	"exnet/node/rpc/caller"
)

// Lease is a lease, as its lender or its borrower's node sees it.
type Lease struct {
	ID            uint64 // the lender's
	Node          int    // of the other end
	UID           uint32 // of the borrower
	Container     bool   // the borrower is root of a container, which has an account of its own
	PID           int    // 0: not known here
	Size          int64
	Huge          bool
	Since         time.Time
	Until, Revoke *time.Time // nil: none; Revoke: it has been asked to return the lease, until then
}

// Status is what a node lends and has borrowed.
type Status struct {
	Limits
	Lent, Borrowed []Lease
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.Truncate(time.Millisecond)
	return &t
}

// userOf returns the user of an account: root, for root of a container.
func userOf(a caller.Account) uint32 {
	if a == caller.Guest {
		return uint32(caller.Root)
	}
	return uint32(a)
}

// describeLease describes a loan. The server's lock is held.
func (l *loan) describeLease() Lease {
	return Lease{
		ID: l.id, Node: int(l.node), UID: userOf(l.account), Container: l.account == caller.Guest, PID: l.pid, Size: l.size, Huge: l.huge,
		Since: l.since.Truncate(time.Millisecond), Until: timeOrNil(l.until), Revoke: timeOrNil(l.deadline),
	}
}

// Status returns what the node lends and has borrowed, by the IDs.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Limits: s.limits, Lent: []Lease{}, Borrowed: []Lease{}}
	for _, l := range s.loans {
		st.Lent = append(st.Lent, l.describeLease())
	}
	for b := range s.borrowers {
		st.Borrowed = append(st.Borrowed, Lease{
			ID: b.id, Node: int(b.node), UID: userOf(b.who.Account), Container: b.who.Account == caller.Guest, PID: b.who.PID, Size: b.size, Huge: b.huge,
			Since: b.since.Truncate(time.Millisecond), Until: timeOrNil(b.until), Revoke: timeOrNil(b.deadline),
		})
	}
	order := func(a, b Lease) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID)) }
	slices.SortFunc(st.Lent, order)
	slices.SortFunc(st.Borrowed, order)
	return st
}
