package atu

import "fmt"

// NLA is a network logical address:
//
//	 63            40 39       30 29            12 11         0
//	┌────────────────┬───────────┬────────────────┬────────────┐
//	│ generation  24 │ GAT    10 │ page        18 │ offset  12 │
//	└────────────────┴───────────┴────────────────┴────────────┘
//
// GAT index and page come from the thesis (3.2.5); the generation is an addition of
// exnet in the remaining bits. Arithmetic inside a region is ordinary addition: it never
// carries into the generation, because a region does not leave its GAT.
type NLA uint64

// Widths and positions of the fields of an NLA.
const (
	offsetBits = 12
	pageBits   = 18
	gatBits    = 10
	genBits    = 24

	pageShift = offsetBits
	gatShift  = pageShift + pageBits
	genShift  = gatShift + gatBits
)

const (
	// PageSize is the smallest network logical page, 4 KB.
	PageSize = 1 << offsetBits
	// PagesPerGAT is how many pages one GAT maps.
	PagesPerGAT = 1 << pageBits
	// GATs is how many GATs an ATU has.
	GATs = 1 << gatBits
	// MaxRegion is the largest region: one GAT full of 4 KB pages.
	MaxRegion = PageSize * PagesPerGAT

	addrMask NLA = 1<<genShift - 1
	genMask      = 1<<genBits - 1
)

// Offset is the address inside its page.
func (a NLA) Offset() int { return int(a & (PageSize - 1)) }

// Page is the index of the page in its GAT.
func (a NLA) Page() int { return int(a >> pageShift & (PagesPerGAT - 1)) }

// GAT is the index of the global address table.
func (a NLA) GAT() int { return int(a >> gatShift & (GATs - 1)) }

// Generation is the incarnation of the region that the address belongs to.
func (a NLA) Generation() uint32 { return uint32(a >> genShift) }

// String returns gat:page+offset@generation in hexadecimal.
func (a NLA) String() string {
	return fmt.Sprintf("%x:%x+%x@%x", a.GAT(), a.Page(), a.Offset(), a.Generation())
}

// makeNLA returns the address of a page, generation 0. The arguments must be in range.
func makeNLA(gat, page int) NLA {
	return NLA(gat)<<gatShift | NLA(page)<<pageShift
}
