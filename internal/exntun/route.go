package exntun

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"exnet/fabric"
	"exnet/fabric/crossbar"
	"exnet/fabric/emp"
	"exnet/fabric/topo"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/control"
	"exnet/study/graph"
	"exnet/study/pattern"
	"exnet/study/routing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// routeOptions are the flags of "exn-tun route".
type routeOptions struct {
	nodeOptions
	id, pattern, router string
}

func newRoute() *cobra.Command {
	c := &cobra.Command{
		Use: "route COMMAND [flags]", Short: "give the traffic of a pattern ways of its own",
		Long: `Computes ways for a pattern of traffic, such as exn-tun profile has recorded,
and has all nodes of a fabric with a topology use them in place of their tables.`,
		Example: `exn-tun profile start
exn-tun profile stop -o run.json
exn-tun route reserve --pattern run.json
exn-tun route list
exn-tun route release --id run.json`,
		RunE: func(*cobra.Command, []string) error { return cli.Usagef("say what to do: reserve, release or list") },
	}
	var reserve, release, list routeOptions
	add := func(use, short, long string, o *routeOptions, run func(program, routeOptions) error, define ...func(*pflag.FlagSet)) {
		sub := &cobra.Command{
			Use: use + " [flags]", Short: short, Long: long, Args: command.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				if err := o.resolve(); err != nil {
					return err
				}
				return run(programOf(c), *o)
			},
		}
		for _, d := range define {
			cli.Group(sub.Flags(), "What", d)
		}
		cli.Group(sub.Flags(), "Nodes", func(fs *pflag.FlagSet) { where(fs, &o.fabric, &o.dir) })
		c.AddCommand(sub)
	}
	add("reserve", "ways for a pattern", `Computes ways for a pattern and installs those that differ from the tables: on
all nodes that are up, or on none. No new way can be part of a cycle of channels
that wait for each other; one that would be is left out, and said.`, &reserve, reserveRoutes, func(fs *pflag.FlagSet) {
		fs.StringVar(&reserve.pattern, "pattern", "", "`FILE` a profile, a recording in PFProf's form, or CSV with from, to (node IDs), bytes")
		fs.StringVar(&reserve.router, "router", "minmax", "`NAME` how: minmax, minsum, dmodk, smodk, random or alg3")
		fs.StringVar(&reserve.id, "id", "", "`NAME` of the reservation (the file's)")
	})
	add("release", "end a reservation", "Ends a reservation: the tables count again.", &release, releaseRoutes, func(fs *pflag.FlagSet) {
		fs.StringVar(&release.id, "id", "", "`NAME` of the reservation")
	})
	add("list", "show the reservations", "Shows the reservations, and whether each node has them.", &list, listRoutes)
	return c
}

// fabricRoutes are the nodes of a fabric with their reservations.
type fabricRoutes struct {
	dir    string
	nodes  []emp.Description
	has    []*control.Reservations // by node
	topo   *topo.Topology
	routes *topo.Routes // without the links that are cut on the first node
}

func routesOf(o nodeOptions) (*fabricRoutes, error) {
	f := &fabricRoutes{dir: o.dir}
	var err error
	if f.nodes, err = o.nodes(); err != nil {
		return nil, err
	}
	for _, n := range f.nodes {
		r, err := f.ask(n, control.RouteRequest{Want: control.RouteList})
		if err != nil {
			return nil, err
		}
		f.has = append(f.has, r)
	}
	t, err := askNode(o.dir, f.nodes[0], (*control.Client).Topology)
	if err != nil {
		return nil, err
	}
	if f.topo, _, err = t.Build(); err != nil {
		return nil, err
	}
	f.routes, err = routesWithout(f.topo, f.has[0].Cut)
	return f, err
}

func (f *fabricRoutes) ask(n emp.Description, req control.RouteRequest) (*control.Reservations, error) {
	r, err := askNode(f.dir, n, func(c *control.Client) (*control.Reservations, error) { return c.Routes(req) })
	if err != nil {
		return nil, fmt.Errorf("node %d: %w", n.Node, err)
	}
	return r, nil
}

// nodeFlows reads a pattern and adds up what nodes send each other. The error has a line
// for each node that is not there.
func nodeFlows(path string, t *topo.Topology) ([]routing.Flow, error) {
	p, nodes, err := readPattern(path, t)
	if err != nil {
		return nil, err
	}
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
				errs = append(errs, fmt.Errorf("%s: rank %d is on node %d, which is not in the topology (%v)", path, rank, nodes(rank), t))
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

// readPattern reads a pattern, and says on which node each rank is: a recording may say,
// and has its ranks on the topology's nodes in order if not; those of CSV are node IDs.
func readPattern(path string, t *topo.Topology) (*pattern.Pattern, func(rank int32) int, error) {
	if strings.HasSuffix(path, ".csv") {
		p, _, err := pattern.ReadFile(path)
		return p, func(rank int32) int { return int(rank) }, err
	}
	all, err := pattern.ReadProcesses(path)
	if err != nil {
		return nil, nil, err
	}
	p, _, err := pattern.Join(all)
	if err != nil {
		return nil, nil, err
	}
	on := make([]int, len(all))
	for _, r := range all {
		switch {
		case r.Node != nil:
			on[r.Rank] = *r.Node
		case r.Rank < len(t.Nodes()):
			on[r.Rank] = int(t.Nodes()[r.Rank])
		default:
			on[r.Rank] = -1
		}
	}
	return p, func(rank int32) int { return on[rank] }, nil
}

// plan is what a reservation would change.
type plan struct {
	overrides []topo.Override
	refused   int // ways that would have closed a cycle
	before    uint64
	after     uint64 // the largest load of a link, in bytes of the pattern
}

// virtualChannels is how many layers of virtual channels overrides have to themselves.
const virtualChannels = 4

// plans computes the ways for flows. Packets with an override are in a layer of virtual
// channels of their own, which they do not leave: so the tables' packets play no part,
// and each layer must be free of cycles. existing are the overrides that there are.
func plans(routes *topo.Routes, router string, flows []routing.Flow, existing []topo.Override) (*plan, error) {
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
		layers.place(channelsOf(g, o))
	}
	if _, err := layers.placeDetours(g); err != nil {
		return nil, err
	}
	p := &plan{before: slices.Max(append(static.Peak, 0))}
	after := routing.NewLoad(g)
	_, err = loadOf(g, router, flows, func(f routing.Flow, path []int32) {
		way := tables[[2]int32{f.From, f.To}]
		if !slices.Equal(path, way) {
			if layers.place(path) {
				way = path
				p.overrides = append(p.overrides, overrideOf(g, f, path))
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

func loadOf(g *graph.Graph, router string, flows []routing.Flow, use func(routing.Flow, []int32)) (*routing.Load, error) {
	r, err := routing.New(router, g, 1)
	if err != nil {
		return nil, err
	}
	l := routing.NewLoad(g)
	return l, r.Route(slices.Clone(flows), l, use)
}

// layers are layers of virtual channels, each free of cycles.
type layers struct{ of *routing.Dependencies }

func newLayers() layers { return layers{routing.NewDependencies()} }

// place puts a path into the first layer where it closes no cycle; false: there is none.
func (l layers) place(path []int32) bool {
	for v := range uint8(virtualChannels) {
		hops := make([]routing.Hop, len(path))
		for i, c := range path {
			hops[i] = routing.Hop{Channel: c, Virtual: v}
		}
		if l.of.Try(hops) {
			return true
		}
	}
	return false
}

func overrideOf(g *graph.Graph, f routing.Flow, path []int32) topo.Override {
	nodes := g.Routes().Topology().Nodes()
	o := topo.Override{From: nodes[f.From], To: nodes[f.To]}
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

func reserveRoutes(p program, o routeOptions) error {
	if o.pattern == "" {
		return cli.Usagef("say with --pattern whose traffic")
	}
	if o.id == "" {
		o.id = o.pattern[strings.LastIndexByte(o.pattern, '/')+1:]
	}
	f, err := routesOf(o.nodeOptions)
	if err != nil {
		return err
	}
	flows, err := nodeFlows(o.pattern, f.topo)
	if err != nil {
		return err
	}
	existing, err := f.overrides()
	if err != nil {
		return err
	}
	plan, err := plans(f.routes, o.router, flows, existing)
	if err != nil {
		return err
	}
	if err := f.install(o.id, plan.overrides); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "%s: %d pairs of nodes, %d with ways of their own, on %d nodes; largest load of a link %d bytes by the tables, %d now",
		o.id, len(flows), len(plan.overrides), len(f.nodes), plan.before, plan.after)
	if plan.refused > 0 {
		fmt.Fprintf(p.stdout, "; %d left out, which would have closed a cycle of channels", plan.refused)
	}
	fmt.Fprintln(p.stdout)
	return nil
}

// overrides are those of the first node.
func (f *fabricRoutes) overrides() (list []topo.Override, err error) {
	for _, s := range f.has[0].List {
		built, err := s.Build()
		if err != nil {
			return nil, err
		}
		list = append(list, built.Overrides...)
	}
	return list, nil
}

// install makes a reservation on all nodes: first all say that they can, then all do.
func (f *fabricRoutes) install(id string, overrides []topo.Override) error {
	if n := len(overrides); n > crossbar.MaxOverrides {
		return fmt.Errorf("%d overrides do not fit; the limit is %d", n, crossbar.MaxOverrides)
	}
	s := control.Reservation{ID: id}
	for _, o := range overrides {
		s.Overrides = append(s.Overrides, control.NewOverride(o))
	}
	for _, want := range []string{control.RouteCheck, control.RouteReserve} {
		for i, n := range f.nodes {
			_, err := f.ask(n, control.RouteRequest{Want: want, Reserve: s, Changes: f.has[i].Changes})
			if err == nil {
				continue
			}
			if want == control.RouteReserve { // who has it gives it up again
				for _, done := range f.nodes[:i] {
					_, undo := f.ask(done, control.RouteRequest{Want: control.RouteRelease, Reserve: control.Reservation{ID: id}})
					err = errors.Join(err, undo)
				}
			}
			return err
		}
	}
	return nil
}

func releaseRoutes(_ program, o routeOptions) error {
	if o.id == "" {
		return cli.Usagef("say with --id which one")
	}
	f, err := routesOf(o.nodeOptions)
	if err != nil {
		return err
	}
	var errs []error
	found := false
	for i, n := range f.nodes {
		if !slices.ContainsFunc(f.has[i].List, func(s control.Reservation) bool { return s.ID == o.id }) {
			continue
		}
		found = true
		_, err := f.ask(n, control.RouteRequest{Want: control.RouteRelease, Reserve: control.Reservation{ID: o.id}})
		errs = append(errs, err)
	}
	if !found {
		return fmt.Errorf("no node has a reservation %q", o.id)
	}
	return errors.Join(errs...)
}

func listRoutes(p program, o routeOptions) error {
	f, err := routesOf(o.nodeOptions)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "reservation\toverrides\tcut\tnot on nodes")
	seen := make(map[string]bool)
	for _, r := range f.has {
		for _, s := range r.List {
			if seen[s.ID] {
				continue
			}
			seen[s.ID] = true
			cut := 0
			for _, v := range s.Overrides {
				if v.Cut {
					cut++
				}
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", s.ID, len(s.Overrides), cut, f.without(s.ID))
		}
	}
	return w.Flush()
}

// without lists the nodes that do not have a reservation, such as those that came later.
func (f *fabricRoutes) without(id string) string {
	var list []fabric.NodeID
	for i, n := range f.nodes {
		if !slices.ContainsFunc(f.has[i].List, func(s control.Reservation) bool { return s.ID == id }) {
			list = append(list, n.Node)
		}
	}
	if list == nil {
		return "-"
	}
	return strings.Trim(fmt.Sprint(list), "[]")
}
