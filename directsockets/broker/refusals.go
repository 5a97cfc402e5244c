package broker

import (
	"net"
	"sync"
	"time"

	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
)

// refusals are the processes that were refused lately because their owners had too many clients.
// Finding the owner of a process costs several times as much as refusing it, and a refused process
// may connect again at once, tens of thousands of times a second.
//
// Concurrency: all methods may be called from many goroutines.
type refusals struct {
	mu sync.Mutex
	// bySlot: one for each value of the lowest bits of a process ID; nil: none was refused.
	bySlot []refusal // +checklocks:mu
}

type refusal struct {
	pid  int
	when int64 // see nanotime
	user *usage
}

const (
	// refusedTime is how long a process is remembered: later another one may have its ID.
	refusedTime = time.Second
	// maxRefusals is how many processes are known.
	maxRefusals = 4096
)

// noteRefused says that a process was refused.
func (r *refusals) noteRefused(pid int, u *usage) {
	if pid <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bySlot == nil {
		r.bySlot = make([]refusal, maxRefusals)
	}
	r.bySlot[pid%maxRefusals] = refusal{pid, monotonicTime(), u}
}

// lastOwner returns the owner of a process that was refused lately; nil: it was not.
func (r *refusals) lastOwner(conn *net.UnixConn) *usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bySlot == nil {
		return nil
	}
	pid, err := caller.PIDOf(conn)
	if err != nil || pid <= 0 {
		return nil
	}
	if is := r.bySlot[pid%maxRefusals]; is.pid == pid && monotonicTime()-is.when < int64(refusedTime) {
		return is.user
	}
	return nil
}

// refuseAgain refuses a connection of a process that was refused lately, if its owner still has
// no room for a client. Then it takes conn.
func (r *refusals) refuseAgain(s *Server, conn *net.UnixConn) bool {
	u := r.lastOwner(conn)
	if u == nil || u.levels.haveRoom(clients, 1) && u.levels.haveRoom(descriptors, 2) {
		return false
	}
	out, err := rpc.NewOutbox(conn, 0)
	if err != nil {
		return false
	}
	s.count.BadClients.Add(1)
	postRefused(out, wire.TooMany)
	u.trash.End(out, nil)
	return true
}
