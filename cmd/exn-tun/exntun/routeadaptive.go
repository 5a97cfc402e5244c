package exntun

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"exnet/fabric"
	"exnet/fabric/topo"
	"exnet/internal/cli"
	"exnet/node/control"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newRouteAdaptive() *cobra.Command {
	var o nodeOptions
	c := &cobra.Command{
		Use: "adaptive on|off [flags]", Short: "route data by the load of the links",
		Long: `Has all nodes of a fabric whose topology is a torus or a mesh send the data of
RMA over any shortest path, by the load of the links, or over those of the
tables again. VELO's messages and multicasts stay in order, on the tables'
paths, and so do packets with a reservation. A node that joins later has the
setting adaptive_routing of its configuration.`,
		Example: `exn-tun route adaptive on
exn-tun topo`,
		ValidArgs: []string{"on", "off"},
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(c.ValidArgs, args[0]) {
				return cli.Usagef("%q: give one argument, on or off", strings.Join(args, " "))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.findDirectory(); err != nil {
				return err
			}
			return routeAdaptive(programOf(c), o, args[0] == "on")
		},
	}
	cli.Group(c.Flags(), "Nodes", func(fs *pflag.FlagSet) { fabricFlags(fs, &o.fabric, &o.dir) })
	return c
}

// routeAdaptive sets all nodes, or none.
func routeAdaptive(p program, o nodeOptions, on bool) error {
	f, err := routesOf(o)
	if err != nil {
		return err
	}
	if on && f.topo.Kind() == topo.KindFree {
		return fmt.Errorf("adaptive routing needs a torus or a mesh: the topology is %v", f.topo)
	}
	want := func(on bool) string {
		if on {
			return control.RouteAdaptive
		}
		return control.RouteOrdered
	}
	for i, n := range f.nodes {
		if _, err := f.askNode(n, control.RouteRequest{Want: want(on)}); err != nil {
			for j, done := range f.nodes[:i] {
				_, undo := f.askNode(done, control.RouteRequest{Want: want(f.reservations[j].Adaptive)})
				err = errors.Join(err, undo)
			}
			return err
		}
	}
	state := "ordered, by the tables"
	if on {
		state = "adaptive"
		if n := len(f.routes.Cut()); n > 0 {
			state = fmt.Sprintf("by the tables while links are down (%d), adaptive after that", n)
		}
	}
	fmt.Fprintf(p.stdout, "the data of RMA is %s on %d nodes\n", state, len(f.nodes))
	return nil
}

// adaptiveNodes lists the nodes that route data adaptively.
func (f *fabricRoutes) adaptiveNodes() (list []fabric.NodeID) {
	for i, n := range f.nodes {
		if f.reservations[i].Adaptive {
			list = append(list, n)
		}
	}
	return list
}
