// Package mem is the link between NICs of one process: a port calls the peer's
// NIC directly.
//
// # Architecture
//
// Attach connects a NIC with every NIC of the fabric, both ways, and with itself,
// and adds it to the broadcast group of the others. It does here what EMP does on
// a real fabric. A VELO flow leads from the sending endpoint straight into the
// target's mailbox, past the link. An RMA operation runs from beginning to end in
// the goroutine that posts it.
//
// A fabric made with NewRouted has a topology: crossbars join the ports
// and the NICs, and count what crosses each link (see fabric/crossbar). Nodes that
// a cut link separates are disconnected, like detached nodes.
//
// # Concurrency
//
// All methods may be called from many goroutines. The fabric's lock is held
// while routing tables change, and never while data moves or a handler runs.
//
// # Limits
//
// One process. Without a topology, every node is one hop from every other. A node
// that was separated and comes back rejoins only the broadcast group: the manager
// of the fabric assigns the others.
package mem

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"exnet/fabric"
	"exnet/fabric/crossbar"
	"exnet/fabric/link"
	"exnet/fabric/route"
	"exnet/foreign"
)

// NIC is what Attach needs of a NIC; *nic.NIC has it.
type NIC interface {
	ID() fabric.NodeID
	Connect(to fabric.NodeID, p link.Port)
	Disconnect(from fabric.NodeID)
	Routes() *route.Table
	PeerDown(from fabric.NodeID)
	link.Handler
}

// Fabric joins NICs. Make it with NewFabric or NewRouted.
type Fabric struct {
	x  *crossbar.Crossbars // nil: no topology
	mu sync.Mutex
	// +checklocks:mu
	nics map[fabric.NodeID]NIC
}

// NewFabric returns a fabric without nodes.
func NewFabric() *Fabric { return &Fabric{nics: make(map[fabric.NodeID]NIC)} }

// Attach joins n to the fabric. The error wraps ErrInUse if there is a node with
// its ID. The error wraps ErrNoRoute if its ID is not in the topology.
func (f *Fabric) Attach(n NIC) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := n.ID()
	if f.nics[id] != nil {
		return fmt.Errorf("mem: attach node %d: %w", id, fabric.ErrInUse)
	}
	if f.x != nil {
		if !f.x.Topology().Has(id) {
			return fmt.Errorf("mem: attach node %d: not in the topology: %w", id, fabric.ErrNoRoute)
		}
		n.Routes().OnMulticast(f.x.Multicast(id))
	}
	f.nics[id] = n
	for _, p := range f.nics {
		if f.reachable(n, p) {
			f.connect(n, p)
		}
	}
	return nil
}

// connect enters the ways between two NICs, or of one to itself.
func (f *Fabric) connect(a, b NIC) {
	a.Connect(b.ID(), f.port(a, b))
	if a != b {
		b.Connect(a.ID(), f.port(b, a))
	}
}

// port is the way from a to b, another one each time that they are joined.
func (f *Fabric) port(a, b NIC) link.Port {
	p := &port{a.ID(), b}
	if f.x == nil || a == b {
		return p
	}
	return f.x.Port(a.ID(), b.ID(), p)
}

// Detach takes n out of the fabric: from then on its peers get ErrNoRoute. The
// error wraps ErrNoRoute if it is not in the fabric.
func (f *Fabric) Detach(n NIC) error {
	id := n.ID()
	f.mu.Lock()
	if f.nics[id] != n {
		f.mu.Unlock()
		return fmt.Errorf("mem: detach node %d: %w", id, fabric.ErrNoRoute)
	}
	delete(f.nics, id)
	peers := slices.Collect(maps.Values(f.nics))
	n.Disconnect(id)
	for _, p := range peers {
		p.Disconnect(id)
		n.Disconnect(p.ID())
	}
	n.Routes().OnMulticast(nil)
	f.mu.Unlock()
	n.PeerDown(id)
	for _, p := range peers { // without the lock: this runs handlers
		p.PeerDown(id)
		n.PeerDown(p.ID())
	}
	return nil
}

// port is the way from the node src to the NIC dst.
type port struct {
	src fabric.NodeID
	dst NIC
}

// OpenFlow implements link.Port.
func (p *port) OpenFlow(from, to fabric.VPID, c link.Credit) (link.Flow, error) {
	return p.dst.AcceptFlow(p.src, from, to, c)
}

// Get implements link.Port.
func (p *port) Get(g link.Get, s link.Sink) { p.dst.ServeGet(p.src, g, s) }

// Put implements link.Port.
func (p *port) Put(r link.Put, data []byte, d link.Done) {
	p.dst.ServePut(p.src, r, foreign.Of(data), d)
}
