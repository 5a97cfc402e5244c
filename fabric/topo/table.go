package topo

import (
	"sync"

	"exnet/fabric"
)

// Table is the routing table of one node: the global table of segments, and the
// local tables that its entries lead to.
type Table struct {
	global [fabric.Segments]*local
}

// local is a local routing table: the output port for each node of a segment.
type local [fabric.NodesPerSegment]Port

// Port returns the output port towards n: PortHost on n itself, PortNone if there is no
// path or no such node.
func (t *Table) Port(n fabric.NodeID) Port { return t.global[n.Segment()][n.Local()] }

// shelf stores equal local tables once.
type shelf struct {
	mu sync.Mutex
	// +checklocks:mu
	tables map[local]*local
}

// makeTable makes a table of the ports to all nodes; ports[i] leads to nodes[i]. It
// overwrites scratch.
func (s *shelf) makeTable(nodes []fabric.NodeID, ports []Port, scratch []Port) *Table {
	for i := range scratch {
		scratch[i] = PortNone
	}
	for i, n := range nodes {
		scratch[n] = ports[i]
	}
	t := new(Table)
	for seg := range t.global {
		var l local
		for i := range l {
			l[i] = PortNone
		}
		if from := seg * fabric.NodesPerSegment; from < len(scratch) {
			copy(l[:], scratch[from:])
		}
		t.global[seg] = s.shareLocal(&l)
	}
	return t
}

func (s *shelf) shareLocal(l *local) *local {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.tables[*l]
	if k == nil {
		k = new(local)
		*k = *l
		s.tables[*l] = k
	}
	return k
}

// len returns how many different tables there are.
func (s *shelf) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tables)
}
