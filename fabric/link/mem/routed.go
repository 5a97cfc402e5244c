package mem

import (
	"fmt"

	"exnet/fabric"
	"exnet/fabric/crossbar"
	"exnet/fabric/topo"
)

var errNoTopology = fmt.Errorf("mem: fabric without a topology: %w", fabric.ErrInvalid)

// NewRouted returns a fabric without nodes whose crossbars are wired as t says.
func NewRouted(t *topo.Topology) (*Fabric, error) {
	x, err := crossbar.New(t)
	if err != nil {
		return nil, err
	}
	f := NewFabric()
	f.x = x
	return f, nil
}

// Topology returns the topology, or nil.
func (f *Fabric) Topology() *topo.Topology {
	if f.x == nil {
		return nil
	}
	return f.x.Topology()
}

// Routes returns the routes as they are now, or nil without a topology.
func (f *Fabric) Routes() *topo.Routes {
	if f.x == nil {
		return nil
	}
	return f.x.Routes()
}

// Load returns the counters of the links, or nil without a topology. They can be
// read at any time.
func (f *Fabric) Load() *topo.Load {
	if f.x == nil {
		return nil
	}
	return f.x.Load()
}

// Reserve gives packets between some nodes routes of their own (crossbar.Crossbars). It must
// be the first change of the reservations, or the one that follows changes others.
func (f *Fabric) Reserve(s crossbar.Reservation, changes uint64) error {
	if f.x == nil {
		return errNoTopology
	}
	return f.x.Reserve(s, changes, false)
}

// SetLinkDown cuts the link between two nodes, or joins it again. Packets go round
// it from then on; nodes that have no route to each other any more get ErrNoRoute,
// and who waits for credit of one is woken. The error wraps ErrNoRoute if there is
// no such link.
func (f *Fabric) SetLinkDown(a, b fabric.NodeID, down bool) error {
	if f.x == nil {
		return errNoTopology
	}
	f.mu.Lock()
	before := f.x.Routes()
	if err := f.x.SetLinkDown(a, b, down); err != nil {
		f.mu.Unlock()
		return err
	}
	lost := f.rejoinLocked(before, f.x.Routes())
	f.mu.Unlock()
	for _, l := range lost { // without the lock: this runs handlers
		l[0].PeerDown(l[1].ID())
	}
	return nil
}

// rejoinLocked connects and disconnects what the change from one set of routes to
// another has joined and separated. It returns who has lost whom.
//
// +checklocks:f.mu
func (f *Fabric) rejoinLocked(before, after *topo.Routes) (lost [][2]NIC) {
	for i, a := range f.nics {
		for j, b := range f.nics {
			was, is := before.Reachable(i, j), after.Reachable(i, j)
			switch {
			case was && !is: // comes twice, once for each side
				a.Disconnect(j)
				lost = append(lost, [2]NIC{a, b})
			case !was && is:
				a.Connect(j, f.port(a, b))
			}
		}
	}
	return lost
}

// reachable reports whether a route leads from a to b.
func (f *Fabric) reachable(a, b NIC) bool {
	return f.x == nil || f.x.Routes().Reachable(a.ID(), b.ID())
}
