package pool

import (
	"math"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/internal/shm"
	"exnet/memory/lease"
	"exnet/memory/wire"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
)

// holder is the node that a loan was given to: a peer, or this one.
type holder interface {
	// revokeLocked and goneLocked tell it what happens to a loan. The server's lock is held.
	revokeLocked(id uint64, until time.Time)
	goneLocked(id uint64, why wire.Status)
}

// loan is memory of this node that somebody has a lease of.
type loan struct {
	id         uint64
	holder     holder
	node       fabric.NodeID // of the borrower
	account    caller.Account
	pid        int
	size       int64
	huge       bool
	fd         int // of the memory, unless it has ended
	lease.Life     // the server's lock guards it, and
	rpc.Turn       // what is said of it to the holder
	exported       // to a node of another host

	since    time.Time
	until    time.Time   // zero: no end
	renewed  time.Time   // the last sign of life of the borrower
	deadline time.Time   // of lease.Wanted: when it ends in any case
	why      wire.Status // why it is wanted, or has ended
	timer    *time.Timer // calls expire
	due      time.Time   // when it does so
}

// request is what a borrower wants.
type request struct {
	node      fabric.NodeID // of the borrower
	account   caller.Account
	pid       int
	size, min int64
	time      time.Duration
	huge      bool
}

// leaseUnit is what the size of a lease is a multiple of.
func leaseUnit(huge bool) int64 {
	if huge {
		return wire.HugeSize
	}
	return wire.PageSize
}

// isMetBy says whether a loan of n bytes is what is wanted.
func (r request) isMetBy(n uint64) bool {
	return n >= uint64(r.min) && n <= uint64(r.size) && n%uint64(leaseUnit(r.huge)) == 0
}

// isValid says whether a request makes sense.
func (r request) isValid() bool {
	u := leaseUnit(r.huge)
	return r.size > 0 && r.size%u == 0 && r.min > 0 && r.min <= r.size && r.min%u == 0 && r.time >= 0
}

// allowanceLocked returns how much of this node's memory a borrower may still have by the
// limits, and which limit it is. The server's lock is held.
//
// +checklocks:s.mu
func (s *Server) allowanceLocked(node fabric.NodeID, account caller.Account) (int64, wire.Status) {
	left, why := s.limits.Lend-s.lent+s.returning, wire.StatusFull
	var ofNode, ofUser int64
	for _, l := range s.loans {
		if l.node == node {
			ofNode += l.size
			if l.account == account {
				ofUser += l.size
			}
		}
	}
	if m := s.limits.PerNode; m > 0 && m-ofNode < left {
		left, why = m-ofNode, wire.StatusLimit
	}
	if m := s.limits.PerUser; m > 0 && m-ofUser < left {
		left, why = m-ofUser, wire.StatusLimit
	}
	return max(left, 0), why
}

// atLeaseLimitLocked reports whether the node that asks has as many leases as a node may have,
// or all other nodes together as many as they may. The server's lock is held.
//
// +checklocks:s.mu
func (s *Server) atLeaseLimitLocked(node fabric.NodeID) bool {
	all, its := 0, 0
	for _, l := range s.loans {
		if l.holder == holder(s.own) {
			continue
		}
		all++
		if l.node == node {
			its++
		}
	}
	return its >= perNode || all >= allNodes
}

// returnTime is how long a request waits for memory that is being given back.
const returnTime = 2 * time.Second

// awaitReturning waits while memory that is being given back may make room for size bytes.
func (s *Server) awaitReturning(size int64) {
	late := time.NewTimer(returnTime)
	defer late.Stop()
	for {
		s.mu.Lock()
		enough, freed := s.returning == 0 || s.limits.Lend-s.lent >= size, s.freed
		s.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-freed:
		case <-late.C:
			return
		}
	}
}

// lendTo gives a loan to a holder, or says why not and how much could be had.
func (s *Server) lendTo(h holder, r request) (l *loan, left int64, why wire.Status) {
	s.awaitReturning(r.size)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		if l == nil {
			s.count.Refused++
		}
	}()
	if !r.isValid() {
		return nil, 0, wire.StatusInvalid
	}
	if s.hub.Ended() || s.limits.Lend == 0 {
		return nil, 0, wire.StatusNoLender
	}
	if h != holder(s.own) && s.atLeaseLimitLocked(r.node) {
		return nil, 0, wire.StatusBusy
	}
	left, why = s.allowanceLocked(r.node, r.account)
	if there := s.limits.Lend - s.lent; there < left {
		left, why = max(there, 0), wire.StatusFull
	}
	left -= left % leaseUnit(r.huge)
	if left < r.min {
		return nil, left, why
	}
	size := min(r.size, left)
	if have, ok := availableMemory(); ok && !r.huge && have < s.untouchedLocked()+size {
		left = max(have-s.untouchedLocked(), 0)
		left -= left % wire.PageSize
		if left < r.min {
			return nil, left, wire.StatusMemory
		}
		size = min(size, left)
	}
	fd, err := shm.CreateLoan("exnet-lease", size, r.huge)
	if err != nil {
		s.cfg.Log.Warn("memory: cannot lend", "bytes", size, "reason", err)
		if r.huge {
			return nil, 0, wire.StatusHuge
		}
		return nil, 0, wire.StatusMemory
	}
	var e exported
	if p, ok := h.(*peer); ok && p.far {
		if e, err = s.far.exportMemory(fd, size, r.node); err != nil {
			s.cfg.Log.Warn("memory: cannot lend to another host", "bytes", size, "reason", err)
			_ = unix.Close(fd)
			return nil, 0, wire.StatusMemory
		}
	}
	now := time.Now()
	s.lastID++
	l = &loan{
		exported: e,
		id:       s.lastID, holder: h, node: r.node, account: r.account, pid: r.pid, size: size, huge: r.huge, fd: fd,
		since: now, renewed: now,
	}
	l.On(lease.OnGranted)
	for _, d := range []time.Duration{r.time, s.cfg.MaxTime} {
		at := now.Add(d)
		if at.After(latest) {
			at = latest
		}
		if d > 0 && (l.until.IsZero() || at.Before(l.until)) {
			l.until = at
		}
	}
	s.loans[l.id] = l
	s.lent += size
	s.count.Granted++
	l.timer = time.AfterFunc(s.cfg.TTL, func() { s.expireLoan(l) })
	s.lookLaterLocked(l, now)
	return l, left - size, wire.StatusOK
}

// latest is the latest time that a message can name, in ns since 1970.
var latest = time.Unix(0, math.MaxInt64)

// applyLocked applies an event to a loan, and tells the holder. If the loan ends by it, it
// returns the function that takes the memory back: the caller calls it without the lock.
//
// +checklocks:s.mu
func (s *Server) applyLocked(l *loan, ev lease.Event) (free func()) {
	act := l.On(ev)
	switch act {
	case lease.ActWant:
		l.After(func() { l.holder.revokeLocked(l.id, l.deadline) })
	case lease.ActEndSay:
		l.After(func() { l.holder.goneLocked(l.id, l.why) })
	}
	if act == lease.ActEnd || act == lease.ActEndSay {
		return s.removeLocked(l)
	}
	return nil
}

// applySoonLocked applies an event to a loan. If the loan ends by it, the hub takes the memory
// back later.
//
// +checklocks:s.mu
func (s *Server) applySoonLocked(l *loan, ev lease.Event) {
	if free := s.applyLocked(l, ev); free != nil {
		s.hub.Finish(free)
	}
}

// untouchedLocked is how much of what is lent takes no memory yet. The server's lock is held.
//
// +checklocks:s.mu
func (s *Server) untouchedLocked() (n int64) {
	for _, l := range s.loans {
		var st unix.Stat_t
		if !l.huge && unix.Fstat(l.fd, &st) == nil {
			n += max(l.size-st.Blocks*512, 0)
		}
	}
	return n
}

// looks is in how many parts expire waits for a renewal. While this process was stopped it has
// heard nobody: of such a time one part counts.
const looks = 6

// mustRenew says whether a loan ends if nobody renews it. On this host the connection to the
// holder says whether that lives, also if it is stopped.
func (l *loan) mustRenew() bool {
	p, ok := l.holder.(*peer)
	return ok && p.far
}

// untilDueLocked returns after which time expire has to look at a loan. The server's lock is
// held.
func (s *Server) untilDueLocked(l *loan, now time.Time) time.Duration {
	next := now.Add(time.Hour)
	if l.mustRenew() {
		next = now.Add(min(s.cfg.TTL/looks, l.renewed.Add(s.cfg.TTL).Sub(now)))
	}
	at := l.until
	if !l.May(lease.OnWanted) { // until has passed, or the lender wants it back: the deadline counts
		at = l.deadline
	}
	if !at.IsZero() && at.Before(next) {
		next = at
	}
	return next.Sub(now)
}

// lookLaterLocked has expire look at a loan when something may be due. The server's lock is
// held.
func (s *Server) lookLaterLocked(l *loan, now time.Time) {
	wait := s.untilDueLocked(l, now)
	l.due = now.Add(wait)
	l.timer.Reset(wait)
}

// expireLoan is what a loan's timer calls. It takes the memory back when the deadline has
// passed, or the borrower's node on another host gave no sign of life for the TTL. It asks for
// the memory when the lease's time is over.
func (s *Server) expireLoan(l *loan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loans[l.id] != l {
		return
	}
	now := time.Now()
	if late := now.Sub(l.due); late > s.cfg.TTL/looks {
		l.renewed = l.renewed.Add(late)
	}
	if at := couldRenew(l.holder, now); at.After(l.renewed) { // the time without a link does not count
		l.renewed = at
	}
	switch {
	case !l.deadline.IsZero() && !now.Before(l.deadline):
		s.count.Forced++
		s.cfg.Log.Info("memory: a lease was taken back without an answer", "lease", l.id, "node", l.node)
		s.applySoonLocked(l, lease.OnTaken)
		return
	case l.mustRenew() && now.Sub(l.renewed) >= s.cfg.TTL:
		s.count.Dropped++
		l.why = wire.StatusExpired
		s.applySoonLocked(l, lease.OnTaken)
		return
	case l.deadline.IsZero() && !l.until.IsZero() && !now.Before(l.until):
		s.count.Expired++
		s.revokeLocked(l, wire.StatusExpired, s.cfg.Revoke)
		return
	}
	s.lookLaterLocked(l, now)
}

// couldRenew returns since when a holder of another host can renew: now, if there is no link to
// it.
func couldRenew(h holder, now time.Time) (since time.Time) {
	p, ok := h.(*peer)
	if !ok {
		return since
	}
	since, up := p.reachableSince()
	if !up {
		return now
	}
	return since
}

// revokeLocked asks the holder to give a loan back. If it does not, expire ends the loan after
// within. The server's lock is held.
//
// +checklocks:s.mu
func (s *Server) revokeLocked(l *loan, why wire.Status, within time.Duration) {
	if !l.May(lease.OnWanted) {
		return
	}
	now := time.Now()
	l.deadline, l.why = now.Add(within), why
	s.applySoonLocked(l, lease.OnWanted)
	s.lookLaterLocked(l, now)
}

// giveBack ends a loan that its holder returns. When it returns, others may have the memory.
func (s *Server) giveBack(h holder, id uint64) {
	s.mu.Lock()
	l := s.loans[id]
	if l == nil || l.holder != h {
		s.mu.Unlock()
		return
	}
	s.count.Returned++
	if len(l.regions) > 0 { // transfers may run
		s.applySoonLocked(l, lease.OnReturned)
		s.mu.Unlock()
		return
	}
	free := s.applyLocked(l, lease.OnReturned)
	s.mu.Unlock()
	free() // a loan that is in the table has not ended
}

// endUndelivered ends a loan whose grant did not reach the holder.
func (s *Server) endUndelivered(l *loan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applySoonLocked(l, lease.OnReturned)
}

// renewLoan notes that the borrower of a loan lives. It returns false if there is no such loan.
func (s *Server) renewLoan(h holder, id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.loans[id]
	if l == nil || l.holder != h {
		return false
	}
	l.renewed = time.Now()
	s.lookLaterLocked(l, l.renewed)
	return true
}

// dropLocked ends all loans of a holder that has ended. The server's lock is held.
//
// +checklocks:s.mu
func (s *Server) dropLocked(h holder) {
	for _, l := range s.loans {
		if l.holder == h {
			s.count.Dropped++
			s.applySoonLocked(l, lease.OnLost)
		}
	}
}

// removeLocked takes a loan out of the table. The function that it returns takes the memory
// back: nobody reads or writes it afterwards, whoever still has a descriptor of it. The server's
// lock is held now, and must not be held by the caller of that function.
//
// +checklocks:s.mu
func (s *Server) removeLocked(l *loan) func() {
	delete(s.loans, l.id)
	l.timer.Stop()
	fd := l.fd
	s.returning += l.size
	return func() {
		l.exported.close()
		_ = unix.Ftruncate(fd, 0) // it is sealed against growing alone
		_ = unix.Close(fd)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lent -= l.size
		s.returning -= l.size
		close(s.freed)
		s.freed = make(chan struct{})
	}
}

// Revoke asks for the loans for which want is true. Those that are not returned within the time
// are taken. It returns how many it has asked for.
func (s *Server) Revoke(want func(Lease) bool, within time.Duration) (n int) {
	if within == 0 {
		within = s.cfg.Revoke
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.loans {
		if l.May(lease.OnWanted) && want(l.describeLease()) {
			s.count.Revoked++
			s.revokeLocked(l, wire.StatusRevoked, within)
			n++
		}
	}
	return n
}

// loanFd returns another descriptor of the memory of a loan, which the caller closes.
func (s *Server) loanFd(l *loan) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.Ended() {
		return -1, fabric.ErrClosed
	}
	return unix.FcntlInt(uintptr(l.fd), unix.F_DUPFD_CLOEXEC, 0)
}
