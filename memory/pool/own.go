package pool

import (
	"time"

	"exnet/memory/wire"
)

// own is this node as the lender of its own processes, and as the holder of what they have.
type own struct {
	s    *Server
	list map[uint64]*borrower // by loan; belongs to the server's lock
}

var (
	_ lender = (*own)(nil)
	_ holder = (*own)(nil)
)

// lendMemory implements lender.
func (o *own) lendMemory(b *borrower, r request) (grant, wire.Message) {
	l, left, why := o.s.lendTo(o, r)
	if why != wire.StatusOK {
		return grant{}, wire.Message{Status: why, Node: o.s.cfg.Node, B: uint64(left)}
	}
	fd, err := o.s.loanFd(l)
	if err != nil {
		o.s.endUndelivered(l)
		return grant{}, wire.Message{Status: wire.StatusNoLender}
	}
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	o.list[l.id] = b
	g := grant{from: o, node: o.s.cfg.Node, id: l.id, size: l.size, until: l.until, fd: fd}
	o.s.grantedLocked(b, g)
	l.Answered()
	return g, wire.Message{}
}

// giveBack implements lender.
func (o *own) giveBack(id uint64) {
	o.s.giveBack(o, id)
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	delete(o.list, id)
}

// renewLease implements lender: the connection of the process says that it lives.
func (*own) renewLease(uint64) {}

// revokeLocked implements holder.
func (o *own) revokeLocked(id uint64, until time.Time) {
	if b := o.list[id]; b != nil {
		b.revokeLocked(until)
	}
}

// goneLocked implements holder.
func (o *own) goneLocked(id uint64, why wire.Status) {
	if b := o.list[id]; b != nil {
		b.goneLocked(why)
		delete(o.list, id)
	}
}
