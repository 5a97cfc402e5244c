package multicast

import (
	"iter"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"

	"exnet/fabric"
)

// Table is where a sender finds the fabric group of an IP group. The zero Table
// is empty. A change replaces the whole map: changes are rare beside look-ups,
// and groups are few beside neighbours (compare arp.Table).
//
// Concurrency: all methods may be called from many goroutines. Lookup takes no
// lock.
type Table struct {
	groups atomic.Pointer[map[key]fabric.GroupID]
	mu     sync.Mutex // excludes writers
}

// Lookup returns the fabric group of an IP group, given as the 4 or 16 bytes
// that a packet has. Groups that everybody is in are in fabric.GroupBroadcast.
func (t *Table) Lookup(group []byte) (fabric.GroupID, bool) {
	k, ok := keyOf(group)
	if !ok {
		return 0, false
	}
	if k.everybody() {
		return fabric.GroupBroadcast, true
	}
	m := t.groups.Load()
	if m == nil {
		return 0, false
	}
	g, ok := (*m)[k]
	return g, ok
}

// Set enters a group or replaces its entry.
func (t *Table) Set(group netip.Addr, g fabric.GroupID) {
	k := keyOfAddr(group)
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.groups.Load(); m != nil {
		if have, ok := (*m)[k]; ok && have == g {
			return
		}
	}
	t.changeLocked(func(m map[key]fabric.GroupID) { m[k] = g })
}

// Delete removes a group.
func (t *Table) Delete(group netip.Addr) {
	k := keyOfAddr(group)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changeLocked(func(m map[key]fabric.GroupID) { delete(m, k) })
}

// All yields the groups in the table, in no order.
func (t *Table) All() iter.Seq2[netip.Addr, fabric.GroupID] {
	return func(yield func(netip.Addr, fabric.GroupID) bool) {
		m := t.groups.Load()
		if m == nil {
			return
		}
		for k, g := range *m {
			if !yield(k.addr(), g) {
				return
			}
		}
	}
}

// changeLocked replaces the map by a copy that f has changed.
//
// +checklocks:t.mu
func (t *Table) changeLocked(f func(map[key]fabric.GroupID)) {
	next := make(map[key]fabric.GroupID)
	if m := t.groups.Load(); m != nil {
		maps.Copy(next, *m)
	}
	f(next)
	t.groups.Store(&next)
}
