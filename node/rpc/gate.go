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
	limit int

	mu          sync.Mutex
	connections map[caller.Account]int // +checklocks:mu
}

// NewGate makes a gate for so many connections of an account.
func NewGate(most int) *Gate { return &Gate{limit: most, connections: make(map[caller.Account]int)} }

// Enter counts a connection until leave is called. An error: its account has too many, or cannot be
// found out.
func (g *Gate) Enter(conn *net.UnixConn) (leave func(), err error) {
	who, err := caller.Of(conn)
	if err != nil {
		return nil, err
	}
	if !g.enter(who.Account) {
		return nil, fmt.Errorf("%v has %d connections already", who.Account, g.limit)
	}
	return func() { g.leave(who.Account) }, nil
}

func (g *Gate) enter(of caller.Account) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !of.Unlimited() && g.connections[of] >= g.limit {
		return false
	}
	g.connections[of]++
	return true
}

func (g *Gate) leave(of caller.Account) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.connections[of]--; g.connections[of] == 0 {
		delete(g.connections, of)
	}
}
