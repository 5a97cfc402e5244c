package node

import (
	"fmt"

	"exnet/fabric"
	"exnet/fabric/link/wire"
	"exnet/internal/counter"
	"exnet/napi"
)

// addNAPI adds the counters of the poll list and of each source.
func addNAPI(c *counter.List, layer string, s napi.Stats) {
	add := func(name string, v uint64) { *c = append(*c, counter.Value{Name: layer + name, Value: v}) }
	add("inline_runs", s.InlineRuns)
	add("thread_runs", s.ThreadRuns)
	add("deferred", s.Deferred)
	for _, src := range s.Sources {
		add(src.Name+".interrupts", src.Interrupts)
		add(src.Name+".coalesced", src.Coalesced)
		add(src.Name+".expired", src.Expired)
		add(src.Name+".polls", src.Polls)
		add(src.Name+".frames", src.Frames)
		add(src.Name+".bytes", src.Bytes)
		add(src.Name+".exhausted", src.Exhausted)
		add(src.Name+".rescheduled", src.Rescheduled)
	}
}

// AddWire adds the counters of a link to a peer to a list.
func AddWire(c *counter.List, peer fabric.NodeID, s wire.Stats) {
	c.Add(fmt.Sprintf("wire.node%d.", peer), s.All())
}

// Counters returns all counters of a node from the top to the bottom, with the
// name of the layer before each.
func (n *Node) Counters() (c counter.List) {
	s := n.Interface.Stats()
	if n.Stack != nil {
		c.Add("ipstack.", n.Stack.Stats().All())
	}
	if n.Ether != nil {
		c.Add("etherhost.", n.Ether.Stats().All())
	}
	c.Add("exn.", s.Counters.All())
	c.Add("exteth.", s.Port.All())
	addNAPI(&c, "napi.", s.NAPI)
	c.Add("", s.NIC.All()) // they are named after the units
	return c
}
