package route

import (
	"iter"
	"sync"
	"sync/atomic"

	"exnet/fabric"
)

// NodeMap maps node IDs to pointers by two array lookups: the global table of
// segments, then the local table of the segment. Local tables are made on first
// use. The zero NodeMap is empty.
//
// Concurrency: Load may be called at any time and takes no lock. The other
// methods take one.
type NodeMap[T any] struct {
	global [fabric.Segments]atomic.Pointer[localTable[T]]
	mu     sync.Mutex
}

type localTable[T any] [fabric.NodesPerSegment]atomic.Pointer[T]

// Load returns n's entry or nil.
func (m *NodeMap[T]) Load(n fabric.NodeID) *T {
	l := m.global[n.Segment()].Load()
	if l == nil {
		return nil
	}
	return l[n.Local()].Load()
}

// Store sets n's entry; nil removes it.
func (m *NodeMap[T]) Store(n fabric.NodeID, v *T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.global[n.Segment()].Load()
	if l == nil {
		if v == nil {
			return
		}
		l = new(localTable[T])
		m.global[n.Segment()].Store(l)
	}
	l[n.Local()].Store(v)
}

// All yields the entries that are not nil, in the order of node IDs.
func (m *NodeMap[T]) All() iter.Seq2[fabric.NodeID, *T] {
	return func(yield func(fabric.NodeID, *T) bool) {
		for s := range m.global {
			l := m.global[s].Load()
			if l == nil {
				continue
			}
			for i := range l {
				v := l[i].Load()
				if v != nil && !yield(fabric.NodeID(s*fabric.NodesPerSegment+i), v) {
					return
				}
			}
		}
	}
}
