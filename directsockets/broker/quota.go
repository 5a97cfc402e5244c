package broker

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"exnet/directsockets/broker/wire"
	"exnet/node/rpc/caller"
)

// owner is whose limits a client has.
type owner struct {
	// home is its container, by cgroup or namespace; "": it is in none, and has the limits of its
	// user.
	home    string
	account caller.Account
}

// resource is something of which there is a limited number.
type resource uint8

const (
	clients resource = iota
	descriptors
	listeners
	resources
)

// What the clients of one user may have in all containers and namespaces: clients (fewer than the
// threads that a Go process may have), listeners (wire.MaxListeners for each client), and half of
// this process's descriptors. A container may have a part of that, and all users but root together
// less than twice as much.
const (
	maxClients   = 4096
	maxListeners = 4 * wire.MaxListeners
)

// quota is what the clients of a container, of a user, or of all users hold together, and the pace
// at which they ask.
//
// Concurrency: all methods may be called from many goroutines.
type quota struct {
	limits [resources]int64
	held   [resources]atomic.Int64
	pace   pace
	// fast is its pace as a multiple of a container's.
	fast time.Duration
	uses int // how many usages have it; belongs to the lock of quotas
}

func newQuota(fast time.Duration, limits ...int) *quota {
	q := &quota{fast: fast}
	for r := range q.limits {
		q.limits[r] = math.MaxInt64
		if r < len(limits) {
			q.limits[r] = int64(limits[r])
		}
	}
	return q
}

// descriptorShare is how many descriptors a user may hold.
func descriptorShare() int { return descriptorLimit() / 2 }

// The limits of all levels.
func containerQuota() *quota {
	return newQuota(1, maxClients/4, descriptorLimit()/16, maxListeners/2)
}
func userQuota(fast time.Duration) *quota {
	return newQuota(fast, maxClients, descriptorShare(), maxListeners)
}
func allQuota() *quota {
	return newQuota(4, 2*maxClients, descriptorLimit()/4*3, 4*maxListeners)
}

// quotas are those of the clients of a Server, or of all Servers of a Group.
//
// Concurrency: all methods may be called from many goroutines.
type quotas struct {
	total *quota

	mu         sync.Mutex
	containers map[string]*quota         // +checklocks:mu
	users      map[caller.Account]*quota // +checklocks:mu
	// outside has the quotas of users outside of containers.
	outside map[caller.Account]*quota // +checklocks:mu
}

func newQuotas() *quotas {
	return &quotas{total: allQuota(), containers: make(map[string]*quota), users: make(map[caller.Account]*quota), outside: make(map[caller.Account]*quota)}
}

// levels are the quotas of one owner: each has to have room.
type levels []*quota

// levelsOf returns the levels of an owner, and counts a use of them.
func (qs *quotas) levelsOf(o owner) levels {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	var first *quota
	if o.home != "" {
		first = quotaOf(qs.containers, o.home, containerQuota)
	} else {
		first = quotaOf(qs.outside, o.account, func() *quota { return userQuota(1) })
	}
	return levels{first, quotaOf(qs.users, o.account, func() *quota { return userQuota(2) }), qs.total}
}

// releaseOwner ends a use of levels by an owner that holds nothing.
func (qs *quotas) releaseOwner(o owner) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if o.home != "" {
		removeUnused(qs.containers, o.home)
	} else {
		removeUnused(qs.outside, o.account)
	}
	removeUnused(qs.users, o.account)
}

func quotaOf[K comparable](m map[K]*quota, k K, make func() *quota) *quota {
	if m[k] == nil {
		m[k] = make()
	}
	m[k].uses++
	return m[k]
}

func removeUnused[K comparable](m map[K]*quota, k K) {
	if m[k].uses--; m[k].uses == 0 {
		delete(m, k)
	}
}

// takeAll takes n of a resource at all levels, or nothing if a level is full.
func (l levels) takeAll(r resource, n int) bool {
	for i, q := range l {
		if q.held[r].Add(int64(n)) > q.limits[r] {
			for _, q := range l[:i+1] {
				q.held[r].Add(-int64(n))
			}
			return false
		}
	}
	return true
}

// haveRoom reports whether all levels have room for n of a resource, at the moment.
func (l levels) haveRoom(r resource, n int) bool {
	for _, q := range l {
		if q.held[r].Load()+int64(n) > q.limits[r] {
			return false
		}
	}
	return true
}

// chargeAll charges n more of a resource; a negative n refunds.
func (l levels) chargeAll(r resource, n int) {
	for _, q := range l {
		q.held[r].Add(int64(n))
	}
}

// chargeTime adds a cost to the pace of all levels, at a time in ns, and returns how long to
// wait before the next use.
func (l levels) chargeTime(now int64, cost time.Duration) (wait time.Duration) {
	for _, q := range l {
		wait = max(wait, q.pace.addCost(now, cost/q.fast))
	}
	return wait
}

// dueTime is when the wait for everything charged so far is over.
func (l levels) dueTime() (at int64) {
	for _, q := range l {
		at = max(at, q.pace.due.Load())
	}
	return at
}
