package exntun

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/internal/control"
)

// downTime is how long a node may take to end.
const downTime = 10 * time.Second

// nodeOptions says which nodes that are up are meant.
type nodeOptions struct {
	fabric string
	dir    string
	node   *fabric.NodeID // nil: all that there are
}

// parseNodeOptions reads the arguments of a command for nodes that are up. define
// adds flags of the command, and rest looks at what is behind the flags; nil:
// there may be nothing.
func parseNodeOptions(name string, args []string, rest func(*flag.FlagSet) error, define ...func(*flag.FlagSet)) (o nodeOptions, err error) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	where(fs, &o.fabric, &o.dir)
	nodeFlag(fs, &o.node)
	for _, d := range define {
		d(fs)
	}
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if rest == nil {
		rest = noArguments
	}
	if err := rest(fs); err != nil {
		return o, err
	}
	o.dir, err = dirOf(o.fabric, o.dir)
	return o, err
}

// nodes returns the nodes that are meant.
func (o nodeOptions) nodes() ([]emp.Description, error) {
	nodes, err := control.Nodes(o.dir)
	if err != nil {
		return nil, err
	}
	if o.node != nil {
		for _, n := range nodes {
			if n.Node == *o.node {
				return []emp.Description{n}, nil
			}
		}
	}
	if len(nodes) == 0 || o.node != nil {
		which := ""
		if o.node != nil {
			which = fmt.Sprintf(" with ID %d", *o.node)
		}
		return nil, fmt.Errorf("%w%s in %s: start one with exn-tun up", control.ErrNoNode, which, o.dir)
	}
	return nodes, nil
}

// askAll asks the nodes that are meant, but for those that are just starting or
// ending.
func askAll[T any](o nodeOptions, ask func(*control.Client) (T, error)) ([]T, error) {
	nodes, err := o.nodes()
	if err != nil {
		return nil, err
	}
	all := []T{}
	for _, n := range nodes {
		answer, err := askNode(o.dir, n, ask)
		if errors.Is(err, control.ErrNoNode) && len(nodes) > 1 {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, answer)
	}
	return all, nil
}

// askNode asks one node.
func askNode[T any](dir string, n emp.Description, ask func(*control.Client) (T, error)) (answer T, err error) {
	c, err := control.Dial(dir, n)
	if err != nil {
		return answer, err
	}
	defer c.Close()
	return ask(c)
}
