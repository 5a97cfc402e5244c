package topo

import (
	"fmt"
	"slices"

	"exnet/fabric"
	"exnet/internal/display"
)

// MaxDrawn is how many nodes a drawing can have.
const MaxDrawn = 4096

// Drawing is a picture of a topology, as text or SVG.
type Drawing struct {
	Topology *Topology
	// Routes say which links are cut; none if nil.
	Routes *Routes
	// Load is what each link has carried, as Load.Links returns it; nothing if nil.
	Load []LinkLoad
	// Flows says that the packets of Load are flows.
	Flows bool
	// Peak is the load in bytes that is drawn darkest; set it to compare drawings. 0
	// means the largest load.
	Peak uint64
	// Shared is the traffic through shared memory, which crosses no link.
	Shared []Shared
	// Missing are the nodes to mark as missing, in ascending order.
	Missing []fabric.NodeID
}

// Shared is the traffic from programs behind a node to programs behind another node of the host,
// or the same node, through memory that both map. It crosses no link.
type Shared struct {
	From     fabric.NodeID `json:"from"`
	To       fabric.NodeID `json:"to"`
	Bytes    uint64        `json:"bytes"`
	Messages uint64        `json:"messages"`
}

func (s Shared) String() string { return fmt.Sprintf("%d to %d", s.From, s.To) }

// isMissing reports whether a node is missing.
func (d *Drawing) isMissing(n fabric.NodeID) bool {
	_, found := slices.BinarySearch(d.Missing, n)
	return found
}

// unitNames names what a Load counts besides bytes.
func (d *Drawing) unitNames() string {
	if d.Flows {
		return "flows"
	}
	return "packets"
}

// amountText writes what a Load counts, in words.
func (d *Drawing) amountText(c Counts) string {
	if d.Topology.kind == KindPairs { // nobody counts packets
		return display.Bytes(c.Bytes)
	}
	return fmt.Sprintf("%d %s, %s", c.Packets, d.unitNames(), display.Bytes(c.Bytes))
}

// linkDown reports whether a link is cut.
func (d *Drawing) linkDown(link int) bool { return d.Routes != nil && d.Routes.Down(link) }

// countsOf returns what a channel has carried.
func (d *Drawing) countsOf(channel int) Counts {
	switch {
	case channel/2 >= len(d.Load):
		return Counts{}
	case channel%2 == 0:
		return d.Load[channel/2].AB
	}
	return d.Load[channel/2].BA
}

// busiestChannel returns the channel that has carried the most bytes, and their number.
func (d *Drawing) busiestChannel() (channel int, bytes uint64) {
	for c := range 2 * len(d.Load) {
		if b := d.countsOf(c).Bytes; b > bytes {
			channel, bytes = c, b
		}
	}
	return channel, bytes
}

// totalCounts returns the sum over all channels.
func (d *Drawing) totalCounts() (sum Counts) {
	for _, l := range d.Load {
		sum = sum.plus(l.AB).plus(l.BA)
	}
	return sum
}

// channelEnds returns where a channel begins and ends.
func (d *Drawing) channelEnds(channel int) (from, to End) {
	l := d.Topology.links[channel/2]
	if channel%2 == 0 {
		return l.A, l.B
	}
	return l.B, l.A
}
