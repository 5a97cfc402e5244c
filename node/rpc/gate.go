package rpc

import (
	"fmt"
	"net"
	"sync"

	"exnet/node/rpc/caller"
)

// Gate bounds how many connections to a socket each account has at once, so that none uses up the
// descriptors of who listens. Root of this process's namespaces has no limit.
//
// Concurrency: all methods may be called from many goroutines.
type Gate struct {
	most int

	mu sync.Mutex
	of map[caller.Account]int // +checklocks:mu
}

// NewGate makes a gate for so many connections of an account.
func NewGate(most int) *Gate { return &Gate{most: most, of: make(map[caller.Account]int)} }

// Enter counts a connection until leave is called. An error: its account has too many, or cannot be
// found out.
func (g *Gate) Enter(conn *net.UnixConn) (leave func(), err error) {
	who, err := caller.Of(conn)
	if err != nil {
		return nil, err
	}
	if !g.enter(who.Account) {
		return nil, fmt.Errorf("%v has %d connections already", who.Account, g.most)
	}
	return func() { g.leave(who.Account) }, nil
}

func (g *Gate) enter(of caller.Account) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !of.Unlimited() && g.of[of] >= g.most {
		return false
	}
	g.of[of]++
	return true
}

func (g *Gate) leave(of caller.Account) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.of[of]--; g.of[of] == 0 {
		delete(g.of, of)
	}
}
