package atu

import "exnet/fabric"

// Table is a table of pages in which peers look up addresses themselves, as the NIC does in a
// GAT (thesis 3.2.5). It has an entry for each page of 4 KB. A region may begin and end within a
// page.
type Table interface {
	// GAT returns the index of the GAT for a VPID's regions.
	GAT(vpid fabric.VPID) int

	// Show adds entries for n bytes at off in the arena as nla, with the rights of vpid.
	Show(nla NLA, off, n int, vpid fabric.VPID, l Loan)

	// Withdraw removes the entries. While a peer's operation runs, it changes nothing and returns
	// false.
	Withdraw(nla NLA, n int, vpid fabric.VPID) bool

	// Reclaim ends the access of peers of a VPID whose operations do not end.
	Reclaim(vpid fabric.VPID)
}

// Loan says which nodes a region is lent to, and for which access.
type Loan struct {
	All    bool
	Node   fabric.NodeID // unless All
	Access Access
}

// firstOffset returns where in its first page a region begins: a page list begins with its data,
// and with a table any other region begins at its memory's offset in the page.
func (t *ATU) firstOffset(r *Region) int {
	if t.table == nil || r.view != nil {
		return r.first
	}
	off, _ := r.arenaOffset() // memory outside the arena is never lent
	return off % PageSize
}

// isReachable reports whether peers can use the region.
func (r *Region) isReachable() bool {
	if r.atu.table == nil {
		return true
	}
	_, ok := r.arenaOffset()
	return ok && r.dev == nil
}

// enterLocked adds a region that has been lent to the table, if there is one.
//
// +checklocks:r.loanMu
func (r *Region) enterLocked(nla NLA, l Loan) {
	if r.atu.table == nil {
		return
	}
	off, _ := r.arenaOffset() // reachable
	l.Access = r.access
	r.atu.table.Show(nla, off, r.size, r.vpid, l)
	r.tabled, r.shown = true, nla
}

// reclaimLocked takes the region from peers that do not end their operations on it.
//
// +checklocks:r.loanMu
func (r *Region) reclaimLocked() {
	if r.tabled {
		r.atu.table.Reclaim(r.vpid)
		return
	}
	r.book.Reclaim(r.mem)
}
