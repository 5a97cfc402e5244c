package exntun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"exnet/fabric"
	"exnet/fabric/crossbar"
	"exnet/fabric/routing"
	"exnet/fabric/topo"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/node/control"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// routeOptions are the flags of "exn-tun route".
type routeOptions struct {
	nodeOptions
	id, pattern, primitive, router string
	ranks, via                     string // node IDs
	tag                            int
	while                          int // a process; 0: for ever
	json                           bool
}

func newRoute() *cobra.Command {
	c := &cobra.Command{
		Use: "route COMMAND [flags]", Short: "give the traffic of a pattern paths of its own",
		Long: `Computes routes for a pattern of traffic, such as exn-tun profile has recorded,
and has all nodes of a fabric with a topology use them in place of their tables.`,
		Example: `exn-tun profile start
exn-tun profile stop -o run.json
exn-tun route reserve --pattern run.json
exn-tun route list
exn-tun route release --id run.json
exn-tun route reserve --primitive bcast --via 1 --tag 10`,
		RunE: command.Choose,
	}
	var reserve, release, list routeOptions
	add := func(use, short, long string, o *routeOptions, run func(context.Context, program, routeOptions) error, define ...func(*pflag.FlagSet)) {
		sub := &cobra.Command{
			Use: use + " [flags]", Short: short, Long: long, Args: command.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				if err := o.findDirectory(); err != nil {
					return err
				}
				return run(c.Context(), programOf(c), *o)
			},
		}
		for _, d := range define {
			cli.Group(sub.Flags(), "What", d)
		}
		cli.Group(sub.Flags(), "Nodes", func(fs *pflag.FlagSet) { fabricFlags(fs, &o.fabric, &o.dir) })
		c.AddCommand(sub)
	}
	add("reserve", "routes for a pattern", `Computes routes for a pattern and installs those that differ from the tables: on
all nodes that are up, or on none. No new route can be part of a cycle of
channels that wait for each other: such a route is left out, and the output says
how many are. With --while it leaves a process behind, which releases them when
that process has ended; routes that others have already are left to them.`, &reserve, reserveRoutes, func(fs *pflag.FlagSet) {
		fs.StringVar(&reserve.pattern, "pattern", "", "`FILE` a profile, a recording in PFProf's form, or CSV with from, to (node IDs), bytes")
		fs.StringVar(&reserve.primitive, "primitive", "", "`NAME` in place of a file: bcast, reduce, allreduce, alltoall, ring, halo2d or halo3d")
		fs.StringVar(&reserve.ranks, "nodes", "", "`LIST` of a primitive's nodes such as 5,6,7, the root first (all of the topology)")
		fs.StringVar(&reserve.router, "router", "refine", "`NAME` how: refine, minmax, minsum, dmodk, smodk, random or alg3")
		fs.StringVar(&reserve.via, "via", "", "`NODE` in place of a router: through this node, unless that leads back")
		fs.IntVar(&reserve.tag, "tag", 0, "`N` for packets of this class alone, 1 to 63: the DSCP of IP packets (0: for all without routes of their own)")
		fs.StringVar(&reserve.id, "id", "", "`NAME` of the reservation (the file's, or the primitive's)")
		cli.Number(fs, &reserve.while, "while", 1, math.MaxInt32, "`PID` until this process ends (until exn-tun route release)")
	})
	add("release", "end a reservation", "Ends a reservation: the tables count again.", &release, releaseRoutes, func(fs *pflag.FlagSet) {
		fs.StringVar(&release.id, "id", "", "`NAME` of the reservation")
	})
	add("list", "show the reservations", "Shows the reservations, and whether each node has them.", &list, listRoutes, func(fs *pflag.FlagSet) {
		fs.BoolVar(&list.json, "json", false, "one JSON object: adaptive nodes, and the reservations with all routes")
	})
	c.AddCommand(newRouteAdaptive(), newRoutePage())
	return c
}

// fabricRoutes are the nodes of a fabric with their reservations.
type fabricRoutes struct {
	*everyNode
	reservations []*control.Reservations // by node
	topo         *topo.Topology
	routes       *topo.Routes // without the links that are cut on the first node
}

func routesOf(o nodeOptions) (*fabricRoutes, error) {
	all, err := o.nodesEverywhere()
	if err != nil {
		return nil, err
	}
	f := &fabricRoutes{everyNode: all}
	t, err := askOf(all, f.nodes[0], (*control.Client).Topology)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, fmt.Errorf("node %d: the fabric has no topology: start the nodes with exn-tun up --topology", f.nodes[0])
	}
	for _, n := range f.nodes {
		r, err := f.askNode(n, control.RouteRequest{Want: control.RouteList})
		if err != nil {
			return nil, err
		}
		f.reservations = append(f.reservations, r)
	}
	if f.topo, _, err = t.Build(); err != nil {
		return nil, err
	}
	f.routes, err = routesWithout(f.topo, f.reservations[0].Cut)
	return f, err
}

func (f *fabricRoutes) askNode(n fabric.NodeID, req control.RouteRequest) (*control.Reservations, error) {
	return askOf(f.everyNode, n, func(c *control.Client) (*control.Reservations, error) { return c.Routes(req) })
}

// routeWish returns what --router, --via and --tag ask for.
func (o routeOptions) routeWish() (wish, error) {
	w := wish{router: o.router}
	switch {
	case o.pattern+o.primitive == "":
		return w, cli.Usagef("name the traffic with --pattern or --primitive")
	case o.pattern != "" && o.primitive != "":
		return w, cli.Usagef("--pattern and --primitive exclude each other: leave one out")
	case o.ranks != "" && o.primitive == "":
		return w, cli.Usagef("--nodes goes with --primitive")
	case o.tag < 0 || o.tag >= fabric.Classes:
		return w, cli.Usagef("--tag %d: use 1 to %d", o.tag, fabric.Classes-1)
	}
	w.class = fabric.Class(o.tag)
	if o.via != "" {
		n, err := parseNodes(o.via)
		if err != nil || len(n) != 1 {
			return w, cli.Usagef("--via %s: name a node", o.via)
		}
		w.via = &n[0]
	}
	return w, nil
}

// readFlows returns the flows to compute routes for.
func (o routeOptions) readFlows(t *topo.Topology) ([]routing.Flow, error) {
	if o.primitive == "" {
		return nodeFlows(o.pattern, t)
	}
	nodes := t.Nodes()
	if o.ranks != "" {
		var err error
		if nodes, err = parseNodes(o.ranks); err != nil {
			return nil, err
		}
	}
	return primitiveFlows(o.primitive, nodes, t)
}

// parseNodes reads node IDs with commas between them.
func parseNodes(list string) (nodes []fabric.NodeID, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, cli.Usagef("%q in %q is not a node: use 0 to 65535", text, list)
		}
		nodes = append(nodes, fabric.NodeID(n))
	}
	return nodes, nil
}

func reserveRoutes(ctx context.Context, p program, o routeOptions) error {
	if o.id == "" {
		o.id = o.pattern[strings.LastIndexByte(o.pattern, '/')+1:] + o.primitive
	}
	if o.while != 0 {
		return reserveWhile(ctx, p, o)
	}
	text, err := o.makeReservation()
	fmt.Fprint(p.stdout, text)
	return err
}

// makeReservation makes a reservation, and returns a line about it.
func (o routeOptions) makeReservation() (text string, err error) {
	w, err := o.routeWish()
	if err != nil {
		return "", err
	}
	f, err := routesOf(o.nodeOptions)
	if err != nil {
		return "", err
	}
	flows, err := o.readFlows(f.topo)
	if err != nil {
		return "", err
	}
	existing, err := f.firstOverrides()
	if err != nil {
		return "", err
	}
	plan, err := planRoutes(f.routes, w, flows, existing)
	if err != nil {
		return "", err
	}
	others := 0
	if o.while != 0 {
		others = plan.removeReserved(existing)
	}
	if err := f.installOverrides(o.id, plan.overrides); err != nil {
		return "", err
	}
	text = fmt.Sprintf("%s: %d pairs of nodes, %d with routes of their own, on %d nodes; largest load of a link %d bytes by the tables, %d now",
		o.id, len(flows), len(plan.overrides), len(f.nodes), plan.before, plan.after)
	if plan.refused > 0 {
		text += fmt.Sprintf("; %d left out, which would have closed a cycle of channels", plan.refused)
	}
	if plan.past > 0 {
		text += fmt.Sprintf("; %d pairs not through node %s, which would lead back", plan.past, o.via)
	}
	if others > 0 {
		text += fmt.Sprintf("; %d left to other reservations", others)
	}
	return text + "\n", nil
}

// removeReserved takes the routes out of a plan that other reservations have, and counts them.
func (p *plan) removeReserved(existing []topo.Override) int {
	n := len(p.overrides)
	p.overrides = slices.DeleteFunc(p.overrides, func(o topo.Override) bool {
		return slices.ContainsFunc(existing, func(e topo.Override) bool { return e.From == o.From && e.To == o.To && e.Class == o.Class })
	})
	return n - len(p.overrides)
}

// firstOverrides returns the overrides of the first node.
func (f *fabricRoutes) firstOverrides() (list []topo.Override, err error) {
	for _, s := range f.reservations[0].List {
		built, err := s.Build()
		if err != nil {
			return nil, err
		}
		list = append(list, built.Overrides...)
	}
	return list, nil
}

// installOverrides makes a reservation on all nodes, or on none. It first asks all of them whether
// they can.
func (f *fabricRoutes) installOverrides(id string, overrides []topo.Override) error {
	if n := len(overrides); n > crossbar.MaxOverrides {
		return fmt.Errorf("%d overrides do not fit; the limit is %d", n, crossbar.MaxOverrides)
	}
	s := control.Reservation{ID: id}
	for _, o := range overrides {
		s.Overrides = append(s.Overrides, control.NewOverride(o))
	}
	for _, want := range []string{control.RouteCheck, control.RouteReserve} {
		for i, n := range f.nodes {
			_, err := f.askNode(n, control.RouteRequest{Want: want, Reserve: s, Changes: f.reservations[i].Changes})
			if err == nil {
				continue
			}
			if want == control.RouteReserve { // undo it on the nodes that have it
				for _, done := range f.nodes[:i] {
					_, undo := f.askNode(done, control.RouteRequest{Want: control.RouteRelease, Reserve: control.Reservation{ID: id}})
					err = errors.Join(err, undo)
				}
			}
			return err
		}
	}
	return nil
}

func releaseRoutes(_ context.Context, _ program, o routeOptions) error {
	if o.id == "" {
		return cli.Usagef("name the reservation with --id; exn-tun route list shows them")
	}
	f, err := routesOf(o.nodeOptions)
	if err != nil {
		return err
	}
	var errs []error
	found := false
	for i, n := range f.nodes {
		if !slices.ContainsFunc(f.reservations[i].List, func(s control.Reservation) bool { return s.ID == o.id }) {
			continue
		}
		found = true
		_, err := f.askNode(n, control.RouteRequest{Want: control.RouteRelease, Reserve: control.Reservation{ID: o.id}})
		errs = append(errs, err)
	}
	if !found {
		return fmt.Errorf("no node has a reservation %q: exn-tun route list shows them", o.id)
	}
	return errors.Join(errs...)
}

// listed are the reservations of a fabric, and the JSON form of exn-tun route list.
type listed struct {
	Adaptive     []fabric.NodeID     `json:"adaptive"` // nodes that route data of RMA by the load
	Reservations []listedReservation `json:"reservations"`
}

type listedReservation struct {
	control.Reservation
	Missing []fabric.NodeID `json:"missing"` // nodes that do not have it, such as those that came later
}

func (f *fabricRoutes) listRoutes() listed {
	l := listed{Adaptive: append([]fabric.NodeID{}, f.adaptiveNodes()...), Reservations: []listedReservation{}}
	seen := make(map[string]bool)
	for _, r := range f.reservations {
		for _, s := range r.List {
			if !seen[s.ID] {
				seen[s.ID] = true
				l.Reservations = append(l.Reservations, listedReservation{s, f.nodesWithout(s.ID)})
			}
		}
	}
	return l
}

func listRoutes(_ context.Context, p program, o routeOptions) error {
	f, err := routesOf(o.nodeOptions)
	if err != nil {
		return err
	}
	l := f.listRoutes()
	if o.json {
		return json.NewEncoder(p.stdout).Encode(l)
	}
	if len(l.Adaptive) > 0 {
		fmt.Fprintf(p.stdout, "adaptive on nodes %s\n", joinSpaced(l.Adaptive))
	}
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "reservation\toverrides\tclass\tcut\tnot on nodes")
	for _, s := range l.Reservations {
		cut := 0
		for _, v := range s.Overrides {
			if v.Cut {
				cut++
			}
		}
		missing := choose(len(s.Missing) == 0, "-", joinSpaced(s.Missing))
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\n", s.ID, len(s.Overrides), classesOf(s.Reservation), cut, missing)
	}
	return w.Flush()
}

// joinSpaced lists numbers with spaces between them.
func joinSpaced[T any](list []T) string { return strings.Trim(fmt.Sprint(list), "[]") }

// classesOf lists the classes of a reservation's overrides, in order.
func classesOf(s control.Reservation) string {
	var list []fabric.Class
	for _, o := range s.Overrides {
		if o.Class != 0 {
			list = append(list, o.Class)
		}
	}
	if list == nil {
		return "-"
	}
	slices.Sort(list)
	return joinSpaced(slices.Compact(list))
}

// nodesWithout lists the nodes that do not have a reservation.
func (f *fabricRoutes) nodesWithout(id string) []fabric.NodeID {
	list := []fabric.NodeID{}
	for i, n := range f.nodes {
		if !slices.ContainsFunc(f.reservations[i].List, func(s control.Reservation) bool { return s.ID == id }) {
			list = append(list, n)
		}
	}
	return list
}
