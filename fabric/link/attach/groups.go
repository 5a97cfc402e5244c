package attach

import (
	"sync"
	"sync/atomic"
	"time"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
)

// believed is how long what the node has said of a group, or of a peer that is none, is believed.
const believed = 20 * time.Millisecond

// groups are the members of the multicast groups, as the node has said.
type groups struct {
	asking sync.Mutex // one goroutine does
	known  [fabric.Groups]atomic.Pointer[members]
}

// members are those of a group. They are not changed.
type members struct {
	asked time.Time
	nodes []fabric.NodeID
}

// Members returns the nodes that a message to a group goes to. Without an open port, and when the
// node has ended, they are those that were known.
func (l *Link) Members(g fabric.GroupID) []fabric.NodeID {
	at := &l.groups.known[g]
	if m := at.Load(); m != nil && time.Since(m.asked) < believed {
		return m.nodes
	}
	l.groups.asking.Lock()
	defer l.groups.asking.Unlock()
	m := at.Load()
	if m == nil {
		m = new(members)
	}
	if time.Since(m.asked) < believed { // somebody else has asked
		return m.nodes
	}
	nodes, ok := l.askMembers(g)
	if !ok {
		nodes = m.nodes
	}
	at.Store(&members{time.Now(), nodes})
	return nodes
}

// askMembers asks the node. It returns false if it has ended, or there is no port
// to ask by.
func (l *Link) askMembers(g fabric.GroupID) (nodes []fabric.NodeID, ok bool) {
	all := *l.list.Load()
	if len(all) == 0 {
		return nil, false
	}
	for count := uint64(1); uint64(len(nodes)) < count; {
		a, err := all[0].request(wire.Message{Op: wire.OpMember, Unit: all[0].unit, A: uint64(g), B: uint64(len(nodes))})
		if err != nil {
			return nil, false
		}
		if count = a.A; uint64(len(nodes)) < count {
			nodes = append(nodes, a.Addr.Node)
		}
	}
	return nodes, true
}
