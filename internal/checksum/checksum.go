// Package checksum tells contents apart that nobody chooses: by 64 bits, almost as fast as memory
// is read, and without tables that a short-lived program would have to make first. It does not
// withstand a forger.
//
// Concurrency: all functions may be called from many goroutines.
package checksum

import (
	"encoding/binary"
	"math/bits"
)

// Of returns the checksum of b. Contents of one length that differ in eight bytes in a row, from a
// multiple of eight on, have different ones.
func Of(b []byte) uint64 { return Add(0, b) }

// Add returns the checksum of what sum is of and of b. The same contents in other pieces have
// another one.
func Add(sum uint64, b []byte) uint64 {
	sum = addWord(sum, uint64(len(b)))
	for ; len(b) >= 8; b = b[8:] {
		sum = addWord(sum, binary.LittleEndian.Uint64(b))
	}
	var last [8]byte
	copy(last[:], b)
	return addWord(sum, binary.LittleEndian.Uint64(last[:]))
}

// addWord adds a word as MurmurHash3 does to the first half of its state (Appleby, 2011). It can
// be undone for each word: so two sums that differ stay different.
func addWord(sum, word uint64) uint64 {
	word = bits.RotateLeft64(word*0x87c37b91114253d5, 31) * 0x4cf5ad432745937f
	return bits.RotateLeft64(sum^word, 27)*5 + 0x52dce729
}
