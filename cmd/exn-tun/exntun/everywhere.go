package exntun

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/node/control"
)

// everyNode lists the nodes of a fabric: those of this host, and those of other hosts that they
// are linked with.
type everyNode struct {
	dir   string
	nodes []fabric.NodeID                   // the selected ones, this host's first
	asked map[fabric.NodeID]emp.Description // the node of this host to ask about each
}

// nodesEverywhere finds the selected nodes on all hosts.
func (o nodeOptions) nodesEverywhere() (*everyNode, error) {
	all := o
	all.node = nil
	here, err := all.selectedNodes()
	if err != nil {
		return nil, err
	}
	e := &everyNode{dir: o.dir, asked: make(map[fabric.NodeID]emp.Description)}
	for _, n := range here {
		e.nodes = append(e.nodes, n.Node)
		e.asked[n.Node] = n
	}
	isHere := o.node != nil && slices.Contains(e.nodes, *o.node)
	if !isHere {
		if err := e.addFar(here); err != nil {
			return nil, err
		}
	}
	if o.node == nil {
		return e, nil
	}
	if !slices.Contains(e.nodes, *o.node) {
		return nil, fmt.Errorf("%w with ID %d in %s or on a linked host: start one with exn-tun up", control.ErrNoNode, *o.node, o.dir)
	}
	e.nodes = []fabric.NodeID{*o.node}
	return e, nil
}

// addFar adds the nodes of other hosts.
func (e *everyNode) addFar(here []emp.Description) error {
	far := make(map[fabric.NodeID]bool)
	for _, n := range here {
		s, err := askNode(e.dir, n, (*control.Client).Status)
		if errors.Is(err, control.ErrNoNode) && len(here) > 1 {
			continue // it is just starting or ending
		}
		if err != nil {
			return err
		}
		for _, p := range s.Peers {
			id := fabric.NodeID(p.Node)
			if _, ok := e.asked[id]; !ok && p.Endpoint != "" && p.Link != "" {
				e.asked[id], far[id] = n, true
			}
		}
	}
	e.nodes = append(e.nodes, slices.Sorted(maps.Keys(far))...)
	return nil
}

// askOf asks a node, which may be on another host.
func askOf[T any](e *everyNode, n fabric.NodeID, ask func(*control.Client) (T, error)) (T, error) {
	through := e.asked[n]
	answer, err := askNode(e.dir, through, func(c *control.Client) (T, error) {
		if through.Node != n {
			c.Far = &n
		}
		return ask(c)
	})
	if err != nil {
		return answer, fmt.Errorf("node %d: %w", n, err)
	}
	return answer, nil
}
