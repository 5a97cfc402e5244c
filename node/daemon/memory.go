package daemon

import (
	"fmt"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/memory/pool"
	"exnet/node/control"
	"exnet/node/rpc/far"
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

func init() { offers = append(offers, openMemory) }

// openMemory makes the sockets.
func openMemory(d *Daemon) (offered, error) {
	m := &nodeMemory{service: service{
		what: "memory", without: "programs cannot borrow",
		suffix: memorySuffix, socket: memorySocket,
	}}
	if err := m.openFar(d, far.Config{VPID: far.MemoryVPID, Resume: far.Resume}); err != nil {
		return m, err
	}
	cfg := pool.Config{
		Node: d.member.ID(), Limits: pool.Limits(d.cfg.Lend.LendLimits), MaxTime: d.cfg.Lend.Time, Revoke: control.RevokeTime,
		Dial: m.dialNode(d.cfg.Dir), CheckPeer: d.member.CheckNode, Nodes: d.listNeighbors, Log: d.cfg.Log,
	}
	if m.far != nil {
		cfg.Far, cfg.NIC = m.far, d.nic
	}
	m.server = pool.New(cfg)
	return m, m.listenAll(d, m.server)
}

// listNeighbors returns the nodes that may lend memory.
func (d *Daemon) listNeighbors() (near []pool.Neighbor) {
	here := make(map[fabric.NodeID]bool)
	for _, p := range d.member.Peers() {
		here[p.Node] = true
	}
	for _, p := range d.knownPeers() {
		if p.State == emp.Up {
			near = append(near, pool.Neighbor{Node: p.Node, Hops: d.hopsTo(p.Node), Far: !here[p.Node]})
		}
	}
	return near
}

// lendingStatus is what the node lends and has borrowed.
func (m *nodeMemory) lendingStatus() control.Memory {
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

func (m *nodeMemory) counters() any { return m.server.Stats() }

// addStatus says what the node lends and has borrowed, if there is anything.
func (m *nodeMemory) addStatus(s *control.Status) {
	if now := m.lendingStatus(); now.Lend != 0 || len(now.Lent) != 0 || len(now.Borrowed) != 0 {
		s.Memory = &now
	}
}

func (m *nodeMemory) answerRequest(req control.Request, r *control.Reply) (ok bool, err error) {
	if req.Op != control.OpLease || req.Lease == nil {
		return req.Op == control.OpLease, nil
	}
	r.Leases, err = m.handleLeases(*req.Lease)
	return true, err
}

// handleLeases shows or changes what the node lends.
func (m *nodeMemory) handleLeases(req control.LeaseRequest) (*control.Leases, error) {
	s := m.server
	a := &control.Leases{Node: int(m.member.ID())}
	switch req.Want {
	case control.LeaseList:
	case control.LeaseGrant:
		if err := checkLend(req.Grant); err != nil {
			return nil, err
		}
		s.SetLimits(pool.Limits(req.Grant))
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
	a.Memory = m.lendingStatus()
	return a, nil
}
