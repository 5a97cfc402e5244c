// Package nic joins the functional units of one emulated EXTOLL NIC: VELO, RMA,
// the address translation unit and the routing tables.
//
// # Architecture
//
//	OpenVELO ─▶ velo.Unit ─┐             ┌─ rma.Unit ◀─ OpenRMA
//	                       ├─ route.Table┤     │
//	                       │   │         │     ▼
//	 AcceptFlow ◀──────────┘  link.Port  └─ atu.ATU ◀─ ATU().Register
//	 ServeGet, ServePut        │
//	      ▲                    ▼
//	      └───────── link ─────┘
//
// A new NIC has no peers; a link joins it to others (see link/mem). Attach returns a
// program's share of the NIC of a running node.
//
// # Concurrency
//
// All methods may be called from many goroutines.
//
// # Limits
//
// The link that joins the NIC to others fills the tables; every node is one hop
// away.
package nic

import (
	"fmt"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
	"exnet/fabric/link/attach"
	"exnet/fabric/profile"
	"exnet/fabric/rma"
	"exnet/fabric/route"
	"exnet/fabric/velo"
	"exnet/foreign"
)

// Config configures a NIC.
type Config struct {
	// Node is the NIC's address. There is no default: 0 is node 0.
	Node fabric.NodeID
}

// NIC is one emulated EXTOLL NIC.
type NIC struct {
	id     fabric.NodeID
	routes route.Table
	atu    *atu.ATU
	velo   *velo.Unit
	rma    *rma.Unit
	closed atomic.Bool
	node   *attach.Link // link to the node that Attach found; nil after New
}

// New returns a NIC that is not connected to anything.
func New(cfg Config) (*NIC, error) {
	n := &NIC{id: cfg.Node, atu: atu.New(cfg.Node)}
	n.velo = velo.NewUnit(n.id, &n.routes)
	n.rma = rma.NewUnit(n.id, n.atu, &n.routes)
	return n, nil
}

// ID returns the node ID.
func (n *NIC) ID() fabric.NodeID { return n.id }

// ATU returns the address translation unit.
func (n *NIC) ATU() *atu.ATU { return n.atu }

// Routes returns the routing tables. The caller may change the multicast groups; the
// link manages the routes to nodes.
func (n *NIC) Routes() *route.Table { return &n.routes }

// OpenVELO opens the VELO mailbox of v.
func (n *NIC) OpenVELO(v fabric.VPID, cfg velo.Config) (*velo.Endpoint, error) {
	if n.node == nil {
		return n.velo.Open(v, cfg)
	}
	if err := n.node.Open(fabric.UnitVELO, v); err != nil {
		return nil, err
	}
	e, err := n.velo.Open(v, cfg)
	if err != nil {
		n.node.Shut(fabric.UnitVELO, v)
	}
	return e, err
}

// OpenRMA opens the RMA unit for v.
func (n *NIC) OpenRMA(v fabric.VPID, cfg rma.Config) (*rma.Endpoint, error) {
	if n.node == nil {
		return n.rma.Open(v, cfg)
	}
	if err := n.node.Open(fabric.UnitRMA, v); err != nil {
		return nil, err
	}
	e, err := n.rma.Open(v, cfg)
	if err != nil {
		n.node.Shut(fabric.UnitRMA, v)
	}
	return e, err
}

// SetProfile makes both units count in p what they send from now on; nil stops that.
func (n *NIC) SetProfile(p *profile.Profile) {
	n.velo.SetProfile(p)
	n.rma.SetProfile(p)
}

// Close closes all endpoints. Peers get ErrPeerDown until the NIC is detached
// from its link, and ErrNoRoute from then on. Regions stay registered.
func (n *NIC) Close() error {
	if !n.closed.CompareAndSwap(false, true) {
		return fmt.Errorf("nic: %w", fabric.ErrClosed)
	}
	n.velo.Close()
	n.rma.Close()
	if n.node != nil {
		n.node.Close()
	}
	n.atu.CloseArena()
	return nil
}

// Connect adds the route to a node, and adds the node to the broadcast group. For
// links.
func (n *NIC) Connect(to fabric.NodeID, p link.Port) {
	n.routes.Set(to, p)
	if to != n.id {
		_ = n.routes.Join(fabric.GroupBroadcast, to) // the group is valid
	}
}

// Disconnect removes the route to a node, and removes the node from all groups. For
// links, which call PeerDown afterwards.
func (n *NIC) Disconnect(from fabric.NodeID) { n.routes.Remove(from) }

// PeerDown ends the message flows to a node that was disconnected, and wakes the
// senders that wait for its credit. It may run OnCredit handlers. For links.
func (n *NIC) PeerDown(from fabric.NodeID) { n.velo.PeerDown(from) }

// AddLink makes the NIC's consumers poll a link. For links, which call it before
// Connect.
func (n *NIC) AddLink(l link.Active) { n.routes.Links.Add(l) }

// RemoveLink undoes AddLink.
func (n *NIC) RemoveLink(l link.Active) { n.routes.Links.Remove(l) }

// AcceptFlow implements link.Handler.
func (n *NIC) AcceptFlow(src fabric.NodeID, from, to fabric.VPID, c link.Credit) (link.Flow, error) {
	return n.velo.Accept(src, from, to, c)
}

// ServeGet implements link.Handler.
func (n *NIC) ServeGet(src fabric.NodeID, g link.Get, s link.Sink) { n.rma.ServeGet(src, g, s) }

// ServePut implements link.Handler.
func (n *NIC) ServePut(src fabric.NodeID, p link.Put, data foreign.Memory, d link.Done) {
	n.rma.ServePut(src, p, data, d)
}

// LendGet implements link.Lender.
func (n *NIC) LendGet(src fabric.NodeID, g link.Get) (link.Lease, fabric.Status) {
	return n.rma.LendGet(src, g)
}

// ServeRead implements link.Lender.
func (n *NIC) ServeRead(src fabric.NodeID, g link.Get) { n.rma.ServeRead(src, g) }

// LendPut implements link.Lender.
func (n *NIC) LendPut(src fabric.NodeID, p link.Put, size int) (link.Landing, fabric.Status) {
	return n.rma.LendPut(src, p, size)
}

var (
	_ link.Handler = (*NIC)(nil)
	_ link.Lender  = (*NIC)(nil)
)
