package topo

import (
	"errors"
	"fmt"
	"slices"

	"exnet/fabric"
)

// Override is the route of packets from one node to another, in place of the tables: the
// ports at which they leave each node. With a Class it applies to the packets of that
// class only; without, to all classes that have no override of their own.
type Override struct {
	From, To fabric.NodeID
	Class    fabric.Class
	Ports    []Port
}

// tagged is the key of an Override.
type tagged struct {
	from, to fabric.NodeID
	class    fabric.Class
}

// overrideFor returns the channels that packets of a class take in place of the tables.
func (r *Routes) overrideFor(a, b fabric.NodeID, c fabric.Class) ([]int32, bool) {
	if r.overrideChannels == nil {
		return nil, false
	}
	if c != 0 {
		if over, ok := r.overrideChannels[tagged{a, b, c}]; ok {
			return over, true
		}
	}
	over, ok := r.overrideChannels[tagged{a, b, 0}]
	return over, ok
}

// With returns routes that differ from r only in their overrides: list replaces those of
// r. Multicasts do not use overrides. The error wraps fabric.ErrInvalid and has a line for
// each Override that does not lead from one end to the other, crosses a cut link, visits a
// node twice, or appears twice.
func (r *Routes) With(list []Override) (*Routes, error) {
	n := &Routes{topo: r.topo, down: r.down, part: r.part, tables: r.tables, shelf: r.shelf}
	var errs []error
	for _, o := range list {
		key := tagged{o.From, o.To, o.Class}
		channels, err := r.channelsOf(o)
		if _, ok := n.overrideChannels[key]; ok && err == nil {
			err = errors.New("it appears twice")
		}
		if !o.Class.Valid() && err == nil {
			err = fmt.Errorf("class %d: use 0 to %d", o.Class, fabric.Classes-1)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("topo: override from node %d to node %d: %w: %w", o.From, o.To, err, fabric.ErrInvalid))
			continue
		}
		if n.overrideChannels == nil {
			n.overrideChannels = make(map[tagged][]int32, len(list))
		}
		n.overrideChannels[key] = channels
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return n, nil
}

// channelsOf returns the channels of an override.
func (r *Routes) channelsOf(o Override) (channels []int32, err error) {
	at, to := r.topo.positionOf(o.From), r.topo.positionOf(o.To)
	if at < 0 || to < 0 || at == to {
		return nil, errors.New("it does not join two nodes")
	}
	seen := []int32{at}
	for _, p := range o.Ports {
		if !p.Valid() {
			return nil, fmt.Errorf("no port %v", p)
		}
		h := r.topo.hopAt(at, p)
		switch {
		case h.node < 0:
			return nil, fmt.Errorf("node %d has no link at port %v", r.topo.nodes[at], p)
		case r.Down(int(h.channel / 2)):
			return nil, fmt.Errorf("link %v is cut", r.topo.links[h.channel/2])
		case slices.Contains(seen, h.node):
			return nil, fmt.Errorf("it visits node %d twice", r.topo.nodes[h.node])
		}
		channels, at = append(channels, h.channel), h.node
		seen = append(seen, at)
	}
	if at != to {
		return nil, fmt.Errorf("it ends at node %d", r.topo.nodes[at])
	}
	return channels, nil
}

// exitsOf returns where packets leave the nodes of an override.
func (r *Routes) exitsOf(channels []int32) []End {
	path := make([]End, len(channels))
	for i, c := range channels {
		path[i] = r.topo.links[c/2].A
		if c%2 == 1 {
			path[i] = r.topo.links[c/2].B
		}
	}
	return path
}
