package exntun

import (
	"fmt"
	"io"

	"exnet/cmd/exn-tun/internal/lab"
	"exnet/internal/counter"
)

// countersOfLoop returns the counters of the loop that all nodes share.
func countersOfLoop(l *lab.Lab) (c counter.List) {
	c.Add("txloop.", l.Cluster.Loop.Stats().All())
	return c
}

// printCounters writes every counter, a line each. It only counts those that are 0: most of
// them are for things that should not happen.
func printCounters(w io.Writer, nodes []nodeInfo, dataPath counter.List) {
	zero := 0
	print := func(who string, c counter.List) {
		for _, e := range c {
			if e.Value == 0 {
				zero++
				continue
			}
			fmt.Fprintf(w, "  %-9s %-32s %14d\n", who, e.Name, e.Value)
		}
	}
	fmt.Fprintln(w, "counters")
	for _, n := range nodes {
		print(fmt.Sprintf("node %d", n.Node), n.Counters)
	}
	print("all", dataPath)
	fmt.Fprintf(w, "  %d more are 0\n", zero)
}
