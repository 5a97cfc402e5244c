package wire

import (
	"exnet/fabric"
	"exnet/fabric/atu"
)

// The memory of an RMA port: SPEC.md 4. It is sparse: untouched pages cost nothing.
const (
	TableSize  = atu.PagesPerGAT * 8 // an entry of 8 bytes for each page
	ArenaOff   = 2 << 20             // of the pages, after the locks
	MemorySize = ArenaOff + atu.MaxRegion
	PageSize   = 4096
	WindowOff  = 1 << 20 // of what a node writes to pages in their place, or has read there
	WindowSize = 1 << 20
)

// Where things are in a flow: SPEC.md 2.
const (
	FlowHeader = 4096 // bytes before the slots
	FlowTail   = 128  // what the writer has written
	FlowHead   = 256  // what the reader has consumed
	FlowArmed  = 384  // the reader sleeps
	FlowBusy   = 512  // operations of the writer that run on memory with a generation
	FlowOwn    = 520  // a far port's flow: operations of the reader that its node carries out
	Phase      = 1 << 63
)

// Slots returns the number of slots of a unit's flows, and the size of one.
func Slots(u Unit) (n, size int) {
	if u == fabric.UnitRMA {
		return 4096, 32
	}
	return 128, 128
}

// Counters is where the process's counters begin in its page: SPEC.md 3.
const Counters = 128

// The counters, by their place.
const (
	CounterSent = iota
	CounterReceived
	CounterPut
	CounterGot
	CounterWaits
	CounterErrors
	CounterRegistered
)

// FirstVPID is the lowest VPID of a process. The node keeps those below for itself.
const FirstVPID fabric.VPID = 32

// gat is the index of the first address table of a port, above those of a node's own regions.
const gat = 512

// GAT returns the index of a port's address table.
func GAT(v fabric.VPID) int { return gat + int(v) }

// Base returns the first network logical address of a port.
func Base(v fabric.VPID) uint64 { return uint64(GAT(v)) << 30 }

// Entry is an entry of a port's table: what is behind a page of its addresses. 0: nothing.
//
//	 63            40 39  38 37   36   35      20 19  18              0
//	┌────────────────┬──────┬────┬────┬──────────┬────┬────────────────┐
//	│ generation  24 │ res. │ !W │ !R │ node  16 │one │ page + 1    19 │
//	└────────────────┴──────┴────┴────┴──────────┴────┴────────────────┘
type Entry uint64

// The fields of an Entry.
const (
	entryPages    = 1<<19 - 1
	entryOne      = 1 << 19
	entryNode     = 20
	entryNoRead   = 1 << 36
	entryNoWrite  = 1 << 37
	entryGenShift = 40
)

// An entry for a page that stays in the program's own memory, for the node to read and write. Its
// other fields hold the number of the page.
const (
	entryInPlace   = 1 << 39
	entryPlaceLow  = 19
	entryPlaceHigh = 40
)

// Place returns the address in its program of a page that stays there. It returns false for other
// pages.
func (e Entry) Place() (address uint64, ok bool) {
	page := uint64(e)>>entryPlaceLow&(1<<20-1) | uint64(e)>>entryPlaceHigh&(1<<16-1)<<20
	return page * PageSize, e&(entryInPlace|entryPages) == entryInPlace
}

// MakeEntry returns the entry of a page of the port's memory in a region that was lent as nla,
// with access a, to one node or (if one is false) to all. The pages of a region are consecutive,
// and so are their entries.
func MakeEntry(nla atu.NLA, page int, a atu.Access, one bool, node fabric.NodeID) Entry {
	e := Entry(page+1) | Entry(nla.Generation())<<entryGenShift
	if one {
		e |= entryOne | Entry(node)<<entryNode
	}
	if a&atu.Read == 0 {
		e |= entryNoRead
	}
	if a&atu.Write == 0 {
		e |= entryNoWrite
	}
	return e
}

// Page returns the page of the port's memory. It returns false if there is none, or if the node
// from may not use it with the address nla and the access a.
func (e Entry) Page(nla atu.NLA, a atu.Access, from fabric.NodeID) (page int, ok bool) {
	page = int(e&entryPages) - 1
	switch {
	case page < 0 || page >= atu.PagesPerGAT,
		uint32(e>>entryGenShift) != nla.Generation(),
		a&atu.Read != 0 && e&entryNoRead != 0,
		a&atu.Write != 0 && e&entryNoWrite != 0,
		e&entryOne != 0 && fabric.NodeID(e>>entryNode) != from:
		return 0, false
	}
	return page, true
}
