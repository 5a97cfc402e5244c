package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"

	"exnet/fabric"
	"exnet/fabric/link/wire"
	"exnet/napi"
)

// Counters are counters with their names, in an order that means something. Their
// JSON form is an object.
type Counters []Counter

// Counter is one of them.
type Counter struct {
	Name  string
	Value uint64
}

// Add adds counters with the name of their layer before each.
func (c *Counters) Add(layer string, all iter.Seq2[string, uint64]) {
	for name, v := range all {
		*c = append(*c, Counter{layer + name, v})
	}
}

// AddNAPI adds the counters of the poll list and of each source.
func (c *Counters) AddNAPI(layer string, s napi.Stats) {
	*c = append(*c,
		Counter{layer + "inline_runs", s.InlineRuns},
		Counter{layer + "thread_runs", s.ThreadRuns},
		Counter{layer + "deferred", s.Deferred})
	for _, src := range s.Sources {
		unit := layer + src.Name + "."
		*c = append(*c,
			Counter{unit + "interrupts", src.Interrupts},
			Counter{unit + "coalesced", src.Coalesced},
			Counter{unit + "expired", src.Expired},
			Counter{unit + "polls", src.Polls},
			Counter{unit + "frames", src.Frames},
			Counter{unit + "bytes", src.Bytes},
			Counter{unit + "exhausted", src.Exhausted},
			Counter{unit + "rescheduled", src.Rescheduled})
	}
}

// AddWire adds the counters of a link to a peer.
func (c *Counters) AddWire(peer fabric.NodeID, s wire.Stats) {
	c.Add(fmt.Sprintf("wire.node%d.", peer), s.All())
}

// Counters returns all counters of a node from the top to the bottom, with the
// name of the layer before each.
func (n *Node) Counters() (c Counters) {
	s := n.Interface.Stats()
	c.Add("ipstack.", n.Stack.Stats().All())
	c.Add("exn.", s.Counters.All())
	c.Add("exteth.", s.Port.All())
	c.AddNAPI("napi.", s.NAPI)
	c.Add("", s.NIC.All()) // they are named after the units
	return c
}

// MarshalJSON implements json.Marshaler. It keeps the order.
func (c Counters) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, e := range c {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, e.Name) // names are plain ASCII
		b = append(b, ':')
		b = strconv.AppendUint(b, e.Value, 10)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON implements json.Unmarshaler. It keeps the order.
func (c *Counters) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("node: counters are not an object: %w", err)
	}
	*c = nil
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return fmt.Errorf("node: counters: %w", err)
		}
		var v uint64
		if err := d.Decode(&v); err != nil {
			return fmt.Errorf("node: counter %v: %w", name, err)
		}
		*c = append(*c, Counter{name.(string), v}) // keys are strings
	}
	return nil
}
