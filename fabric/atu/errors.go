package atu

import (
	"fmt"
	"sync/atomic"

	"exnet/fabric"
)

// Reasons for which Translate refuses an access. Each wraps
// fabric.ErrProtection and has a counter of its own in Stats.
var (
	ErrUnmapped   = fmt.Errorf("atu: no region at the address: %w", fabric.ErrProtection)
	ErrBounds     = fmt.Errorf("atu: access leaves the region: %w", fabric.ErrProtection)
	ErrVPID       = fmt.Errorf("atu: region belongs to another VPID: %w", fabric.ErrProtection)
	ErrAccess     = fmt.Errorf("atu: access not permitted: %w", fabric.ErrProtection)
	ErrGeneration = fmt.Errorf("atu: address is out of date: %w", fabric.ErrProtection)
	ErrNode       = fmt.Errorf("atu: region is not open for the node: %w", fabric.ErrProtection)
)

// Stats are the counters of an ATU.
type Stats struct {
	Regions    uint64 // registered now
	Unmapped   uint64 // refused: no region at the address, or it is being closed
	Bounds     uint64 // refused: access leaves the region
	VPID       uint64 // refused: region of another VPID
	Access     uint64 // refused: read or write not permitted
	Generation uint64 // refused: address out of date
	Node       uint64 // refused: region not open for the node
}

type counters struct {
	unmapped, bounds, vpid, access, generation, node atomic.Uint64
}

// Stats returns the counters.
func (t *ATU) Stats() Stats {
	t.mu.Lock()
	regions := t.regions
	t.mu.Unlock()
	return Stats{
		Regions:    regions,
		Unmapped:   t.count.unmapped.Load(),
		Bounds:     t.count.bounds.Load(),
		VPID:       t.count.vpid.Load(),
		Access:     t.count.access.Load(),
		Generation: t.count.generation.Load(),
		Node:       t.count.node.Load(),
	}
}
