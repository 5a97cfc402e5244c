package ports

import (
	"time"

	"exnet/node/rpc/caller"
)

// Bounds of the copies between pages in their place. Who owns the pages decides how long one takes:
// they may lie in a file of FUSE, or wait for userfaultfd(2), and then the thread that copies is
// held in the kernel, not even to be killed. Memory that cannot block is not told from other memory
// in time: the owner can map anew what was looked at. So what runs is counted.
const (
	// copiesPerUser is how many run at a time of one user's memory, and copiesMax of all users' but
	// root's: each has a thread.
	copiesPerUser = 16
	copiesMax     = 512
	// copiesWaiting is how many wait for those of their user: each has two descriptors.
	copiesWaiting = 128
	// copyTime is how long who asks is kept waiting. The copy counts until it ends.
	copyTime = 10 * time.Second
	// copyPiece is how much is copied at a time: a copy that is held has a buffer of so much.
	copyPiece = 64 << 10
)

// copies counts the copies that run. It belongs to the server's lock.
type copies struct {
	users map[caller.Account]*userCopies
	all   int // without root's
}

type userCopies struct {
	running int
	waiting []func()
}

// copyLocked has moveBytes, which copies memory of owner's, run in a goroutine of its own: now,
// or when another one has ended. It returns false if there are too many.
//
// +checklocks:s.mu
func (s *Server) copyLocked(owner caller.Account, run func()) bool {
	u := s.copies.users[owner]
	if u == nil {
		u = new(userCopies)
	}
	switch {
	case u.running >= copiesPerUser:
		if !owner.Unlimited() && len(u.waiting) >= copiesWaiting {
			return false
		}
		u.waiting = append(u.waiting, run)
		return true
	case !owner.Unlimited() && s.copies.all >= copiesMax:
		return false
	}
	s.copies.users[owner] = u
	u.running++
	if !owner.Unlimited() {
		s.copies.all++
	}
	go s.copy(owner, u, run)
	return true
}

// copy runs one copy, and those that have waited for it.
func (s *Server) copy(owner caller.Account, u *userCopies, run func()) {
	for run != nil {
		run()
		s.mu.Lock()
		if run = nil; len(u.waiting) > 0 {
			run, u.waiting = u.waiting[0], u.waiting[1:]
		} else if u.running--; u.running == 0 {
			delete(s.copies.users, owner)
		}
		if run == nil && !owner.Unlimited() {
			s.copies.all--
		}
		s.mu.Unlock()
	}
}
