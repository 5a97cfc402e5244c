package daemon

import (
	"cmp"
	"fmt"
	"slices"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/memory/pool"
	"exnet/node/control"
	"exnet/ports/far"
)

// memorySuffix makes the name of the socket by which the lenders of a fabric meet, and
// memorySocket is where processes of the node's network namespace find it, as portsSuffix and
// portsSocket.
const (
	memorySuffix = ".memory"
	memorySocket = "@exn-memory"
)

// nodeMemory lends memory of the node's host, and borrows for the processes of its network
// namespace.
//
// Concurrency: as service.
type nodeMemory struct {
	service
	server *pool.Server
}

// openMemory makes the sockets.
func (d *Daemon) openMemory() (*nodeMemory, error) {
	m := &nodeMemory{service: service{
		what: "memory", without: "programs cannot borrow",
		suffix: memorySuffix, socket: memorySocket, refused: &d.refused.Memory,
	}}
	if err := m.openFar(d, far.Config{VPID: far.MemoryVPID, Resume: far.Resume}); err != nil {
		return m, err
	}
	cfg := pool.Config{
		Node: d.member.ID(), Limits: d.cfg.Lend.Limits, MaxTime: d.cfg.Lend.Time,
		Dial: m.dial(d.cfg.Dir), CheckPeer: d.member.CheckNode, Nodes: d.neighbors, Log: d.cfg.Log,
	}
	if m.far != nil {
		cfg.Far, cfg.NIC = m.far, d.nic
	}
	m.server = pool.New(cfg)
	return m, m.listen(d, m.server)
}

// neighbors are the nodes that may lend memory, nearest first.
func (d *Daemon) neighbors() (near []pool.Neighbor) {
	here := make(map[fabric.NodeID]bool)
	for _, p := range d.member.Peers() {
		here[p.Node] = true
	}
	for _, p := range d.known() {
		if p.State == emp.Up {
			near = append(near, pool.Neighbor{Node: p.Node, Hops: d.hops(p.Node), Far: !here[p.Node]})
		}
	}
	slices.SortStableFunc(near, func(a, b pool.Neighbor) int { return cmp.Compare(a.Hops, b.Hops) })
	return near
}

// status is what the node lends and has borrowed.
func (m *nodeMemory) status() control.Memory {
	s := m.server.Status()
	convert := func(all []pool.Lease) []control.Lease {
		list := make([]control.Lease, 0, len(all))
		for _, l := range all {
			list = append(list, control.Lease(l))
		}
		return list
	}
	return control.Memory{LendLimits: control.LendLimits(s.Limits), Lent: convert(s.Lent), Borrowed: convert(s.Borrowed)}
}

// Leases shows or changes what the node lends.
func (d *Daemon) Leases(req control.LeaseRequest) (*control.Leases, error) {
	s := d.memory.server
	a := &control.Leases{Node: int(d.member.ID())}
	switch req.Want {
	case control.LeaseList:
	case control.LeaseGrant:
		l, err := lendLimits(pool.Limits(req.Grant))
		if err != nil {
			return nil, err
		}
		s.SetLimits(l)
	case control.LeaseRevoke:
		if req.Within < 0 {
			return nil, fmt.Errorf("%w: a time of %v", ErrConfig, req.Within)
		}
		a.Revoked = s.Revoke(func(l pool.Lease) bool { return req.Matches(control.Lease(l)) }, req.Within)
		if a.Revoked == 0 && req.ID != 0 {
			return nil, fmt.Errorf("node %d has no lease %d that is not revoked yet: exn-tun lease list shows them", a.Node, req.ID)
		}
	default:
		return nil, fmt.Errorf("unknown request %q for leases", req.Want)
	}
	a.Memory = d.memory.status()
	return a, nil
}
