package foreign

import (
	"encoding/binary"
	"io"

	_ "exnet/internal/linux"
	"exnet/internal/readhook"
)

// Memory is a run of bytes that somebody else may write at any time. The zero value
// is empty.
type Memory struct{ mem []byte }

// Of marks mem as foreign. Its owner does not look at it in another way as long as
// the Memory is in use.
func Of(mem []byte) Memory { return Memory{mem[:len(mem):len(mem)]} }

// Len returns the number of bytes, which nobody else can change.
func (m Memory) Len() int { return len(m.mem) }

// Part returns the n bytes from off on. It panics if they are not within m.
func (m Memory) Part(off, n int) Memory { return Memory{m.mem[off : off+n : off+n]} }

// CopyTo copies to p what fits, and returns how many bytes that is. Each byte is
// read once.
func (m Memory) CopyTo(p []byte) int {
	if readhook.On() {
		return m.copyTold(p)
	}
	return copy(p, m.mem)
}

// copyTold is CopyTo while reads are told. It is not inlined, so that CopyTo is.
//
//go:noinline
func (m Memory) copyTold(p []byte) int {
	n := copy(p, m.mem)
	readhook.Read(m.mem, n)
	return n
}

// AppendTo appends all of m to p. Each byte is read once.
func (m Memory) AppendTo(p []byte) []byte {
	p = append(p, m.mem...)
	if readhook.On() {
		readhook.Read(m.mem, len(m.mem))
	}
	return p
}

// Fill writes p to the beginning of m, and returns how many bytes fitted. It is for
// memory that this side may write, too.
func (m Memory) Fill(p []byte) int { return copy(m.mem, p) }

// PutUint32 writes v at off, little endian.
func (m Memory) PutUint32(off int, v uint32) { binary.LittleEndian.PutUint32(m.mem[off:], v) }

// PutUint64 writes v at off, little endian.
func (m Memory) PutUint64(off int, v uint64) { binary.LittleEndian.PutUint64(m.mem[off:], v) }

// FillFrom has r read into m, once. r has to be of a kind that looks at nothing that
// it has put there, as a file, a socket or a bytes.Reader.
func (m Memory) FillFrom(r io.Reader) (int, error) { return r.Read(m.mem) }

// Drain has w write m, once. w has to be of a kind that reads each byte once and
// decides nothing by it, as a file, a socket or a bytes.Buffer.
func (m Memory) Drain(w io.Writer) (int, error) {
	n, err := w.Write(m.mem)
	if readhook.On() {
		readhook.Read(m.mem, n)
	}
	return n, err
}
