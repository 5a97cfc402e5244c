package shm

import (
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
	"exnet/foreign"
	"exnet/internal/shm"
)

// A region that is lent to the peer is shown in the own segment, and the peer reads
// it without asking. What it reads it shows in its segment, so that the region is
// not taken back under it:
//
//	owner                        reader
//	─────                        ──────
//	loan := 0          (1)       read := address    (a)
//	look at read       (2)       look at loan       (b)
//	it is read: put loan back    it is gone: read := 0, ask with a request
//
// All are sequentially consistent, so that (2) sees (a) or (b) sees (1). A reader
// that dies or lies keeps nothing but what was lent to it, and that only until its
// link is down.

// loanIndex is where the region at a is shown. Regions that share a place with one
// that is shown are not.
func loanIndex(a atu.NLA) uint64 {
	page := uint64(a.GAT())<<18 | uint64(a.Page())
	return page * 0x9e3779b97f4a7c15 >> 54 // the upper 10 bits: Loans
}

// book shows the peer what is lent to it.
type book struct {
	l  *Link
	mu sync.Mutex
}

// Show implements atu.Book.
func (b *book) Show(nla atu.NLA, off, n int, vpid fabric.VPID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.l.near.loan[loanIndex(nla)*loanWords:][:loanWords]
	if e[loanNLA].Load() != 0 || b.l.down.Load() {
		return false
	}
	e[loanPlace].Store(uint64(off))
	e[loanSize].Store(uint64(n))
	e[loanVPID].Store(uint64(vpid))
	shm.Publish()
	e[loanNLA].Store(uint64(nla))
	return true
}

// Withdraw implements atu.Book. When the link is gone both segments are zero.
func (b *book) Withdraw(nla atu.NLA) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := loanIndex(nla)
	e := &b.l.near.loan[i*loanWords+loanNLA]
	e.Swap(0) // and no Store: see package shm
	if b.l.far.read[i].Load() == uint64(nla) {
		e.Store(uint64(nla))
		return false
	}
	shm.Observe()
	return true
}

// Reclaim implements atu.Book.
//
// +checklocksignore: it takes the defer in a loop for a leak
func (b *book) Reclaim(mem []byte) {
	l := b.l
	off, ok := l.arena.Offset(mem)
	if !ok {
		return
	}
	overlaps := func(at, n int) bool { return at < off+len(mem) && off < at+n }
	for i := range uint64(Loans) {
		e := l.near.loan[i*loanWords:][:loanWords]
		if overlaps(int(e[loanPlace].Load()), int(e[loanSize].Load())) && l.far.read[i].Load() != 0 {
			l.endByBreach("the peer does not release memory")
			return
		}
	}
	t := &l.serving
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, s := range t.lent {
		if t.state[i] != serveLent || s.lease == nil {
			continue
		}
		if at, ok := l.arena.Offset(s.lease.Bytes()); ok && overlaps(at, len(s.lease.Bytes())) {
			l.endByBreach("the peer does not release memory")
			return
		}
	}
}

// reading is how many GETs read each of the peer's loans.
type reading struct {
	mu    sync.Mutex
	users [Loans]uint32 // guarded by mu
}

// readLoan ends a GET at once, if the region is shown here. False: nothing
// happened, the peer has to be asked.
func (l *Link) readLoan(g *link.Get, s link.Sink) bool {
	i := loanIndex(g.Remote)
	e := l.far.loan[i*loanWords:][:loanWords]
	nla := atu.NLA(e[loanNLA].Load())
	// With messages waiting for space the peer must be asked, which bounds them.
	if nla == 0 || nla.Generation() != g.Remote.Generation() || l.down.Load() || l.out.starved.Load() {
		return false
	}
	if !l.reading.beginRead(l, i, nla) {
		return false
	}
	data, st := l.borrowLoaned(e, nla, g)
	if st != fabric.StatusOK {
		l.reading.endRead(l, i)
		return false
	}
	shm.Observe()
	l.count.direct.Add(1)
	l.moved.Add(uint64(g.Len))
	l.near.taken.Add(uint64(g.Len))
	_ = s.Data(0, data) // an error is the sink's, which remembers it for Done
	l.farArena.giveBack()
	shm.Publish()
	l.reading.endRead(l, i)
	if g.Notify {
		l.out.queueMessage(&message{
			kind: kindRead, from: g.From, to: g.To, flags: flagNotify, n: g.Len, remote: uint64(g.Remote),
		})
		l.ringLater()
	}
	s.Done(fabric.StatusOK)
	return true
}

// borrowLoaned borrows what g asks for of the loan e, if it still stands as nla.
func (l *Link) borrowLoaned(e []atomic.Uint64, nla atu.NLA, g *link.Get) (foreign.Memory, fabric.Status) {
	place, size := e[loanPlace].Load(), e[loanSize].Load()
	vpid := e[loanVPID].Load()
	off := uint64(g.Remote - nla)
	if e[loanNLA].Load() != uint64(nla) || vpid != uint64(g.To) || g.Remote < nla ||
		off > size || uint64(g.Len) > size-off || place+off < place {
		return foreign.Memory{}, fabric.StatusProtection
	}
	return l.farArena.borrowBytes(place+off, g.Len)
}

// beginRead shows that the loan at i is read as nla. It returns false if it is read
// under another address, which is going out of date.
func (r *reading) beginRead(l *Link, i uint64, nla atu.NLA) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := &l.near.read[i]; r.users[i] == 0 {
		w.Swap(uint64(nla)) // and no Store: see package shm
	} else if w.Load() != uint64(nla) {
		return false
	}
	r.users[i]++
	return true
}

func (r *reading) endRead(l *Link, i uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users[i]--; r.users[i] == 0 {
		l.near.read[i].Store(0)
	}
}
