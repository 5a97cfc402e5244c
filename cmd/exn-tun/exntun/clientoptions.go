package exntun

import (
	"errors"
	"fmt"
	"time"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/internal/cli"
	"exnet/node/control"

	"github.com/spf13/pflag"
)

// downTime is how long a node may take to end.
const downTime = 10 * time.Second

// nodeOptions selects among the nodes that are up.
type nodeOptions struct {
	fabric string
	dir    string
	node   *fabric.NodeID // nil: all of them
}

// defineFlags defines the flags that say which nodes.
func (o *nodeOptions) defineFlags(fs *pflag.FlagSet) {
	fabricFlags(fs, &o.fabric, &o.dir)
	nodeFlag(fs, &o.node, "`ID` this node only (all of the fabric on this host)")
}

// defineFar is define for commands that ask nodes of other hosts, too.
func (o *nodeOptions) defineFar(fs *pflag.FlagSet) {
	fabricFlags(fs, &o.fabric, &o.dir)
	nodeFlag(fs, &o.node, "`ID` this node only (all of the fabric, on this host and on others)")
}

// findDirectory finds the directory, once the flags are read.
func (o *nodeOptions) findDirectory() (err error) {
	if o.dir, err = dirOf(o.fabric, o.dir); err != nil {
		return cli.UsageError{Err: err}
	}
	return nil
}

// selectedNodes returns the selected nodes.
func (o nodeOptions) selectedNodes() ([]emp.Description, error) {
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
		if o.node != nil {
			return nil, notRunning{*o.node, o.dir}
		}
		return nil, fmt.Errorf("%w in %s: exn-tun up starts one, exn-tun fabrics lists what runs", control.ErrNoNode, o.dir)
	}
	return nodes, nil
}

// askAll asks the selected nodes. If there are several, it skips those that are just starting
// or ending.
func askAll[T any](o nodeOptions, ask func(*control.Client) (T, error)) ([]T, error) {
	nodes, err := o.selectedNodes()
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

// notRunning is a control.ErrNoNode that names the node.
type notRunning struct {
	node fabric.NodeID
	dir  string
}

func (e notRunning) Error() string {
	return fmt.Sprintf("node %d is not running in %s: exn-tun fabrics lists what runs", e.node, e.dir)
}
func (notRunning) Unwrap() error { return control.ErrNoNode }
