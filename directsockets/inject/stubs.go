//go:build amd64 || arm64

package inject

// stubs are code that the program runs once, its table, and a stub for each place of C.
type stubs struct {
	at         uint64 // of b
	b          []byte
	table      uint64
	low, pages uint64    // of the text: what changes
	jumps      []written // in the order in which they take effect
	moves      moves
}

// written is a jump and where it is written.
type written struct {
	at uint64
	b  []byte
}
