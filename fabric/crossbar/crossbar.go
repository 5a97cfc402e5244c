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
	mu     sync.Mutex // serialises changes of routes
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

// carry counts packets of a class on the links from a to b.
func (x *Crossbars) carry(a, b fabric.NodeID, c fabric.Class, packets, bytes int) {
	x.routes.Load().CarryOf(x.load, a, b, c, uint64(packets), uint64(bytes))
}
