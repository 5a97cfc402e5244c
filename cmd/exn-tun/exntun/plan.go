package exntun

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"exnet/fabric"
	"exnet/fabric/graph"
	"exnet/fabric/pattern"
	"exnet/fabric/pattern/pfprof"
	"exnet/fabric/routing"
	"exnet/fabric/topo"
)

// primitiveFlows returns the flows of a primitive, such as bcast, between nodes, the first of
// which is the root. The error has a line for each node that is not in the topology or appears
// twice.
func primitiveFlows(name string, nodes []fabric.NodeID, t *topo.Topology) ([]routing.Flow, error) {
	p, err := pattern.Make(name, pattern.Params{Ranks: len(nodes), Bytes: 1 << 20, Class: 'A', Flows: len(nodes), Seed: 1})
	if err != nil {
		return nil, fmt.Errorf("--primitive: %w", err)
	}
	at := make([]int32, len(nodes))
	var errs []error
	for i, n := range nodes {
		at[i] = int32(slices.Index(t.Nodes(), n))
		if at[i] < 0 {
			errs = append(errs, fmt.Errorf("--nodes: node %d is not in the topology (%v)", n, t))
		}
		if slices.Contains(nodes[:i], n) {
			errs = append(errs, fmt.Errorf("--nodes: node %d appears twice", n))
		}
	}
	var flows []routing.Flow
	for _, f := range p.Flows {
		flows = append(flows, routing.Flow{From: at[f.From], To: at[f.To], Bytes: f.Bytes})
	}
	return flows, errors.Join(errs...)
}

// nodeFlows reads a pattern and adds up what nodes send each other. The error has a line for
// each node that is not in the topology.
func nodeFlows(path string, t *topo.Topology) ([]routing.Flow, error) {
	if !strings.HasSuffix(path, ".csv") {
		all, err := pattern.ReadProcesses(path)
		if err != nil {
			return nil, err
		}
		return flowsOf(path, all, t)
	}
	p, _, err := pattern.ReadFile(path)
	if err != nil {
		return nil, err
	}
	says := func(rank int32) string { return fmt.Sprintf("%s names node %d", filepath.Base(path), rank) }
	return flowsBetween(p, func(rank int32) int { return int(rank) }, says, t) // its ranks are node IDs
}

// flowsBetween adds up what nodes send each other in a pattern. nodes returns the node of a
// rank; says returns in words what places the rank there, for errors.
func flowsBetween(p *pattern.Pattern, nodes func(rank int32) int, says func(rank int32) string, t *topo.Topology) ([]routing.Flow, error) {
	at := make(map[int]int32)
	for i, n := range t.Nodes() {
		at[int(n)] = int32(i)
	}
	sum := make(map[[2]int32]uint64)
	missing := make(map[int]bool)
	var errs []error
	for _, f := range p.Flows {
		var ends [2]int32
		for i, rank := range []int32{f.From, f.To} {
			v, ok := at[nodes(rank)]
			if !ok && !missing[nodes(rank)] {
				missing[nodes(rank)] = true
				errs = append(errs, fmt.Errorf("%s, which is not in the topology (%v)", says(rank), t))
			}
			ends[i] = v
		}
		if ends[0] != ends[1] {
			sum[ends] += f.Bytes
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var flows []routing.Flow
	for ends, bytes := range sum {
		flows = append(flows, routing.Flow{From: ends[0], To: ends[1], Bytes: bytes})
	}
	slices.SortFunc(flows, func(a, b routing.Flow) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return flows, nil
}

// flowsOf adds up what nodes send each other in a recording. Ranks whose node the recording
// does not name are on the topology's nodes in order.
func flowsOf(path string, all []pfprof.Process, t *topo.Topology) ([]routing.Flow, error) {
	p, _, err := pattern.Join(all)
	if err != nil {
		return nil, err
	}
	on, place := make([]int, len(all)), make([]string, len(all))
	for _, r := range all {
		place[r.Rank] = cmp.Or(r.Place, path)
		switch {
		case r.Node != nil:
			on[r.Rank] = *r.Node
		case r.Rank < len(t.Nodes()):
			on[r.Rank] = int(t.Nodes()[r.Rank])
		default:
			on[r.Rank] = -1
		}
	}
	says := func(rank int32) string {
		if on[rank] < 0 {
			return fmt.Sprintf("%s: rank %d is on a node of its own", place[rank], rank)
		}
		return fmt.Sprintf("%s: rank %d is on node %d", place[rank], rank, on[rank])
	}
	return flowsBetween(p, func(rank int32) int { return on[rank] }, says, t)
}

// plan is what a reservation would change.
type plan struct {
	overrides []topo.Override
	refused   int // ways that would have closed a cycle
	past      int // pairs that do not go through the node of --via
	before    uint64
	after     uint64 // the largest load of a link, in bytes of the pattern
}

// virtualChannels is the number of layers of virtual channels that only overrides use.
const virtualChannels = 4

// wish says which ways to compute.
type wish struct {
	router string
	via    *fabric.NodeID // in place of the router
	class  fabric.Class   // of the packets; 0: all packets that have no routes of their own
}

// routeFlows chooses the ways of flows, calls use for each, and returns the load.
func (w wish) routeFlows(g *graph.Graph, flows []routing.Flow, use func(routing.Flow, []int32)) (*routing.Load, error) {
	if w.via == nil {
		return loadOf(g, w.router, flows, use)
	}
	t := g.Routes().Topology()
	v := slices.Index(t.Nodes(), *w.via)
	if v < 0 {
		return nil, fmt.Errorf("--via: node %d is not in the topology (%v)", *w.via, t)
	}
	r, err := routing.NewVia(g, int32(v))
	if err != nil {
		return nil, err
	}
	l := routing.NewLoad(g)
	return l, r.Route(slices.Clone(flows), l, use)
}

// planRoutes computes the ways for flows. With a class, every flow gets an override: ways
// without a class, reserved before or after, must not move its packets. Packets with an override
// stay in one layer of virtual channels, apart from the tables' packets, so it is enough that
// each layer is free of cycles. existing are the overrides in use.
func planRoutes(routes *topo.Routes, w wish, flows []routing.Flow, existing []topo.Override) (*plan, error) {
	g, err := graph.FromTopology(routes.Topology().String(), routes)
	if err != nil {
		return nil, err
	}
	tables := make(map[[2]int32][]int32)
	static, err := loadOf(g, "tables", flows, func(f routing.Flow, path []int32) { tables[[2]int32{f.From, f.To}] = slices.Clone(path) })
	if err != nil {
		return nil, err
	}
	layers := newLayers()
	for _, o := range existing {
		layers.placePath(channelsOf(g, o))
	}
	if _, err := layers.placeDetours(g); err != nil {
		return nil, err
	}
	p := &plan{before: slices.Max(append(static.Peak, 0))}
	after := routing.NewLoad(g)
	_, err = w.routeFlows(g, flows, func(f routing.Flow, path []int32) {
		if w.via != nil && !flowVisits(g, f, path, *w.via) {
			p.past++
		}
		way := tables[[2]int32{f.From, f.To}]
		if w.class != 0 || !slices.Equal(path, way) {
			if layers.placePath(path) {
				way = path
				p.overrides = append(p.overrides, overrideOf(g, f, w.class, path))
			} else {
				p.refused++
			}
		}
		for _, c := range way {
			after.Add(c, f.Bytes)
		}
	})
	p.after = slices.Max(append(after.Peak, 0))
	return p, err
}

// flowVisits reports whether a flow begins at, passes through or ends at a node.
func flowVisits(g *graph.Graph, f routing.Flow, path []int32, n fabric.NodeID) bool {
	v := int32(slices.Index(g.Routes().Topology().Nodes(), n))
	return f.From == v || slices.ContainsFunc(path, func(c int32) bool { return g.Channels()[c].To == v })
}

func loadOf(g *graph.Graph, router string, flows []routing.Flow, use func(routing.Flow, []int32)) (*routing.Load, error) {
	r, err := routing.New(router, g, 1)
	if err != nil {
		return nil, err
	}
	l := routing.NewLoad(g)
	return l, r.Route(slices.Clone(flows), l, use)
}

// layers are layers of virtual channels, each free of cycles.
type layers struct{ dependencies *routing.Dependencies }

func newLayers() layers { return layers{routing.NewDependencies()} }

// placePath puts a path into the first layer where it closes no cycle. It returns false if there
// is none.
func (l layers) placePath(path []int32) bool {
	for v := range uint8(virtualChannels) {
		hops := make([]routing.Hop, len(path))
		for i, c := range path {
			hops[i] = routing.Hop{Channel: c, Virtual: v}
		}
		if l.dependencies.Try(hops) {
			return true
		}
	}
	return false
}

func overrideOf(g *graph.Graph, f routing.Flow, class fabric.Class, path []int32) topo.Override {
	nodes := g.Routes().Topology().Nodes()
	o := topo.Override{From: nodes[f.From], To: nodes[f.To], Class: class}
	for _, c := range path {
		o.Ports = append(o.Ports, topo.Port(g.Channels()[c].Port))
	}
	return o
}

// channelsOf returns the channels of an override.
func channelsOf(g *graph.Graph, o topo.Override) (path []int32) {
	at := int32(slices.Index(g.Routes().Topology().Nodes(), o.From))
	for _, p := range o.Ports {
		for _, c := range g.Out(at) {
			if g.Channels()[c].Port == int(p) {
				path = append(path, c)
				at = g.Channels()[c].To
				break
			}
		}
	}
	return path
}
