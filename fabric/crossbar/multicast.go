package crossbar

import (
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/topo"
)

// Multicast returns a function for route.Table.OnMulticast that counts the multicasts
// of a node. Its arguments are the group, the members, which must not change any more,
// and the length of the payload.
func (x *Crossbars) Multicast(from fabric.NodeID) func(fabric.GroupID, []fabric.NodeID, int) {
	m := &multicasts{x: x, from: from}
	return m.countPackets
}

// multicasts keeps the trees of a node's groups.
type multicasts struct {
	x     *Crossbars
	from  fabric.NodeID
	trees [fabric.Groups]atomic.Pointer[tree]
}

// tree is a tree with the routes and members that it was made for.
type tree struct {
	*topo.Tree
	members []fabric.NodeID
}

func (m *multicasts) countPackets(g fabric.GroupID, members []fabric.NodeID, n int) {
	if len(members) == 0 {
		return
	}
	r, t := m.x.Routes(), m.trees[g].Load()
	if t == nil || t.Routes() != r || !sameMemory(t.members, members) {
		made, err := r.Tree(m.from, members)
		if err != nil {
			return // not a node of the topology: no link leads there
		}
		t = &tree{made, members}
		m.trees[g].Store(t)
	}
	t.Carry(m.x.load, 1, uint64(n+descriptor))
}

// sameMemory reports whether a and b are the same piece of memory.
func sameMemory(a, b []fabric.NodeID) bool { return len(a) == len(b) && &a[0] == &b[0] }
