package attach

import (
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link/attach/wire"
)

// loan is a region that peers may use.
type loan struct {
	off, n int // in the arena
	vpid   fabric.VPID
	atu.Loan
}

// withdrawWait is how long Withdraw waits for operations that run: of most they take less.
const withdrawWait = 100 * time.Microsecond

// GAT implements atu.Table.
func (l *Link) GAT(v fabric.VPID) int { return wire.GAT(v) }

// Show implements atu.Table.
func (l *Link) Show(nla atu.NLA, off, n int, v fabric.VPID, to atu.Loan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := loan{off, n, v, to}
	l.lent[nla] = x
	if p := l.ports[key{fabric.UnitRMA, v}]; p != nil {
		p.showRegion(nla, x)
	}
}

// Withdraw implements atu.Table.
func (l *Link) Withdraw(nla atu.NLA, n int, v fabric.VPID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	x, ok := l.lent[nla]
	if !ok {
		return true
	}
	if p := l.ports[key{fabric.UnitRMA, v}]; p != nil {
		p.clearRegion(nla, n)
		for begun := time.Now(); p.inUse(); {
			if time.Since(begun) > withdrawWait {
				p.showRegion(nla, x)
				return false
			}
		}
	}
	delete(l.lent, nla)
	return true
}

// Reclaim implements atu.Table: peers that do not come to an end lose the port.
func (l *Link) Reclaim(v fabric.VPID) { l.Shut(fabric.UnitRMA, v) }

// pages are the entries of n bytes from nla on.
func pages(nla atu.NLA, n int) (first, count int) {
	return nla.Page(), (nla.Offset() + n + atu.PageSize - 1) / atu.PageSize
}

// showRegion enters a region in the port's table. The link's lock is held.
func (p *port) showRegion(nla atu.NLA, x loan) {
	first, count := pages(nla, x.n)
	file := (x.off - wire.ArenaOff) / atu.PageSize
	table := p.table.Memory().Words(8*first, count)
	for i := range table {
		table[i].Store(uint64(wire.MakeEntry(nla, file+i, x.Access, !x.All, x.Node)))
	}
	p.addCount(wire.CounterRegistered, uint64(count)*atu.PageSize)
}

// clearRegion takes a region out of the port's table. The link's lock is held.
func (p *port) clearRegion(nla atu.NLA, n int) {
	first, count := pages(nla, n)
	table := p.table.Memory().Words(8*first, count)
	for i := range table {
		table[i].Store(0)
	}
	p.addCount(wire.CounterRegistered, -uint64(count)*atu.PageSize)
}

// inUse says whether a peer's operation runs on memory of the port.
func (p *port) inUse() bool {
	for _, f := range *p.in.Load() {
		if !f.gone.Load() && words(f.memory.Memory(), wire.FlowBusy).Load() != 0 {
			return true
		}
	}
	return false
}
