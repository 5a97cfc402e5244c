package address

import (
	"fmt"
	"sync"

	"exnet/fabric"
)

// Memory is the memory of a partition, such as a memory.Segment. Its methods may be called from
// many goroutines.
type Memory interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	Len() int64
}

// Space is memory of several nodes that is found by global addresses. The zero value is empty.
//
// Concurrency: all methods may be called from many goroutines.
type Space struct {
	mu         sync.RWMutex
	partitions map[uint32]Memory // +checklocks:mu
}

// Map makes a memory a partition; nil: the partition is empty.
func (s *Space) Map(partition uint32, m Memory) error {
	if _, err := MakeGlobal(partition, 0); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.partitions == nil {
		s.partitions = make(map[uint32]Memory)
	}
	if m == nil {
		delete(s.partitions, partition)
		return nil
	}
	s.partitions[partition] = m
	return nil
}

// memoryAt returns the memory of n bytes from g on.
func (s *Space) memoryAt(g Global, n int) (Memory, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m := s.partitions[g.Partition()]
	if m == nil {
		return nil, fmt.Errorf("address: %v: the partition is empty: %w", g, fabric.ErrProtection)
	}
	if size := uint64(m.Len()); uint64(n) > size || g.Offset() > size-uint64(n) {
		return nil, fmt.Errorf("address: %d bytes at %v, of a partition of %d: %w", n, g, size, fabric.ErrProtection)
	}
	return m, nil
}

// Read reads all of p from g on. The error wraps fabric.ErrProtection if that is not all in one
// partition, or is that of the memory.
func (s *Space) Read(p []byte, g Global) error {
	m, err := s.memoryAt(g, len(p))
	if err == nil {
		_, err = m.ReadAt(p, int64(g.Offset()))
	}
	return err
}

// Write writes p to g. Its errors are those of Read.
func (s *Space) Write(p []byte, g Global) error {
	m, err := s.memoryAt(g, len(p))
	if err == nil {
		_, err = m.WriteAt(p, int64(g.Offset()))
	}
	return err
}
