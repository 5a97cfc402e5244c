package pager

import (
	"errors"
	"fmt"
	"sync"

	"exnet/foreign"
)

// ErrFull says that a Store has no room although its size is not reached.
var ErrFull = errors.New("pager: the store has no room")

// Discarder is a Store that wants to hear what is needed no more.
type Discarder interface{ Discard(off, n int64) error }

// Viewer is a Store with content that is mapped in this process. View calls f with n bytes from
// off on, which others may write or cut meanwhile, or reports false.
type Viewer interface {
	View(off, n int64, f func(foreign.Memory)) bool
}

// Keeper is a Store that may hear that it has lost something before it is asked for it. Keeps
// reports whether n bytes from off on are still there, as far as it has heard.
type Keeper interface{ Keeps(off, n int64) bool }

// Store is where pages are that have no room here: a lease on another node's memory.
type Store interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	Close() error
}

// Memory returns a store in this process's own memory: the control of measurements.
func Memory(size int64) Store { return &memory{content: make([]byte, size)} }

type memory struct {
	mu      sync.RWMutex
	content []byte // nil: closed
}

var errClosed = errors.New("pager: the store is closed")

func (m *memory) ReadAt(p []byte, off int64) (int, error) { return m.accessAt(p, off, false) }

func (m *memory) WriteAt(p []byte, off int64) (int, error) { return m.accessAt(p, off, true) }

func (m *memory) accessAt(p []byte, off int64, write bool) (int, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch size := int64(len(m.content)); {
	case m.content == nil:
		return 0, errClosed
	case off < 0 || off > size || int64(len(p)) > size-off:
		return 0, fmt.Errorf("pager: %d bytes at %d of a store of %d", len(p), off, size)
	case write:
		return copy(m.content[off:], p), nil
	}
	return copy(p, m.content[off:]), nil
}

// View implements Viewer.
func (m *memory) View(off, n int64, f func(foreign.Memory)) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if off < 0 || n < 0 || off > int64(len(m.content)) || n > int64(len(m.content))-off {
		return false
	}
	f(foreign.Of(m.content[off : off+n]))
	return true
}

func (m *memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.content = nil
	return nil
}

// places are the store's pages: who has them, after forks more than one. Place 0 is none; place
// i is at (i-1)*pageSize.
type places struct {
	users []uint16 // by place; a place that would have too many is written twice
	next  uint32   // where the search for free ones begins
	free  int
	freed func(place uint32) // nil: nobody wants to know
}

func newPlaces(size int64) *places {
	n := int(size / pageSize)
	return &places{users: make([]uint16, n+1), next: 1, free: n}
}

// takeRow returns up to n free places in a row, the first and how many; 0 if the store is full.
func (s *places) takeRow(n int) (uint32, int) {
	if s.free == 0 {
		return 0, 0
	}
	for s.users[s.next] != 0 {
		s.nextPlace()
	}
	first, got := s.next, 0
	for got < n && int(s.next) < len(s.users) && s.users[s.next] == 0 {
		s.users[s.next] = 1
		s.next++
		got++
	}
	if int(s.next) == len(s.users) {
		s.next = 1
	}
	s.free -= got
	return first, got
}

func (s *places) nextPlace() {
	if s.next++; int(s.next) == len(s.users) {
		s.next = 1
	}
}

// addUser adds a user to a place. It reports false if that has as many as can be counted.
func (s *places) addUser(place uint32) bool {
	if s.users[place] == 1<<16-1 {
		return false
	}
	s.users[place]++
	return true
}

// hasOneUser reports whether a place has one user.
func (s *places) hasOneUser(place uint32) bool { return s.users[place] == 1 }

// endUse ends a use of a place.
func (s *places) endUse(place uint32) {
	if place == 0 {
		return
	}
	if s.users[place]--; s.users[place] == 0 {
		s.free++
		if s.freed != nil {
			s.freed(place)
		}
	}
}

func placeOffset(place uint32) int64 { return int64(place-1) * pageSize }
