package exntun

import (
	"fmt"
	"io"
	"iter"
	"strconv"

	"exnet/internal/node"
	"exnet/napi"
)

// counters are the counters of a node or of the data path. Their JSON form is an
// object.
type counters []counter

type counter struct {
	name  string
	value uint64
}

// MarshalJSON implements json.Marshaler. It keeps the order.
func (c counters) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, e := range c {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, e.name) // names are plain ASCII
		b = append(b, ':')
		b = strconv.AppendUint(b, e.value, 10)
	}
	return append(b, '}'), nil
}

// countersOf returns all counters of a node from the top to the bottom, with the
// name of the layer before each.
func countersOf(n *node.Node) (c counters) {
	s := n.Interface.Stats()
	c.add("ipstack.", n.Stack.Stats().All())
	c.add("exn.", s.Counters.All())
	c.add("exteth.", s.Port.All())
	c.addNAPI("napi.", s.NAPI)
	c.add("", s.NIC.All()) // they are named after the units
	return c
}

func (c *counters) add(layer string, all iter.Seq2[string, uint64]) {
	for name, v := range all {
		*c = append(*c, counter{layer + name, v})
	}
}

// addNAPI adds the counters of the poll list and of each source.
func (c *counters) addNAPI(layer string, s napi.Stats) {
	*c = append(*c,
		counter{layer + "inline_runs", s.InlineRuns},
		counter{layer + "thread_runs", s.ThreadRuns},
		counter{layer + "deferred", s.Deferred})
	for _, src := range s.Sources {
		unit := layer + src.Name + "."
		*c = append(*c,
			counter{unit + "interrupts", src.Interrupts},
			counter{unit + "coalesced", src.Coalesced},
			counter{unit + "expired", src.Expired},
			counter{unit + "polls", src.Polls},
			counter{unit + "frames", src.Frames},
			counter{unit + "bytes", src.Bytes},
			counter{unit + "exhausted", src.Exhausted},
			counter{unit + "rescheduled", src.Rescheduled})
	}
}

// countersOfLoop returns the counters of what all nodes share.
func countersOfLoop(l *lab) (c counters) {
	c.add("txloop.", l.cluster.Loop.Stats().All())
	return c
}

// printCounters writes every counter, a line each. Those that are 0 are only
// counted: most are of things that should not happen.
func printCounters(w io.Writer, nodes []nodeInfo, dataPath counters) {
	zero := 0
	print := func(who string, c counters) {
		for _, e := range c {
			if e.value == 0 {
				zero++
				continue
			}
			fmt.Fprintf(w, "  %-9s %-32s %14d\n", who, e.name, e.value)
		}
	}
	fmt.Fprintln(w, "counters")
	for _, n := range nodes {
		print(fmt.Sprintf("node %d", n.Node), n.Counters)
	}
	print("all", dataPath)
	fmt.Fprintf(w, "  %d more are 0\n", zero)
}
