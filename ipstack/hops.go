package ipstack

import (
	"encoding/binary"
	"net/netip"
	"slices"
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
	// late are destinations that packets went to while their next hops were stale, since the last
	// probe. They are no map, because most such packets follow a rest: after it, each cache line of
	// a map's code and data comes from memory, and the packet waits for all of them.
	// +checklocks:mu
	late [maxLate]late
	// lates is how many of late are in use.
	// +checklocks:mu
	lates int
	// hasLates says that lates is not 0.
	hasLates atomic.Bool
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
	dsts     map[netip.Addr]struct{}
}

// late is a destination with a stale next hop.
type late struct {
	hi, lo uint64 // the address, as its family has it
	is4    bool
	sent   uint8 // packets
}

const (
	// maxStale is how many packets go to a destination with a stale next hop, unless Probe is
	// called, before one passes through netstack, which then probes the next hop.
	maxStale = 16
	// maxLate is how many such destinations hops remembers. Packets to others pass through
	// netstack.
	maxLate = 4
)

func lateOf(dst []byte) late {
	if len(dst) == 4 {
		return late{lo: uint64(binary.BigEndian.Uint32(dst)), is4: true}
	}
	return late{hi: binary.BigEndian.Uint64(dst), lo: binary.BigEndian.Uint64(dst[8:])}
}

func (l late) addr() netip.Addr {
	if l.is4 {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(l.lo))))
	}
	return netip.AddrFrom16([16]byte(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, l.hi), l.lo)))
}

func newHops(table *arp.Table, prefix arp.Prefix) *hops {
	return &hops{
		table:  table,
		prefix: prefix,
		next:   make(map[netip.Addr]*hop),
		via:    make(map[netip.Addr]*hop),
	}
}

// beginLearn returns the generation to pass to learn. It is called before the route
// is looked up.
func (h *hops) beginLearn() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.generation
}

// setHop records that dst is reached through next.
func (h *hops) setHop(generation uint64, dst, next netip.Addr) {
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

// forgetAll forgets which destination has which next hop. It is called when a route
// or an address changes.
func (h *hops) forgetAll() {
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

// isResolved reports whether packets may go to a next hop without asking netstack.
func (h *hops) isResolved(next netip.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.next[next]
	return n != nil && n.resolved && !n.entry.Stale
}

// countSent counts a packet to dst, whose next hop is stale, so that Probe probes that. It
// returns false if the packet has to pass through netstack.
func (h *hops) countSent(dst []byte) bool {
	d := lateOf(dst)
	h.mu.Lock()
	fast := h.countLocked(d)
	h.mu.Unlock()
	return fast
}

// +checklocks:h.mu
func (h *hops) countLocked(d late) bool {
	for i := range h.lates {
		l := &h.late[i]
		if l.lo != d.lo || l.hi != d.hi || l.is4 != d.is4 {
			continue
		}
		if l.sent++; l.sent <= maxStale {
			return true
		}
		h.lates--
		*l = h.late[h.lates]
		return false
	}
	if h.lates == maxLate {
		return false
	}
	d.sent = 1
	h.late[h.lates] = d
	h.lates++
	h.hasLates.Store(true)
	return true
}

// takeDue returns the next hops to probe.
func (h *hops) takeDue() (due []netip.Addr) {
	if !h.hasLates.Load() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.late[:h.lates] {
		if n := h.via[l.addr()]; n != nil && n.entry.Stale && !slices.Contains(due, n.addr) {
			due = append(due, n.addr)
		}
	}
	h.lates = 0
	h.hasLates.Store(false)
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

// setState updates the state of a neighbour.
func (h *hops) setState(e stack.NeighborEntry) {
	addr, ok := addrOf(e.Addr)
	if !ok {
		return
	}
	entry, resolved := h.tableEntry(e)
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
	n.entry, n.resolved = entry, resolved
	for dst := range n.dsts {
		h.publishLocked(n, dst)
	}
}

// tableEntry returns the table entry of a neighbour, or false if packets must pass through
// netstack first. A MAC address that belongs to no node takes the slow path, where the
// link refuses it.
func (h *hops) tableEntry(e stack.NeighborEntry) (arp.Entry, bool) {
	if !isUsable(e.State) || len(e.LinkAddr) != len(arp.MAC{}) {
		return arp.Entry{}, false
	}
	mac := arp.MAC([]byte(e.LinkAddr))
	node, err := h.prefix.Node(mac)
	return arp.Entry{Node: node, MAC: mac, Stale: e.State == stack.Stale}, err == nil
}

// isUsable reports whether packets may go to a neighbour in state s without passing through
// netstack. In STALE, the neighbour is probed after they have left (countSent).
func isUsable(s stack.NeighborState) bool {
	switch s {
	case stack.Reachable, stack.Stale, stack.Delay, stack.Probe, stack.Static:
		return true
	}
	return false
}

// OnNeighborAdded implements stack.NUDDispatcher.
func (h *hops) OnNeighborAdded(_ tcpip.NICID, e stack.NeighborEntry) { h.setState(e) }

// OnNeighborChanged implements stack.NUDDispatcher.
func (h *hops) OnNeighborChanged(_ tcpip.NICID, e stack.NeighborEntry) { h.setState(e) }

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
