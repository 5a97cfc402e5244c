package atu

import (
	"errors"
	"fmt"
	"sync"

	"exnet/fabric"
	"exnet/internal/shm"
)

// ArenaSize is how much memory Alloc lends at most, in bytes. A page takes memory only
// when it is used.
const ArenaSize = 256 << 20

// memory is the arena of a NIC, made when it is first used.
type memory struct {
	mu     sync.Mutex // taken last
	arena  *shm.Arena // guarded by mu
	closed bool       // guarded by mu
}

// Arena returns the memory that Alloc lends from, for links that share it with peers.
// Peers can read all of it.
func (t *ATU) Arena() (*shm.Arena, error) {
	m := &t.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("atu: arena: %w", fabric.ErrClosed)
	}
	if m.arena == nil {
		a, err := shm.NewArena(fmt.Sprintf("exnet-arena-%d", t.self), ArenaSize)
		if err != nil {
			return nil, fmt.Errorf("atu: arena: %w", err)
		}
		m.arena = a
	}
	return m.arena, nil
}

// Share makes a the NIC's memory, which peers write and read themselves, as table permits. Call it
// first, and do not open books afterwards. Only memory of Alloc can be lent then.
func (t *ATU) Share(a *shm.Arena, table Table) {
	t.memory.mu.Lock()
	defer t.memory.mu.Unlock()
	t.memory.arena, t.table = a, table
}

// Alloc lends n bytes of memory until Free, at a page boundary. Use it for regions
// that peers read: a link between processes reads this memory in place, and must copy
// any other. The error wraps fabric.ErrAgain if not enough is left.
func (t *ATU) Alloc(n int) ([]byte, error) {
	a, err := t.Arena()
	if err != nil {
		return nil, err
	}
	b, err := a.Alloc(n)
	if errors.Is(err, shm.ErrFull) {
		return nil, fmt.Errorf("atu: alloc %d bytes: %w", n, fabric.ErrAgain)
	}
	return b, err
}

// Free returns memory of Alloc, whose regions must be closed.
func (t *ATU) Free(b []byte) {
	m := &t.memory
	m.mu.Lock()
	a := m.arena
	m.mu.Unlock()
	a.Free(b)
}

// CloseArena closes the arena's descriptor: no link can pass it to a peer any more.
// Allocated memory stays valid.
func (t *ATU) CloseArena() {
	m := &t.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.arena != nil {
		m.arena.CloseFd()
	}
}
