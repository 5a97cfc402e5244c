package wire

import (
	"errors"
	"fmt"
	"sync"

	"exnet/fabric"
	"exnet/fabric/link/mem"
)

// FabricConfig configures a Fabric.
type FabricConfig struct {
	Link Config
	// Faults of every link, in both directions. Each direction has a seed of its own,
	// made from this one and the node IDs.
	Faults Faults
}

// Fabric joins NICs of one process by links over Pipes, all to all.
//
// Concurrency: all methods may be called from many goroutines.
type Fabric struct {
	cfg FabricConfig

	mu    sync.Mutex
	nics  map[fabric.NodeID]*attached // guarded by mu
	links map[pair]*joined            // guarded by mu
}

type attached struct {
	nic  mem.NIC
	self *mem.Fabric // its way to itself
}

// pair is two nodes, the lower ID first.
type pair struct{ a, b fabric.NodeID }

func pairOf(a, b fabric.NodeID) pair { return pair{min(a, b), max(a, b)} }

type joined struct {
	a, b       *Link
	endA, endB *PipeEnd
}

// NewFabric returns a fabric without nodes. ErrFaults: there can be no such faults.
func NewFabric(cfg FabricConfig) (*Fabric, error) {
	if err := cfg.Faults.Verify(); err != nil {
		return nil, err
	}
	var err error
	if cfg.Link, err = cfg.Link.withDefaults(); err != nil {
		return nil, err
	}
	return &Fabric{cfg: cfg, nics: make(map[fabric.NodeID]*attached), links: make(map[pair]*joined)}, nil
}

// NICOf is what Attach needs of a NIC; *nic.NIC has it.
type NICOf interface {
	NIC
	mem.NIC
}

// Attach joins n to the fabric. The error wraps ErrInUse if there is a node with
// its ID.
func (f *Fabric) Attach(n NICOf) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := n.ID()
	if f.nics[id] != nil {
		return fmt.Errorf("wire: attach node %d: %w", id, fabric.ErrInUse)
	}
	self := mem.NewFabric()
	if err := self.Attach(n); err != nil {
		return err
	}
	for _, p := range f.nics {
		peer, ok := p.nic.(NICOf)
		if !ok {
			continue
		}
		if err := f.linkNodes(n, peer); err != nil {
			return errors.Join(err, f.unlinkNode(id))
		}
	}
	f.nics[id] = &attached{n, self}
	return nil
}

// linkNodes belongs to the holder of mu.
func (f *Fabric) linkNodes(a, b NICOf) error {
	if a.ID() > b.ID() {
		a, b = b, a
	}
	endA, endB, err := Pipe(f.cfg.Faults.Between(a.ID(), b.ID()), f.cfg.Faults.Between(b.ID(), a.ID()))
	if err != nil {
		return err
	}
	j := &joined{endA: endA, endB: endB}
	if j.a, err = Connect(a, b.ID(), endA, f.cfg.Link); err != nil {
		return err
	}
	if j.b, err = Connect(b, a.ID(), endB, f.cfg.Link); err != nil {
		return errors.Join(err, j.a.Close())
	}
	f.links[pair{a.ID(), b.ID()}] = j
	return nil
}

// unlinkNode takes the links of a node down. It belongs to the holder of mu.
func (f *Fabric) unlinkNode(id fabric.NodeID) (err error) {
	for p, j := range f.links {
		if p.a == id || p.b == id {
			err = errors.Join(err, j.a.Close(), j.b.Close())
			delete(f.links, p)
		}
	}
	return err
}

// Detach takes n out of the fabric; its peers find their links down. The error wraps
// ErrNoRoute if it is not in the fabric.
func (f *Fabric) Detach(n NICOf) error {
	f.mu.Lock()
	id := n.ID()
	at := f.nics[id]
	if at == nil || at.nic != mem.NIC(n) {
		f.mu.Unlock()
		return fmt.Errorf("wire: detach node %d: %w", id, fabric.ErrNoRoute)
	}
	delete(f.nics, id)
	var ends []*Link
	for p, j := range f.links {
		if p.a == id || p.b == id {
			ends = append(ends, j.a, j.b)
		}
	}
	err := f.unlinkNode(id)
	f.mu.Unlock()
	for _, l := range ends {
		<-l.Done()
	}
	return errors.Join(err, at.self.Detach(n))
}

// Reset takes the link between a and b down, which ends the operations on it with an error, and
// joins them anew. Links to others do not notice. It waits for what ends: do not call it in a
// handler of a NIC. The error wraps ErrNoRoute if there is no link between them (any more).
func (f *Fabric) Reset(a, b fabric.NodeID) error {
	p := pairOf(a, b)
	gone := fmt.Errorf("wire: node %d to %d: %w", a, b, fabric.ErrNoRoute)
	f.mu.Lock()
	j := f.links[p]
	f.mu.Unlock()
	if j == nil {
		return gone
	}
	err := errors.Join(j.a.failLink(errReset), j.b.failLink(errReset))
	<-j.a.Done()
	<-j.b.Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.links[p] {
	case j:
		delete(f.links, p)
		return errors.Join(err, f.linkNodes(f.nics[p.a].nic.(NICOf), f.nics[p.b].nic.(NICOf)))
	case nil: // one was detached meanwhile
		return gone
	}
	return err // another Reset has joined them
}

// SetFaults changes what happens to the packets from a to b from now on. The error wraps
// ErrNoRoute if there is no link between them (any more). ErrFaults: it cannot be.
func (f *Fabric) SetFaults(a, b fabric.NodeID, faults Faults) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.links[pairOf(a, b)]
	if j == nil {
		return fmt.Errorf("wire: node %d to %d: %w", a, b, fabric.ErrNoRoute)
	}
	if a < b {
		return j.endA.SetFaults(faults)
	}
	return j.endB.SetFaults(faults)
}

// Link returns a's end of the link between a and b, or nil.
func (f *Fabric) Link(a, b fabric.NodeID) *Link {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.links[pairOf(a, b)]
	switch {
	case j == nil:
		return nil
	case a < b:
		return j.a
	}
	return j.b
}
