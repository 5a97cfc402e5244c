package accept

import (
	"fmt"
	"net"
	"sync"

	"exnet/internal/caller"
)

// Gate bounds how many connections to a socket each user has at once, so that none uses up the
// descriptors of who listens. Root has no limit.
//
// Concurrency: all methods may be called from many goroutines.
type Gate struct {
	most int

	mu sync.Mutex
	of map[uint32]int // +checklocks:mu
}

// NewGate makes a gate for so many connections of a user.
func NewGate(most int) *Gate { return &Gate{most: most, of: make(map[uint32]int)} }

// Enter counts a connection until leave is called. An error: its user has too many, or cannot be
// found out.
func (g *Gate) Enter(conn *net.UnixConn) (leave func(), err error) {
	user, err := caller.UserOf(conn)
	if err != nil {
		return nil, err
	}
	if !g.enter(user) {
		return nil, fmt.Errorf("accept: user %d has %d connections already", user, g.most)
	}
	return func() { g.leave(user) }, nil
}

func (g *Gate) enter(user uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if user != 0 && g.of[user] >= g.most {
		return false
	}
	g.of[user]++
	return true
}

func (g *Gate) leave(user uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.of[user]--; g.of[user] == 0 {
		delete(g.of, user)
	}
}
