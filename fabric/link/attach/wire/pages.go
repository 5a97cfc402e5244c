package wire

import (
	"encoding/binary"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/foreign"
)

// Memory is the memory of an RMA port with its table: SPEC.md 4.
type Memory struct {
	VPID   fabric.VPID
	Table  foreign.Memory
	Memory foreign.Memory
}

// Each calls f in order for the pieces of n bytes at a that the node from may use; off is the
// offset of the piece. It returns false if the node may not use all of them, in which case it
// does not call f, or if the owner took them back meanwhile.
func (m Memory) Each(a atu.NLA, n int, access atu.Access, from fabric.NodeID, f func(off int, piece foreign.Memory) error) (bool, error) {
	const mask = 1<<40 - 1
	start := uint64(a)&mask - Base(m.VPID)
	if n < 0 || start >= atu.MaxRegion || uint64(n) > atu.MaxRegion-start {
		return false, nil
	}
	for off := 0; off < n; { // all of it first: a refused operation moves nothing
		piece, ok := m.pieceAt(a, int(start), off, n, access, from)
		if !ok {
			return false, nil
		}
		off += piece.Len()
	}
	for off := 0; off < n; {
		piece, ok := m.pieceAt(a, int(start), off, n, access, from)
		if !ok {
			return false, nil
		}
		if err := f(off, piece); err != nil {
			return true, err
		}
		off += piece.Len()
	}
	return true, nil
}

// pieceAt returns the piece that begins off bytes into the range: pages that follow one another.
func (m Memory) pieceAt(a atu.NLA, start, off, n int, access atu.Access, from fabric.NodeID) (foreign.Memory, bool) {
	table := m.Table.Words(0, atu.PagesPerGAT)
	at := start + off
	page, ok := Entry(table[at/atu.PageSize].Load()).Page(a, access, from)
	if !ok {
		return foreign.Memory{}, false
	}
	in := at % atu.PageSize
	run := min(n-off, atu.PageSize-in)
	for k := 1; run < n-off && page+k < atu.PagesPerGAT; k++ {
		p, ok := Entry(table[at/atu.PageSize+k].Load()).Page(a, access, from)
		if !ok || p != page+k {
			break
		}
		run = min(n-off, run+atu.PageSize)
	}
	return m.Memory.Part(ArenaOff+page*atu.PageSize+in, run), true
}

// FillInOrder writes to m what fits of p, and an aligned word at the end last: a reader that
// polls on it and sees it sees all the others.
func FillInOrder(m foreign.Memory, p []byte) {
	p = p[:min(len(p), m.Len())]
	if n := len(p); n >= 8 && (m.Addr()+uintptr(n))%8 == 0 {
		m.Fill(p[:n-8])
		m.Words(n-8, 1)[0].Store(binary.LittleEndian.Uint64(p[n-8:]))
		return
	}
	m.Fill(p)
}
