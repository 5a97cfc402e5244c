package routing

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"exnet/fabric/graph"
	"exnet/fabric/topo"
)

// Errors of routers.
var (
	// ErrInvalid says that there is no such router, or not for this network.
	ErrInvalid = errors.New("invalid router")
	// ErrNoRoute says that a flow's hosts are cut off from each other.
	ErrNoRoute = errors.New("no route")
)

// Flow is what a host sends to another one: vertices of the network.
type Flow struct {
	From, To int32
	Bytes    uint64
}

// Router chooses paths.
type Router struct {
	graph  *graph.Graph
	dist   *distances
	seed   uint64
	greedy bool // the heaviest flow first
	parts  int  // into which it divides a flow
	path   func(f Flow, l *Load, path []int32) ([]int32, error)
	direct func(f Flow, l *Load, path []int32) ([]int32, error) // of refine: the tables'
	search search
}

// Names are the routers that New knows.
var Names = []string{"tables", "dor", "dmodk", "smodk", "random", "minsum", "minmax", "refine", "alg3", "adaptive"}

// New returns a router by name for a network. The seed is that of random.
func New(name string, g *graph.Graph, seed uint64) (*Router, error) {
	r := &Router{graph: g, dist: newDistances(g), seed: seed, parts: 1}
	switch name {
	case "tables":
		r.path = r.usualWalk()
	case "dor":
		t := g.Routes()
		if t == nil || t.Topology().Kind() == topo.KindFree || len(t.Cut()) > 0 {
			return nil, fmt.Errorf("%w: dor is for a torus or mesh with all its links, not for %s", ErrInvalid, g.Name())
		}
		r.path = r.walkTables
	case "dmodk":
		r.path = r.shortestPath(func(f Flow, below, ways int) int { return g.HostIndex(f.To) / below % ways })
	case "smodk":
		r.path = r.shortestPath(func(f Flow, below, ways int) int { return g.HostIndex(f.From) / below % ways })
	case "random":
		r.path = r.shortestPath(r.randomBelow)
	case "minsum":
		r.greedy, r.path = true, r.leastLoaded(func(way, channel float64) float64 { return way + channel })
	case "minmax":
		r.greedy, r.path = true, r.leastLoaded(func(way, channel float64) float64 { return max(way, channel) })
	case "refine":
		r.direct, r.path = r.usualWalk(), r.leastLoaded(func(way, channel float64) float64 { return max(way, channel) })
	case "alg3":
		r.path = r.cheapestPath
	case "adaptive":
		r.parts, r.path = adaptiveParts, r.adaptivePath
	default:
		return nil, fmt.Errorf("%w: %q is not one of %s", ErrInvalid, name, strings.Join(Names, ", "))
	}
	return r, nil
}

// Route chooses a path for each flow between two different hosts, adds them to the
// load, and calls use with each flow and its channels, which are lent until it
// returns. The order is the router's own. It sorts flows in place. The adaptive router
// calls use for each part of a flow.
func (r *Router) Route(flows []Flow, l *Load, use func(Flow, []int32)) error {
	if r.direct != nil {
		return r.refineTables(flows, l, use)
	}
	if r.greedy {
		slices.SortStableFunc(flows, func(a, b Flow) int { return cmp.Compare(b.Bytes, a.Bytes) })
	}
	var path []int32
	for _, f := range flows {
		if f.From == f.To {
			continue
		}
		rest := f.Bytes
		for left := uint64(r.parts); left > 0 && rest > 0; left-- {
			f.Bytes = (rest + left - 1) / left
			rest -= f.Bytes
			var err error
			if path, err = r.path(f, l, path[:0]); err != nil {
				return err
			}
			for _, c := range path {
				l.Add(c, f.Bytes)
			}
			use(f, path)
		}
	}
	return nil
}

// adaptiveParts is into how many parts the adaptive router divides a flow, of which each finds its
// own path, as packets do.
const adaptiveParts = 16

// adaptivePath takes at each vertex the channel of a shortest path that carries the least now, as a
// crossbar does that knows its own channels only (S. Neuwirth, section 3.1).
func (r *Router) adaptivePath(f Flow, l *Load, path []int32) ([]int32, error) {
	row, anchor, last := r.dist.toHost(f.To)
	if row.hops[f.From] == far {
		return nil, r.noWay(f)
	}
	for at := f.From; at != anchor; {
		ways := r.dist.closerChannels(at, row)
		c := slices.MinFunc(ways, func(a, b int32) int { return cmp.Compare(l.relativeLoad(a), l.relativeLoad(b)) })
		path = append(path, c)
		at = r.graph.Channels()[c].To
	}
	if last >= 0 {
		path = append(path, last)
	}
	return path, nil
}

func (r *Router) noWay(f Flow) error {
	v := r.graph.Vertices()
	return fmt.Errorf("%w from %s to %s", ErrNoRoute, v[f.From].Name, v[f.To].Name)
}

// usualWalk walks as tables, or takes the first shortest path where there are none.
func (r *Router) usualWalk() func(Flow, *Load, []int32) ([]int32, error) {
	if r.graph.Routes() == nil {
		return r.shortestPath(func(Flow, int, int) int { return 0 })
	}
	return r.walkTables
}

// walkTables walks as the routing tables of the fabric say.
func (r *Router) walkTables(f Flow, _ *Load, path []int32) ([]int32, error) {
	routes, nodes := r.graph.Routes(), r.graph.Routes().Topology().Nodes()
	to := nodes[f.To]
	for at := f.From; at != f.To; {
		port := routes.Table(nodes[at]).Port(to)
		c, ok := r.channelAt(at, port)
		if !ok {
			return nil, r.noWay(f)
		}
		path = append(path, c)
		at = r.graph.Channels()[c].To
	}
	return path, nil
}

// channelAt is the channel at a port.
func (r *Router) channelAt(at int32, port topo.Port) (int32, bool) {
	for _, c := range r.graph.Out(at) {
		if r.graph.Channels()[c].Port == int(port) {
			return c, true
		}
	}
	return 0, false
}

// shortestPath takes a shortest path. Where several channels lead on, choose says which; below
// is the product of the numbers of ways at earlier choices.
func (r *Router) shortestPath(choose func(f Flow, below, ways int) int) func(Flow, *Load, []int32) ([]int32, error) {
	return func(f Flow, _ *Load, path []int32) ([]int32, error) {
		row, anchor, last := r.dist.toHost(f.To)
		if row.hops[f.From] == far {
			return nil, r.noWay(f)
		}
		below := 1
		for at := f.From; at != anchor; {
			ways := r.dist.closerChannels(at, row)
			c := ways[choose(f, below, len(ways))]
			below = min(below*len(ways), 1<<30)
			path = append(path, c)
			at = r.graph.Channels()[c].To
		}
		if last >= 0 {
			path = append(path, last)
		}
		return path, nil
	}
}

// randomBelow is a number below ways that depends on the seed, the pair and the place.
func (r *Router) randomBelow(f Flow, below, ways int) int {
	x := r.seed ^ uint64(f.From)<<40 ^ uint64(f.To)<<16 ^ uint64(below)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // splitmix64
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int((x ^ x>>31) >> 33 % uint64(ways))
}
