package ipstack

import (
	"net/netip"
	"sync"

	"exnet/arp"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// maxDestinations bounds what hops remembers. Beyond it, all is forgotten and
// learned anew from the packets that follow.
const maxDestinations = 8192

// hops feeds the table of the fast path. It joins what netstack's routes say
// (which next hop a destination has, learned when a packet passes through
// netstack) with what netstack's neighbours say (which next hop is resolved):
//
//	route of a packet ──► learn: destination → next hop ──┐
//	                                                      ├──► table: destination → MAC
//	neighbour event ────► change: next hop → MAC, or none ┘
//
// It implements stack.NUDDispatcher.
//
// Concurrency: all methods may be called from many goroutines. mu is a leaf.
type hops struct {
	table *arp.Table

	mu sync.Mutex
	// +checklocks:mu
	next map[netip.Addr]*hop
	// via is the next hop of each destination.
	// +checklocks:mu
	via map[netip.Addr]*hop
	// generation counts flushes, so that a route found before one is not
	// learned after it.
	// +checklocks:mu
	generation uint64
}

// hop is one next hop and what is reached through it. A neighbour is a hop with
// itself as destination.
type hop struct {
	mac      [6]byte
	resolved bool
	dsts     map[netip.Addr]struct{}
}

func newHops(table *arp.Table) *hops {
	return &hops{
		table: table,
		next:  make(map[netip.Addr]*hop),
		via:   make(map[netip.Addr]*hop),
	}
}

// begin returns the generation to pass to learn. It is called before the route
// is looked up.
func (h *hops) begin() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.generation
}

// learn says that dst is reached through next.
func (h *hops) learn(generation uint64, dst, next netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if generation != h.generation {
		return
	}
	n := h.next[next]
	if old := h.via[dst]; old != nil && old == n {
		return
	} else if old != nil {
		delete(old.dsts, dst)
	}
	if len(h.via) >= maxDestinations {
		h.flushLocked()
		n = h.next[next]
	}
	if n == nil {
		n = &hop{dsts: make(map[netip.Addr]struct{})}
		h.next[next] = n
	}
	n.dsts[dst] = struct{}{}
	h.via[dst] = n
	h.publishLocked(n, dst)
}

// flush forgets which destination has which next hop. It is called when a route
// or an address changes.
func (h *hops) flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flushLocked()
}

// +checklocks:h.mu
func (h *hops) flushLocked() {
	h.generation++
	for dst := range h.via {
		h.table.Delete(dst)
	}
	clear(h.via)
	for addr, n := range h.next {
		clear(n.dsts)
		// An unresolved hop without destinations says nothing.
		if !n.resolved {
			delete(h.next, addr)
		}
	}
}

// resolved reports whether packets may go to a next hop without asking netstack.
func (h *hops) resolved(next netip.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.next[next]
	return n != nil && n.resolved
}

// publishLocked makes the table say what is known of dst.
//
// +checklocks:h.mu
func (h *hops) publishLocked(n *hop, dst netip.Addr) {
	if n.resolved {
		h.table.Set(dst, n.mac)
	} else {
		h.table.Delete(dst)
	}
}

// change takes in the state of a neighbour.
func (h *hops) change(e stack.NeighborEntry) {
	addr, ok := addrOf(e.Addr)
	if !ok {
		return
	}
	resolved := usable(e.State) && len(e.LinkAddr) == len(hop{}.mac)
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.next[addr]
	if n == nil {
		if !resolved {
			return
		}
		n = &hop{dsts: make(map[netip.Addr]struct{})}
		h.next[addr] = n
	}
	n.resolved = resolved
	if resolved {
		copy(n.mac[:], e.LinkAddr)
	}
	for dst := range n.dsts {
		h.publishLocked(n, dst)
	}
}

// usable reports whether packets may go to a neighbour in state s without
// asking netstack. STALE is not: the next packet has to start the probing.
func usable(s stack.NeighborState) bool {
	switch s {
	case stack.Reachable, stack.Delay, stack.Probe, stack.Static:
		return true
	}
	return false
}

// OnNeighborAdded implements stack.NUDDispatcher.
func (h *hops) OnNeighborAdded(_ tcpip.NICID, e stack.NeighborEntry) { h.change(e) }

// OnNeighborChanged implements stack.NUDDispatcher.
func (h *hops) OnNeighborChanged(_ tcpip.NICID, e stack.NeighborEntry) { h.change(e) }

// OnNeighborRemoved implements stack.NUDDispatcher.
func (h *hops) OnNeighborRemoved(_ tcpip.NICID, e stack.NeighborEntry) {
	addr, ok := addrOf(e.Addr)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.next[addr]
	if n == nil {
		return
	}
	delete(h.next, addr)
	for dst := range n.dsts {
		delete(h.via, dst)
		h.table.Delete(dst)
	}
}
