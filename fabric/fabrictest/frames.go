package fabrictest

import (
	"sync"
	"testing"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/foreign"
)

// Frame is a frame that a node has received. O is its offload metadata (exteth.Offload, which this
// package cannot import: exteth's own tests use it).
type Frame[O any] struct {
	Src   fabric.NodeID
	Off   O
	Bytes []byte
}

// Frames keeps the frames that a node receives. The zero value is ready.
//
// Concurrency: all methods may be called from many goroutines.
type Frames[O any] struct {
	mu   sync.Mutex
	kept []Frame[O] // guarded by mu
}

// Keep copies a frame.
func (f *Frames[O]) Keep(src fabric.NodeID, off O, frame foreign.Frame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, Frame[O]{src, off, frame.AppendTo(nil)})
}

// Take returns the frames that were kept since the last call.
func (f *Frames[O]) Take() []Frame[O] {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.kept
	f.kept = nil
	return kept
}

// Len is how many frames Take would return.
func (f *Frames[O]) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.kept)
}

// Join adds a NIC to a fabric, whose way to its peers goes through wrap if that is not nil. It
// returns the NIC, and what the fabric has of it.
func Join(tb testing.TB, f *mem.Fabric, id fabric.NodeID, wrap func(link.Port) link.Port) (*nic.NIC, mem.NIC) {
	tb.Helper()
	card := NewNIC(tb, id)
	var at mem.NIC = card
	if wrap != nil {
		at = &Wrapped{NIC: card, Wrap: wrap}
	}
	if err := f.Attach(at); err != nil {
		tb.Fatal(err)
	}
	return card, at
}
