package rpc

import (
	"fmt"
	"sync"

	"exnet/node/rpc/caller"
)

// Hub is what the sessions of one server share: how many an account may have, what closes them,
// and the end.
//
// Concurrency: all methods may be called from many goroutines.
type Hub struct {
	// PerAccount bounds the sessions of an account's processes.
	PerAccount int
	// Total bounds those of all but root's.
	Total int
	// Trash closes what has come, and the connections themselves.
	Trash Bins

	mu       sync.Mutex
	accounts map[caller.Account]int  // +checklocks:mu
	counted  int                     // +checklocks:mu
	sessions map[Connection]struct{} // +checklocks:mu
	working  int                     // +checklocks:mu
	// idle is told when working becomes 0.
	idle *sync.Cond // +checklocks:mu
	// ended: the end, after which no session and no work begins.
	ended bool // +checklocks:mu
}

// enterSession counts a session of an account, and has End abort it. counted: it is one of those
// that are bounded.
func (h *Hub) enterSession(c Connection, a caller.Account, counted bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if counted && !a.Unlimited() {
		if h.accounts[a] >= h.PerAccount || h.counted >= h.Total || h.Trash.Full(a) {
			return fmt.Errorf("%w: %v has %d, of %d", ErrTooMany, a, h.accounts[a], h.counted)
		}
		if h.accounts == nil {
			h.accounts = make(map[caller.Account]int)
		}
		h.accounts[a]++
		h.counted++
	}
	if h.sessions == nil {
		h.sessions = make(map[Connection]struct{})
	}
	h.sessions[c] = struct{}{}
	if h.ended {
		c.Abort()
	}
	return nil
}

// leaveSession ends what enter began. What counts does so until the connection is closed.
func (h *Hub) leaveSession(c Connection, a caller.Account, counted bool) {
	h.mu.Lock()
	delete(h.sessions, c)
	h.mu.Unlock()
	h.Trash.End(a, c, func() {
		if !counted || a.Unlimited() {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.counted--
		if h.accounts[a]--; h.accounts[a] == 0 {
			delete(h.accounts, a)
		}
	})
}

// Sessions is how many sessions of an account's processes count.
func (h *Hub) Sessions(a caller.Account) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.accounts[a]
}

// Go runs f in a goroutine that Wait waits for. After End it runs nothing.
func (h *Hub) Go(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.workLocked(f)
	}
}

// Finish is Go that runs f also after End.
func (h *Hub) Finish(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.workLocked(f)
}

// +checklocks:h.mu
func (h *Hub) workLocked(f func()) {
	h.working++
	go func() {
		defer func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.working--; h.working == 0 && h.idle != nil {
				h.idle.Broadcast()
			}
		}()
		f()
	}()
}

// End aborts all sessions, and those that begin later.
func (h *Hub) End() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for c := range h.sessions {
		c.Abort()
	}
}

// Ended says whether End was called.
func (h *Hub) Ended() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// Wait waits until nothing of Go and Finish runs.
func (h *Hub) Wait() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.idle == nil {
		h.idle = sync.NewCond(&h.mu)
	}
	for h.working > 0 {
		h.idle.Wait()
	}
}
