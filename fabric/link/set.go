package link

import (
	"slices"
	"sync"
	"sync/atomic"

	"exnet/fabric"
)

// Active is a link on which nothing arrives by itself: somebody has to look. A
// goroutine of its own, or its Driver, looks when the peer rings, and consumers look
// when they poll.
type Active interface {
	// Poll moves what has arrived to its place. It may run handlers, and costs next to
	// nothing when nothing has arrived, or when a Driver polls.
	Poll()

	// Arm has the peer ring for what arrives from now on, and for what has arrived
	// already without Poll. It runs no handler in the caller's goroutine.
	Arm()

	// Mailbox says that the VELO mailbox of v grants limit messages to a source, or
	// is closed if limit is 0.
	Mailbox(v fabric.VPID, limit int)
}

// Set holds the active links of a NIC, and the credits of its mailboxes for them. The
// zero Set is empty.
//
// Concurrency: all methods may be called from many goroutines. Poll and Arm take
// no lock.
type Set struct {
	links atomic.Pointer[[]Active] // a slice is not changed

	mu     sync.Mutex
	limits [fabric.VPIDs]int // guarded by mu
}

// Poll polls all links. It returns false if there are none.
func (s *Set) Poll() bool {
	l := s.links.Load()
	if l == nil {
		return false
	}
	for _, a := range *l {
		a.Poll()
	}
	return true
}

// Arm arms all links.
func (s *Set) Arm() {
	if l := s.links.Load(); l != nil {
		for _, a := range *l {
			a.Arm()
		}
	}
}

// Mailbox calls Mailbox of all links, and of those that are added later.
func (s *Set) Mailbox(v fabric.VPID, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits[v] = limit
	if l := s.links.Load(); l != nil {
		for _, a := range *l {
			a.Mailbox(v, limit)
		}
	}
}

// Add adds a link and tells it which mailboxes are open.
func (s *Set) Add(a Active) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for v, limit := range s.limits {
		if limit != 0 {
			a.Mailbox(fabric.VPID(v), limit)
		}
	}
	list := []Active{a}
	if l := s.links.Load(); l != nil {
		list = append(slices.Clone(*l), a)
	}
	s.links.Store(&list)
}

// Remove removes a link. A call of one of its methods may still be running.
func (s *Set) Remove(a Active) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.links.Load()
	if l == nil {
		return
	}
	list := slices.DeleteFunc(slices.Clone(*l), func(x Active) bool { return x == a })
	if len(list) == 0 {
		s.links.Store(nil)
		return
	}
	s.links.Store(&list)
}
