package atu

import "exnet/fabric"

// Table is a table of pages in which peers look up addresses by themselves, as the NIC does in a
// GAT (thesis 3.2.5): an entry for each page of 4 KB, the first of which may be used from an offset
// on, and the last in part.
type Table interface {
	// GAT is the table of a VPID's regions.
	GAT(vpid fabric.VPID) int

	// Show enters n bytes at off in the arena as nla, with the rights of vpid.
	Show(nla NLA, off, n int, vpid fabric.VPID, l Loan)

	// Withdraw takes an entry out. It returns false, and changes nothing, while a peer's operation
	// runs.
	Withdraw(nla NLA, n int, vpid fabric.VPID) bool

	// Reclaim ends what peers of a VPID that do not come to an end could do.
	Reclaim(vpid fabric.VPID)
}

// Loan says to whom a region is lent, and for what.
type Loan struct {
	All    bool
	Node   fabric.NodeID // unless All
	Access Access
}

// firstOffset is where in its first page a region begins: that of a page list where its data does,
// and with a table another where its memory does.
func (t *ATU) firstOffset(r *Region) int {
	if t.table == nil || r.view != nil {
		return r.first
	}
	off, _ := r.arenaOffset() // the rest is not lent
	return off % PageSize
}

// reachable says whether peers could use the region.
func (r *Region) reachable() bool {
	if r.atu.table == nil {
		return true
	}
	_, ok := r.arenaOffset()
	return ok && r.dev == nil
}

// enterLocked enters a region that has been lent in the table, if there is one.
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

// reclaimLocked has peers that do not let go of the region lose it.
//
// +checklocks:r.loanMu
func (r *Region) reclaimLocked() {
	if r.tabled {
		r.atu.table.Reclaim(r.vpid)
		return
	}
	r.book.Reclaim(r.mem)
}
