package mesh

import (
	"maps"
	"net/netip"
	"slices"

	"exnet/fabric"
)

// JoinGroup implements emp.Home.
func (m *Mesh) JoinGroup(a netip.Addr) { m.setGroup(a, true) }

// LeaveGroup implements emp.Home.
func (m *Mesh) LeaveGroup(a netip.Addr) { m.setGroup(a, false) }

func (m *Mesh) setGroup(a netip.Addr, member bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.groups[a] == member {
		return
	}
	if member {
		m.groups[a] = true
	} else {
		delete(m.groups, a)
	}
	for _, s := range m.sessions {
		s.queueNews(m.groupsLocked())
	}
}

// groupsLocked is what others are told about this node's groups.
//
// +checklocks:m.mu
func (m *Mesh) groupsLocked() news {
	all := slices.SortedFunc(maps.Keys(m.groups), netip.Addr.Compare)
	if all == nil {
		all = []netip.Addr{} // nil says that nothing has changed
	}
	if len(all) > maxGroups {
		all = all[:maxGroups] // the others of ours go to nobody
	}
	return news{Groups: &all}
}

// Groups yields the IP multicast groups of the nodes of other hosts that are linked.
func (m *Mesh) Groups() map[netip.Addr][]fabric.NodeID {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[netip.Addr][]fabric.NodeID)
	for n, s := range m.sessions {
		for _, a := range s.groups {
			if !s.shared {
				all[a] = append(all[a], n)
			}
		}
	}
	return all
}
