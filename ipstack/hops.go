package ipstack

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"exnet/arp"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// maxDestinations is how many destinations hops remembers. Beyond it, hops forgets all
// of them and learns again from the packets that follow.
const maxDestinations = arp.DefaultEntries

// hops fills the table of the fast path. It joins the next hop of a destination, learned
// from netstack's route when a packet passes through netstack, with the MAC address of
// the next hop, learned from netstack's neighbour events:
//
//	route of a packet ──► learn: destination → next hop ──┐
//	                                                      ├──► table: destination → MAC
//	neighbour event ────► change: next hop → MAC, or none ┘
//
// It implements stack.NUDDispatcher.
//
// Concurrency: all methods may be called from many goroutines. mu is a leaf.
type hops struct {
	table  *arp.Table
	prefix arp.Prefix

	mu sync.Mutex
	// +checklocks:mu
	next map[netip.Addr]*hop
	// via is the next hop of each destination.
	// +checklocks:mu
	via map[netip.Addr]*hop
	// due are the next hops that Probe must probe.
	// +checklocks:mu
	due map[netip.Addr]struct{}
	// some says that due is not empty.
	some atomic.Bool
	// generation counts flushes. A route that was found before a flush is not
	// learned after it.
	// +checklocks:mu
	generation uint64
}

// hop is one next hop and the destinations reached through it. A neighbour is a hop
// with itself as destination.
type hop struct {
	addr     netip.Addr
	entry    arp.Entry
	resolved bool // its entry is in the table
	sent     int  // packets since it became stale
	dsts     map[netip.Addr]struct{}
}

// maxStale is how many packets go to a stale next hop, unless Probe is called, before one
// passes through netstack, which then probes it.
const maxStale = 16

func newHops(table *arp.Table, prefix arp.Prefix) *hops {
	return &hops{
		table:  table,
		prefix: prefix,
		next:   make(map[netip.Addr]*hop),
		via:    make(map[netip.Addr]*hop),
		due:    make(map[netip.Addr]struct{}),
	}
}

// begin returns the generation to pass to learn. It is called before the route
// is looked up.
func (h *hops) begin() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.generation
}

// learn records that dst is reached through next.
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
		n = &hop{addr: next, dsts: make(map[netip.Addr]struct{})}
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
		// An unresolved hop without destinations is of no use.
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
	return n != nil && n.resolved && !n.entry.Stale
}

// sent counts a packet to dst, whose next hop is stale. After the first, Probe probes the next hop;
// after maxStale, packets pass through netstack.
func (h *hops) sent(dst []byte) {
	addr, _ := netip.AddrFromSlice(dst)
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.via[addr]
	if n == nil || !n.entry.Stale {
		return
	}
	switch n.sent++; n.sent {
	case 1:
		h.due[n.addr] = struct{}{}
		h.some.Store(true)
	case maxStale:
		n.resolved = false
		for dst := range n.dsts {
			h.publishLocked(n, dst)
		}
	}
}

// probe returns the next hops to probe.
func (h *hops) probe() (due []netip.Addr) {
	if !h.some.Load() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for addr := range h.due {
		if n := h.next[addr]; n != nil && n.entry.Stale {
			due = append(due, addr)
		}
	}
	clear(h.due)
	h.some.Store(false)
	return due
}

// publishLocked updates the table's entry of dst, whose next hop is n.
//
// +checklocks:h.mu
func (h *hops) publishLocked(n *hop, dst netip.Addr) {
	if !n.resolved {
		h.table.Delete(dst)
		return
	}
	// All writers of the table hold mu, so the generation is the current one. If the
	// table refuses the entry, which it counts, packets take the slow path.
	_ = h.table.Put(h.table.Generation(), dst, n.entry)
}

// change updates the state of a neighbour.
func (h *hops) change(e stack.NeighborEntry) {
	addr, ok := addrOf(e.Addr)
	if !ok {
		return
	}
	entry, resolved := h.entry(e)
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.next[addr]
	if n == nil {
		if !resolved {
			return
		}
		n = &hop{addr: addr, dsts: make(map[netip.Addr]struct{})}
		h.next[addr] = n
	}
	n.entry, n.resolved, n.sent = entry, resolved, 0
	for dst := range n.dsts {
		h.publishLocked(n, dst)
	}
}

// entry returns the table entry of a neighbour, or false if packets must pass through
// netstack first. A MAC address that belongs to no node takes the slow path, where the
// link refuses it.
func (h *hops) entry(e stack.NeighborEntry) (arp.Entry, bool) {
	if !usable(e.State) || len(e.LinkAddr) != len(arp.MAC{}) {
		return arp.Entry{}, false
	}
	mac := arp.MAC([]byte(e.LinkAddr))
	node, err := h.prefix.Node(mac)
	return arp.Entry{Node: node, MAC: mac, Stale: e.State == stack.Stale}, err == nil
}

// usable reports whether packets may go to a neighbour in state s without passing through
// netstack. In STALE, the neighbour is probed after they have left (sent).
func usable(s stack.NeighborState) bool {
	switch s {
	case stack.Reachable, stack.Stale, stack.Delay, stack.Probe, stack.Static:
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
	delete(h.due, addr)
	for dst := range n.dsts {
		delete(h.via, dst)
		h.table.Delete(dst)
	}
}
