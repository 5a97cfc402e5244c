package crossbar

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/topo"
)

// Crossbars are the crossbars of all nodes of a topology.
//
// Concurrency: all methods may be called from many goroutines.
type Crossbars struct {
	topo   *topo.Topology
	load   *topo.Load
	routes atomic.Pointer[topo.Routes]
	sinks  sync.Pool
	// adaptive: data of RMA is routed adaptively.
	adaptive atomic.Bool
	mu       sync.Mutex // serialises changes of routes
	// +checklocks:mu
	reserved []Reservation // in the order in which they were made
	// +checklocks:mu
	changes uint64 // of reserved
}

// New returns the crossbars of t, with all links up and all counters 0.
func New(t *topo.Topology) (*Crossbars, error) {
	r, err := topo.NewRoutes(t)
	if err != nil {
		return nil, err
	}
	x := &Crossbars{topo: t, load: topo.NewLoad(t)}
	x.routes.Store(r)
	return x, nil
}

// Topology returns the topology.
func (x *Crossbars) Topology() *topo.Topology { return x.topo }

// Load returns the counters of the links. They continue when routes change.
func (x *Crossbars) Load() *topo.Load { return x.load }

// Routes returns the present routes.
func (x *Crossbars) Routes() *topo.Routes { return x.routes.Load() }

// SetLinkDown cuts or restores the link between a and b, and makes new routes. The
// error wraps ErrNoRoute if there is no link between them.
func (x *Crossbars) SetLinkDown(a, b fabric.NodeID, down bool) error {
	l, ok := x.topo.Between(a, b)
	if !ok {
		return fmt.Errorf("crossbar: no link between node %d and node %d: %w", a, b, fabric.ErrNoRoute)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.routes.Load()
	if old.Down(l) == down {
		return nil
	}
	cut := slices.DeleteFunc(old.Cut(), func(c int) bool { return c == l })
	if down {
		cut = append(cut, l)
	}
	r, err := topo.NewRoutes(x.topo, cut...)
	if err != nil {
		return err
	}
	if r, err = r.With(passable(r, x.reserved)); err != nil {
		return err
	}
	x.routes.Store(r)
	return nil
}

// SetAdaptive has the data of RMA, of PUTs and of responses to GETs, routed adaptively from now on,
// or in the order of the tables again. VELO's messages and requests for data are always ordered, as
// their receivers rely on that; a transfer's data is whole before its notification, whatever path
// each packet takes. The error wraps fabric.ErrInvalid if the topology is neither torus nor mesh.
func (x *Crossbars) SetAdaptive(on bool) error {
	if on && x.topo.Kind() == topo.KindFree {
		return fmt.Errorf("crossbar: adaptive routing needs a torus or a mesh, not %v: %w", x.topo, fabric.ErrInvalid)
	}
	if on {
		x.load.BeginAdaptive()
	}
	x.adaptive.Store(on)
	return nil
}

// Adaptive reports whether the data of RMA is routed adaptively. While a link is down it
// follows the tables.
func (x *Crossbars) Adaptive() bool { return x.adaptive.Load() }

// carryData is carry for packets whose order does not matter.
func (x *Crossbars) carryData(a, b fabric.NodeID, c fabric.Class, packets, bytes int) {
	if !x.adaptive.Load() {
		x.countPackets(a, b, c, packets, bytes)
		return
	}
	x.routes.Load().CarryAdaptive(x.load, a, b, c, uint64(packets), uint64(bytes))
}

// countPackets counts packets of a class on the links from a to b.
func (x *Crossbars) countPackets(a, b fabric.NodeID, c fabric.Class, packets, bytes int) {
	x.routes.Load().CarryOf(x.load, a, b, c, uint64(packets), uint64(bytes))
}
