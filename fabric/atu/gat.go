package atu

import (
	"slices"
	"sync/atomic"
)

// A GAT is emulated by two levels of 512 entries, so tables exist only where
// something is registered. An entry of the upper level covers 2 MB: it maps a 2 MB
// page of one region, or leads to 512 entries for 4 KB pages. The other page sizes
// (8 KB, 64 KB, 1 GB) are runs of equal entries.
const (
	leafBits   = 9
	leafPages  = 1 << leafBits // pages of 4 KB in one of 2 MB
	upperSlots = PagesPerGAT / leafPages
)

type gat [upperSlots]atomic.Pointer[block]

type block struct {
	large *Region // maps the whole block, or nil
	pages *[leafPages]atomic.Pointer[Region]
}

// regionAt returns the region that the page of a is mapped to, or nil.
func (t *ATU) regionAt(a NLA) *Region {
	g := t.gats[a.GAT()].Load()
	if g == nil {
		return nil
	}
	page := a.Page()
	b := g[page>>leafBits].Load()
	switch {
	case b == nil:
		return nil
	case b.large != nil:
		return b.large
	}
	return b.pages[page&(leafPages-1)].Load()
}

// mapLocked adds r's pages to the tables.
//
// +checklocks:t.mu
func (t *ATU) mapLocked(r *Region) {
	g := t.gats[r.base.GAT()].Load()
	if g == nil {
		g = new(gat)
		t.gats[r.base.GAT()].Store(g)
	}
	large := &block{large: r}
	for page, end := r.base.Page(), r.base.Page()+r.pages; page < end; {
		slot := &g[page>>leafBits]
		if page%leafPages == 0 && end-page >= leafPages {
			slot.Store(large)
			page += leafPages
			continue
		}
		b := slot.Load()
		if b == nil {
			b = &block{pages: new([leafPages]atomic.Pointer[Region])}
			slot.Store(b)
		}
		b.pages[page%leafPages].Store(r)
		page++
	}
}

// unmapLocked removes r's pages from the tables and frees the addresses.
//
// +checklocks:t.mu
func (t *ATU) unmapLocked(r *Region) {
	g := t.gats[r.base.GAT()].Load()
	for page, end := r.base.Page(), r.base.Page()+r.pages; page < end; {
		slot := &g[page>>leafBits]
		b := slot.Load()
		if b.large != nil {
			slot.Store(nil)
			page += leafPages
			continue
		}
		b.pages[page%leafPages].Store(nil)
		page++
	}
	t.freeLocked(r.base.GAT(), extent{r.base.Page(), r.pages})
}

// extent is a run of free pages of a GAT; a free list is sorted and merged.
type extent struct{ page, n int }

// allocLocked finds n pages in a row in the GATs [from, to), first fit. Regions of 2 MB and more
// start at a 2 MB boundary.
//
// +checklocks:t.mu
func (t *ATU) allocLocked(from, to, n int) (gat, page int, ok bool) {
	align := 1
	if n >= leafPages {
		align = leafPages
	}
	for gat = from; gat < to; gat++ {
		for gat >= len(t.free) {
			t.free = append(t.free, []extent{{0, PagesPerGAT}})
		}
		for i, e := range t.free[gat] {
			page = (e.page + align - 1) &^ (align - 1)
			if page+n > e.page+e.n {
				continue
			}
			rest := make([]extent, 0, 2)
			if page > e.page {
				rest = append(rest, extent{e.page, page - e.page})
			}
			if end := e.page + e.n; page+n < end {
				rest = append(rest, extent{page + n, end - page - n})
			}
			t.free[gat] = slices.Replace(t.free[gat], i, i+1, rest...)
			return gat, page, true
		}
	}
	return 0, 0, false
}

// +checklocks:t.mu
func (t *ATU) freeLocked(gat int, e extent) {
	list := t.free[gat]
	i, _ := slices.BinarySearchFunc(list, e.page, func(x extent, page int) int { return x.page - page })
	if i < len(list) && e.page+e.n == list[i].page {
		e.n += list[i].n
		list = slices.Delete(list, i, i+1)
	}
	if i > 0 && list[i-1].page+list[i-1].n == e.page {
		list[i-1].n += e.n
	} else {
		list = slices.Insert(list, i, e)
	}
	t.free[gat] = list
}
