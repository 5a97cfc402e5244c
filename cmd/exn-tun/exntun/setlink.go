package exntun

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"exnet/fabric"
	"exnet/fabric/graph"
	"exnet/fabric/topo"
	"exnet/internal/cli"
	"exnet/internal/display"
	"exnet/node/control"
)

// linkSetting is "link A-B up" or "link A-B down".
type linkSetting struct {
	ends control.Ends
	down bool
}

// parseLink reads what follows "link".
func parseLink(args []string) (*linkSetting, error) {
	wrong := cli.Usagef("%s: use link A-B down, or link A-B up, with the IDs of two nodes", strings.Join(append([]string{"link"}, args...), " "))
	if len(args) != 2 || args[1] != "up" && args[1] != "down" {
		return nil, wrong
	}
	a, b, ok := strings.Cut(args[0], "-")
	s := &linkSetting{down: args[1] == "down"}
	for i, text := range []string{a, b} {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || !ok {
			return nil, wrong
		}
		s.ends[i] = fabric.NodeID(n)
	}
	return s, nil
}

// routesWithout returns the routes of a topology without the links in cut.
func routesWithout(t *topo.Topology, cut []control.Ends) (*topo.Routes, error) {
	var links []int
	for _, l := range cut {
		i, ok := t.Between(l[0], l[1])
		if !ok {
			return nil, fmt.Errorf("no link joins node %d and node %d: %w", l[0], l[1], fabric.ErrNoRoute)
		}
		links = append(links, i)
	}
	return topo.NewRoutes(t, links...)
}

// placeDetours places the ways that differ from those of the fabric with all its links, and
// returns how many there are. Packets on such a way use the layers of overrides, too.
func (l layers) placeDetours(g *graph.Graph) (n int, err error) {
	now := g.Routes()
	if len(now.Cut()) == 0 {
		return 0, nil
	}
	all, err := topo.NewRoutes(now.Topology())
	if err != nil {
		return 0, err
	}
	refused := 0
	for _, a := range now.Topology().Nodes() {
		for _, b := range now.Topology().Nodes() {
			if a == b || !now.Reachable(a, b) {
				continue
			}
			usual, err := all.Path(a, b)
			if err != nil {
				return 0, err
			}
			path, err := now.Path(a, b)
			if err != nil {
				return 0, err
			}
			if slices.Equal(usual, path) {
				continue
			}
			n++
			o := topo.Override{From: a, To: b}
			for _, e := range path {
				o.Ports = append(o.Ports, e.Port)
			}
			if !l.placePath(channelsOf(g, o)) {
				refused++
			}
		}
	}
	if refused > 0 {
		return n, fmt.Errorf("%d of %d detours around the links that are down would close a cycle of waiting channels", refused, n)
	}
	return n, nil
}

// setOnNodes sets the link on all nodes, or on none, and prints the effect.
func (s *linkSetting) setOnNodes(p program, o nodeOptions) error {
	if o.node != nil {
		return cli.Usagef("a link is set on all nodes: leave out --node")
	}
	f, err := routesOf(o)
	if err != nil {
		return err
	}
	cut := slices.DeleteFunc(slices.Clone(f.reservations[0].Cut), func(l control.Ends) bool { return l == s.ends || l == control.Ends{s.ends[1], s.ends[0]} })
	if s.down {
		cut = append(cut, s.ends)
	}
	if _, ok := f.topo.Between(s.ends[0], s.ends[1]); !ok {
		return fmt.Errorf("no link joins node %d and node %d of %v", s.ends[0], s.ends[1], f.topo)
	}
	routes, err := routesWithout(f.topo, cut)
	if err != nil {
		return err
	}
	if n := len(routes.Parts()); n > 1 {
		return fmt.Errorf("the link from node %d to node %d stays up: without it the fabric falls into %d parts", s.ends[0], s.ends[1], n)
	}
	round, left, err := f.checkCycles(routes)
	if err != nil {
		return fmt.Errorf("the link from node %d to node %d is unchanged: %w", s.ends[0], s.ends[1], err)
	}
	if err := f.setLink(s); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "link %d-%d is %s on %s; links that are down: %d; pairs of nodes that go around them: %d", s.ends[0], s.ends[1],
		map[bool]string{false: "up", true: "down"}[s.down], display.Count(len(f.nodes), "node"), len(cut), round)
	if left > 0 {
		fmt.Fprintf(p.stdout, "; reserved routes that wait for them: %d", left)
	}
	fmt.Fprintln(p.stdout)
	return nil
}

// checkCycles checks that routes close no cycle with the reservations. It returns how many pairs
// leave their usual way (round), and how many reserved routes cross a cut link (left).
func (f *fabricRoutes) checkCycles(routes *topo.Routes) (round, left int, err error) {
	g, err := graph.FromTopology(f.topo.String(), routes)
	if err != nil {
		return 0, 0, err
	}
	existing, err := f.firstOverrides()
	if err != nil {
		return 0, 0, err
	}
	l := newLayers()
	for _, o := range existing {
		if _, err := routes.With([]topo.Override{o}); err != nil {
			left++
			continue
		}
		l.placePath(channelsOf(g, o))
	}
	round, err = l.placeDetours(g)
	return round, left, err
}

// setLink sets a link on all nodes. If a node refuses, it undoes the change on the others.
func (f *fabricRoutes) setLink(s *linkSetting) error {
	want, back := control.RouteJoin, control.RouteCut
	if s.down {
		want, back = back, want
	}
	for i, n := range f.nodes {
		_, err := f.askNode(n, control.RouteRequest{Want: want, Link: s.ends})
		if err == nil {
			continue
		}
		for _, done := range f.nodes[:i] {
			_, undo := f.askNode(done, control.RouteRequest{Want: back, Link: s.ends})
			err = errors.Join(err, undo)
		}
		return err
	}
	return nil
}
