package exntun

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"exnet/fabric"
	"exnet/fabric/topo"
	"exnet/fabric/topo/topofile"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/outfile"
	"exnet/node/control"
	"exnet/node/daemon"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// topoOptions are the flags of "exn-tun topo".
type topoOptions struct {
	nodeOptions
	given *topo.Topology // nil: that of the nodes that are up
	file  string         // with one; "": none
	svg   string         // file; "-": standard output; "": text
	json  bool
}

func newTopo() *cobra.Command {
	var o topoOptions
	c := &cobra.Command{
		Use: "topo [flags]", Short: "draw how a fabric is wired, and the load of each link",
		Long: `Draws how a fabric is wired. Without a topology in the flags it asks the nodes
that are up, on this host and on those that it is linked with: each link is
drawn with what it has carried, and nodes that are not up are marked. Nodes that
were started without exn-tun up --topology are drawn with a line to each that
they are linked with. What direct sockets have moved through shared memory is on
no link, and has lines of its own. With --node it shows what this node has sent
and fetched.`,
		Example: `exn-tun topo --torus 4x4x4
exn-tun topo --file lab.toml -o lab.svg
exn-tun topo --fabric lab
exn-tun topo --json | jq '.links[] | select(.ab.bytes > 0)'`,
		Args: command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runTopo(programOf(c), o) },
	}
	cli.Group(c.Flags(), "What to draw", o.defineGiven)
	cli.Group(c.Flags(), "How", func(fs *pflag.FlagSet) {
		fs.StringVarP(&o.svg, "output", "o", "", "`FILE` as SVG to a file, or - for standard output (as text)")
		fs.StringVar(&o.svg, "svg", "", "the former name of --output")
		_ = fs.MarkHidden("svg") // it fails for a flag that is not there
		fs.BoolVar(&o.json, "json", false, "one JSON object: nodes, links, packets and bytes")
	})
	cli.Group(c.Flags(), "For nodes that are up", o.defineFar)
	return c
}

// defineGiven defines the flags that give a topology.
func (o *topoOptions) defineGiven(fs *pflag.FlagSet) {
	flags := 0
	given := func(parse func(string) (*topo.Topology, error)) func(string) error {
		return func(s string) (err error) {
			if flags++; flags > 1 {
				return errors.New("use one of --torus, --mesh and --file")
			}
			o.given, err = parse(s)
			return err
		}
	}
	fs.Func("torus", "`DIMS` a torus, such as 8, 4x4 or 4x4x4; IDs from 1 on", given(func(s string) (*topo.Topology, error) { return daemon.ParseTopology("torus:" + s) }))
	fs.Func("mesh", "`DIMS` a mesh", given(func(s string) (*topo.Topology, error) { return daemon.ParseTopology("mesh:" + s) }))
	fs.Func("file", "`FILE` what a topology file says; see docs/design/fabric.md", given(func(s string) (*topo.Topology, error) { o.file = s; return nil, nil }))
}

// readFile reads the file that the flags name.
func (o *topoOptions) readFile() (err error) {
	if o.json && o.svg != "" {
		return cli.Usagef("use one of --json and --output")
	}
	if err := o.nodeOptions.findDirectory(); err != nil {
		return err
	}
	if o.file != "" {
		o.given, err = topofile.Read(o.file) // an error is the file's, not one of usage
	}
	return err
}

// fabricTopology is a fabric with its load, and its JSON form.
type fabricTopology struct {
	*control.Topology
	Missing []fabric.NodeID `json:"missing"` // nodes that are not up

	topo   *topo.Topology
	load   []topo.LinkLoad
	cut    []control.Ends // of any node
	shared []topo.Shared  // of all
	peers  []fabric.NodeID
	routes *topo.Routes // nil: no link is cut
}

func (f *fabricTopology) newDrawing() *topo.Drawing {
	return &topo.Drawing{Topology: f.topo, Load: f.load, Shared: f.shared, Missing: f.Missing, Routes: f.routes}
}

var errNoTopology = errors.New("no topology")

// topologyOf asks the selected nodes, on all hosts, and adds up what they have put on the
// links.
func topologyOf(o nodeOptions) (*fabricTopology, error) {
	all, err := o.nodesEverywhere()
	if err != nil {
		return nil, err
	}
	var f fabricTopology
	for _, n := range all.nodes {
		t, err := askOf(all, n, (*control.Client).Topology)
		if errors.Is(err, control.ErrNoNode) && len(all.nodes) > 1 {
			continue // it is just starting or ending
		}
		if err != nil {
			return nil, err
		}
		if err := f.addAnswer(n, t); err != nil {
			return nil, err
		}
	}
	if f.topo == nil {
		return nil, fmt.Errorf("%w in %s that answers", control.ErrNoNode, o.dir)
	}
	here, err := control.Nodes(o.dir)
	if err != nil {
		return nil, err
	}
	present := f.peers // nodes of other hosts, too
	for _, n := range here {
		present = append(present, n.Node)
	}
	slices.Sort(present)
	present = slices.Compact(present)
	f.Missing, _ = f.topo.Compare(present)
	cut := f.cut
	f.Topology = control.NewTopology(f.topo, f.load)
	f.Cut, f.Topology.Shared = cut, f.shared
	f.routes, err = routesWithout(f.topo, cut)
	return &f, err
}

// addAnswer adds the answer of a node.
func (f *fabricTopology) addAnswer(n fabric.NodeID, t *control.Topology) error {
	if t == nil {
		return fmt.Errorf("node %d has %w: start the nodes with the same exn-tun up --topology", n, errNoTopology)
	}
	built, load, err := t.Build()
	if err != nil {
		return fmt.Errorf("node %d: %w", n, err)
	}
	for _, l := range t.Cut {
		if !slices.Contains(f.cut, l) {
			f.cut = append(f.cut, l)
		}
	}
	f.shared, f.peers = append(f.shared, t.Shared...), append(f.peers, t.Peers...)
	if f.topo == nil {
		f.topo, f.load = built, load
		return nil
	}
	if built.String() != f.topo.String() || len(load) != len(f.load) {
		return fmt.Errorf("node %d has another topology: %v, not %v", n, built, f.topo)
	}
	for i, l := range load {
		f.load[i] = f.load[i].Add(l)
	}
	return nil
}

func runTopo(p program, o topoOptions) (err error) {
	if err := o.readFile(); err != nil {
		return err
	}
	var f *fabricTopology
	if o.given != nil {
		f = &fabricTopology{Topology: control.NewTopology(o.given, nil), Missing: []fabric.NodeID{}, topo: o.given}
	} else {
		f, err = topologyOf(o.nodeOptions)
		if errors.Is(err, errNoTopology) {
			f, err = pairsOf(o.nodeOptions)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case o.json:
		return json.NewEncoder(p.stdout).Encode(f)
	case o.svg == "-":
		return f.newDrawing().WriteSVG(p.stdout)
	case o.svg != "":
		return outfile.Write(o.svg, f.newDrawing().WriteSVG)
	}
	return f.newDrawing().WriteText(p.stdout)
}
