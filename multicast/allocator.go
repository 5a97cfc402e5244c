package multicast

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"exnet/fabric"
)

// The fabric groups that are given to IP groups. Group 0 is left out: a zero
// that somebody forgot to set leads nowhere.
const (
	FirstGroup fabric.GroupID = 1
	LastGroup  fabric.GroupID = fabric.GroupBroadcast - 1
)

// Allocator gives fabric groups to IP groups and keeps their members. An IP
// group has the same fabric group from its first member to its last. The zero
// Allocator is ready to use.
//
// Concurrency: it has no lock; its owner ensures that.
type Allocator struct {
	groups map[netip.Addr]*allotment
	used   [fabric.Groups]bool
	last   fabric.GroupID // given out last
}

type allotment struct {
	id      fabric.GroupID
	members []fabric.NodeID // ascending
}

// Join makes n a member of an IP group and returns its fabric group,
// fabric.GroupBroadcast if none is free. added is false if n was a member.
func (a *Allocator) Join(group netip.Addr, n fabric.NodeID) (g fabric.GroupID, added bool) {
	e := a.groups[group]
	if e == nil {
		if a.groups == nil {
			a.groups = make(map[netip.Addr]*allotment)
		}
		e = &allotment{id: a.nextFree()}
		a.groups[group] = e
	}
	i, found := slices.BinarySearch(e.members, n)
	if !found {
		e.members = slices.Insert(e.members, i, n)
	}
	return e.id, !found
}

// nextFree returns a free fabric group. It goes round, so that a group that was
// freed is not given out again at once, while frames to it are on their way.
func (a *Allocator) nextFree() fabric.GroupID {
	for range LastGroup {
		if a.last++; a.last > LastGroup {
			a.last = FirstGroup
		}
		if !a.used[a.last] {
			a.used[a.last] = true
			return a.last
		}
	}
	return fabric.GroupBroadcast
}

// Leave ends the membership of n. removed is false if there was none; gone is
// true if n was the last member: the fabric group is free again.
func (a *Allocator) Leave(group netip.Addr, n fabric.NodeID) (g fabric.GroupID, removed, gone bool) {
	e := a.groups[group]
	if e == nil {
		return 0, false, false
	}
	i, found := slices.BinarySearch(e.members, n)
	if !found {
		return e.id, false, false
	}
	e.members = slices.Delete(e.members, i, i+1)
	if len(e.members) > 0 {
		return e.id, true, false
	}
	delete(a.groups, group)
	if e.id != fabric.GroupBroadcast {
		a.used[e.id] = false
	}
	return e.id, true, true
}

// GroupsOf returns the IP groups that n is a member of, in ascending order.
func (a *Allocator) GroupsOf(n fabric.NodeID) []netip.Addr {
	var groups []netip.Addr
	for g, e := range a.groups {
		if _, found := slices.BinarySearch(e.members, n); found {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, netip.Addr.Compare)
	return groups
}

// All yields the IP groups, in ascending order, with what they have.
func (a *Allocator) All() iter.Seq2[netip.Addr, Allotment] {
	return func(yield func(netip.Addr, Allotment) bool) {
		for _, g := range slices.SortedFunc(maps.Keys(a.groups), netip.Addr.Compare) {
			e := a.groups[g]
			if !yield(g, Allotment{e.id, slices.Clone(e.members)}) {
				return
			}
		}
	}
}

// Allotment is what an IP group has: a fabric group and members.
type Allotment struct {
	Group   fabric.GroupID
	Members []fabric.NodeID // in ascending order
}
