package exntun

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/topo"
	"exnet/internal/control"
	"exnet/internal/daemon"
)

// topoOptions are the arguments of "exn-tun topo".
type topoOptions struct {
	nodeOptions
	given *topo.Topology // nil: that of the nodes that are up
	svg   string         // file; "-": standard output; "": text
	json  bool
}

func parseTopo(args []string) (o topoOptions, err error) {
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
	var file string
	o.nodeOptions, err = parseNodeOptions("topo", args, nil, func(fs *flag.FlagSet) {
		fs.Func("torus", "", given(func(s string) (*topo.Topology, error) { return daemon.ParseTopology("torus:" + s) }))
		fs.Func("mesh", "", given(func(s string) (*topo.Topology, error) { return daemon.ParseTopology("mesh:" + s) }))
		fs.Func("file", "", given(func(s string) (*topo.Topology, error) { file = s; return nil, nil }))
		fs.Func("svg", "", func(s string) error {
			if s == "" {
				return errors.New("name a file, or - for standard output")
			}
			o.svg = s
			return nil
		})
		fs.BoolVar(&o.json, "json", false, "")
	})
	switch {
	case err != nil:
		return o, usageError{err}
	case o.json && o.svg != "":
		return o, usageError{errors.New("use one of --json and --svg")}
	case file != "":
		o.given, err = topo.ReadFile(file) // what is wrong is the file's fault
	}
	return o, err
}

// fabricTopology is a fabric with its load, and its JSON form.
type fabricTopology struct {
	*control.Topology
	Missing []fabric.NodeID `json:"missing"` // nodes that are not up

	topo *topo.Topology
	load []topo.LinkLoad
}

func (f *fabricTopology) drawing() *topo.Drawing {
	return &topo.Drawing{Topology: f.topo, Load: f.load, Missing: f.Missing}
}

// topologyOf asks the nodes that are meant, and adds up what they have put on the
// links.
func topologyOf(o nodeOptions) (*fabricTopology, error) {
	nodes, err := o.nodes()
	if err != nil {
		return nil, err
	}
	var f fabricTopology
	for _, n := range nodes {
		t, err := askTopology(o.dir, n)
		if errors.Is(err, control.ErrNoNode) && len(nodes) > 1 {
			continue // it is just starting or ending
		}
		if err != nil {
			return nil, err
		}
		if err := f.add(n.Node, t); err != nil {
			return nil, err
		}
	}
	if f.topo == nil {
		return nil, fmt.Errorf("%w in %s that answers", control.ErrNoNode, o.dir)
	}
	all, err := control.Nodes(o.dir)
	if err != nil {
		return nil, err
	}
	present := make([]fabric.NodeID, len(all))
	for i, n := range all {
		present[i] = n.Node
	}
	f.Missing, _ = f.topo.Compare(present)
	f.Topology = control.NewTopology(f.topo, f.load)
	return &f, nil
}

func askTopology(dir string, n emp.Description) (*control.Topology, error) {
	c, err := control.Dial(dir, n)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Topology()
}

// add adds the answer of a node.
func (f *fabricTopology) add(n fabric.NodeID, t *control.Topology) error {
	if t == nil {
		return fmt.Errorf("node %d has no topology: start the nodes with exn-tun up --topology, or say here which one to draw", n)
	}
	built, load, err := t.Build()
	if err != nil {
		return fmt.Errorf("node %d: %w", n, err)
	}
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

func runTopo(_ context.Context, p program, args []string) (err error) {
	o, err := parseTopo(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.stdout, topoHelp)
		return nil
	}
	if err != nil {
		return err
	}
	var f *fabricTopology
	if o.given != nil {
		f = &fabricTopology{Topology: control.NewTopology(o.given, nil), Missing: []fabric.NodeID{}, topo: o.given}
	} else if f, err = topologyOf(o.nodeOptions); err != nil {
		return err
	}
	switch {
	case o.json:
		return json.NewEncoder(p.stdout).Encode(f)
	case o.svg == "-":
		return f.drawing().WriteSVG(p.stdout)
	case o.svg != "":
		return writeFile(o.svg, f.drawing().WriteSVG)
	}
	return f.drawing().WriteText(p.stdout)
}

// writeFile writes a file, and leaves none that is not whole.
func writeFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(write(file), file.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}
