package atu

import (
	"errors"
	"fmt"
	"sync"

	"exnet/fabric"
	"exnet/internal/shm"
)

// ArenaSize is how much memory Alloc hands out at the most. It costs addresses
// only, and memory page by page when it is used.
const ArenaSize = 256 << 20

// memory is the arena of a NIC, made when it is first used.
type memory struct {
	mu     sync.Mutex // taken last
	arena  *shm.Arena // guarded by mu
	closed bool       // guarded by mu
}

// Arena returns the memory that Alloc hands out, for links that share it with
// peers. Peers can read all of it.
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

// Share has the NIC's memory be in a, which peers write and read by themselves, as table says. It
// comes before anything else; nobody opens books then. Only memory of Alloc can be lent.
func (t *ATU) Share(a *shm.Arena, table Table) {
	t.memory.mu.Lock()
	defer t.memory.mu.Unlock()
	t.memory.arena, t.table = a, table
}

// Alloc lends n bytes of memory until Free, at a page boundary. Memory of a
// region that peers read is best taken from here: a link between processes reads
// it in place, and has to copy any other. ErrAgain: there is not enough left.
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

// Free takes back what Alloc lent; the regions on it are closed.
func (t *ATU) Free(b []byte) {
	m := &t.memory
	m.mu.Lock()
	a := m.arena
	m.mu.Unlock()
	a.Free(b)
}

// CloseArena closes the arena's descriptor: no link can hand it over any more.
// What was allocated stays valid.
func (t *ATU) CloseArena() {
	m := &t.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.arena != nil {
		m.arena.CloseFd()
	}
}
