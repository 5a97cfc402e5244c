package atu

import (
	"maps"

	"exnet/fabric"
)

// Book shows a link's peer the regions that are lent to it, which the peer can then
// read without a request. It is for links whose peer can read the arena.
type Book interface {
	// Show adds an entry for n bytes at off in the arena, lent under the address nla
	// with the rights of vpid. It returns false if there is no room; the peer then
	// sends a request.
	Show(nla NLA, off, n int, vpid fabric.VPID) bool

	// Withdraw removes an entry. While the peer reads, it returns false, and the
	// entry stays valid for the peer.
	Withdraw(nla NLA) bool

	// Reclaim takes the link down if the peer reads any of mem.
	Reclaim(mem []byte)
}

// OpenBook shows in b the regions that are lent to the node n from now on.
func (t *ATU) OpenBook(n fabric.NodeID, b Book) {
	t.changeBooks(func(m map[fabric.NodeID]Book) { m[n] = b })
}

// CloseBook undoes OpenBook. The book must still answer Withdraw for regions that are
// in it.
func (t *ATU) CloseBook(n fabric.NodeID, b Book) {
	t.changeBooks(func(m map[fabric.NodeID]Book) {
		if m[n] == b {
			delete(m, n)
		}
	})
}

func (t *ATU) changeBooks(f func(map[fabric.NodeID]Book)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := make(map[fabric.NodeID]Book)
	if old := t.books.Load(); old != nil {
		maps.Copy(m, *old)
	}
	f(m)
	t.books.Store(&m)
}

// showLocked shows the region in the book of the node that it is lent to.
//
// +checklocks:r.loanMu
func (r *Region) showLocked(to fabric.NodeID, nla NLA) {
	books := r.atu.books.Load()
	if books == nil || r.dev != nil || r.access&Read == 0 {
		return
	}
	b := (*books)[to]
	if b == nil {
		return
	}
	if off, ok := r.arenaOffset(); ok && b.Show(nla, off, r.size, r.vpid) {
		r.book, r.shown = b, nla
	}
}

// withdrawLocked removes the region from its book. It returns false while a peer
// reads.
//
// +checklocks:r.loanMu
func (r *Region) withdrawLocked() bool {
	if r.book != nil {
		if !r.book.Withdraw(r.shown) {
			return false
		}
		r.book = nil
	}
	if r.tabled {
		if !r.atu.table.Withdraw(r.shown, r.size, r.vpid) {
			return false
		}
		r.tabled = false
	}
	return true
}

func (r *Region) arenaOffset() (int, bool) {
	m := &r.atu.memory
	m.mu.Lock()
	a := m.arena
	m.mu.Unlock()
	if a == nil {
		return 0, false
	}
	return a.Offset(r.mem)
}
