package topo

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"exnet/fabric"
	"exnet/internal/display"
)

// WriteText writes the drawing as ASCII text: a torus or mesh plane by plane of equal z, a free
// topology as a list of nodes with their links, and pairs with the first node of each. The mark on
// a link says how much its busier direction has carried: 1 to 9 in proportion to the busiest of
// all, "." nothing, "x" cut. "!" marks missing nodes. The busiest directions follow in numbers,
// then the traffic through shared memory.
func (d *Drawing) WriteText(w io.Writer) error {
	t := d.Topology
	if len(t.nodes) > MaxDrawn {
		return fmt.Errorf("topo: %d nodes are too many to draw; the limit is %d: %w", len(t.nodes), MaxDrawn, fabric.ErrInvalid)
	}
	b := bufio.NewWriter(w)
	p := writer{Drawing: d, w: b, width: len(strconv.Itoa(int(slices.Max(t.nodes))))}
	_, p.peak = d.busiestChannel()
	fmt.Fprintln(b, t)
	switch t.kind {
	case KindFree:
		p.writeNodes()
	case KindPairs:
		p.writePairs()
	default:
		p.writePlanes()
	}
	p.writeLegend()
	if n := len(d.Missing); n > 0 {
		fmt.Fprintf(b, "%d of %d nodes are not there (!)\n\n", n, len(t.nodes))
	}
	p.writeBusiest(10)
	p.writeShared()
	return b.Flush() // the first error of all writes
}

// writer writes a drawing as text.
type writer struct {
	*Drawing
	w     *bufio.Writer
	width int // of a node ID
	peak  uint64
	drawn strings.Builder // the marks of links
}

// loadMark returns the load of the link at a port as one character.
func (p *writer) loadMark(at int32, port Port) string {
	h := p.Topology.hopAt(at, port)
	if h.node < 0 {
		return " "
	}
	return p.markOf(int(h.channel / 2))
}

// writeLegend says what the marks mean that are drawn.
func (p *writer) writeLegend() {
	var all []string
	for _, m := range []struct{ marks, text string }{
		{"123456789", "1-9: load in ninths of the busiest"},
		{".", ".: none"}, {"x", "x: cut"}, {"~", "~: goes round"},
	} {
		if strings.ContainsAny(p.drawn.String(), m.marks) {
			all = append(all, m.text)
		}
	}
	if len(all) > 0 {
		fmt.Fprintf(p.w, "links: %s\n\n", strings.Join(all, "; "))
	}
}

// markOf returns the load of a link as one character.
func (p *writer) markOf(link int) string {
	mark := "."
	if n := max(p.countsOf(2*link).Bytes, p.countsOf(2*link+1).Bytes); p.linkDown(link) {
		mark = "x"
	} else if n > 0 {
		mark = strconv.Itoa(1 + int(8*float64(n)/float64(p.peak)))
	}
	p.drawn.WriteString(mark)
	return mark
}

// writePlanes draws a grid:
//
//	z=0 (the mark after / is the link in +z)
//	 0/1-2- 1/1-2~
//	  3      3
func (p *writer) writePlanes() {
	d := p.Topology.dims
	for z := range d[2] {
		if d[2] > 1 {
			fmt.Fprintf(p.w, "\nz=%d (after the slash: the link in z+)\n", z)
		} else {
			fmt.Fprintln(p.w)
		}
		for y := range d[1] {
			var nodes, down strings.Builder
			for x := range d[0] {
				p.writeCell(&nodes, &down, int32(d.positionOf([3]int{x, y, z})), x == d[0]-1)
			}
			fmt.Fprintln(p.w, strings.TrimRight(nodes.String(), " "))
			if s := strings.TrimRight(down.String(), " "); s != "" {
				fmt.Fprintln(p.w, s)
			}
		}
	}
	fmt.Fprintln(p.w)
}

// idOf returns a node's ID, with a mark if the node is missing.
func (p *writer) idOf(n fabric.NodeID) string {
	switch s := fmt.Sprintf("%*d", p.width, n); {
	case p.isMissing(n):
		return s + "!"
	case len(p.Missing) > 0:
		return s + " "
	default:
		return s
	}
}

// writeCell draws a node with its links in x+ and z+, and below it the one in y+.
func (p *writer) writeCell(nodes, down *strings.Builder, at int32, last bool) {
	d := p.Topology.dims
	cell := p.idOf(p.Topology.nodes[at])
	if d[2] > 1 {
		cell += "/" + p.loadMark(at, PortZPlus)
	}
	right := p.loadMark(at, PortXPlus)
	switch {
	case right == " ":
		right = "   "
	case last:
		right = "-" + right + "~" // goes round
		p.drawn.WriteString("~")
	default:
		right = "-" + right + "-"
	}
	fmt.Fprintf(nodes, " %s %s", cell, right)
	below := fmt.Sprintf("%*s", p.width, p.loadMark(at, PortYPlus))
	fmt.Fprintf(down, " %-*s    ", len(cell), below)
}

// writeNodes writes a line for each node of a free topology.
func (p *writer) writeNodes() {
	fmt.Fprintln(p.w)
	for i, n := range p.Topology.nodes {
		fmt.Fprint(p.w, p.idOf(n))
		for port := range Ports {
			if e, ok := p.Topology.Neighbour(n, port); ok {
				fmt.Fprintf(p.w, "  %v -%s- %v", port, p.loadMark(int32(i), port), e)
			}
		}
		fmt.Fprintln(p.w)
	}
	fmt.Fprintln(p.w)
}

// writePairs writes a line for each node that has pairs with later ones.
func (p *writer) writePairs() {
	fmt.Fprintln(p.w)
	for _, n := range p.Topology.nodes {
		line := p.idOf(n)
		for i, l := range p.Topology.links {
			if l.A.Node == n {
				line += fmt.Sprintf("  -%s- %v", p.markOf(i), l.B)
			}
		}
		fmt.Fprintln(p.w, line)
	}
	fmt.Fprintln(p.w)
}

// writeBusiest lists the directions that have carried the most bytes, and the sum of all.
func (p *writer) writeBusiest(most int) {
	if p.peak == 0 {
		fmt.Fprintln(p.w, "no traffic")
		return
	}
	channels := make([]int, 0, 2*len(p.Load))
	for c := range cap(channels) {
		if p.countsOf(c).Bytes > 0 {
			channels = append(channels, c)
		}
	}
	slices.SortStableFunc(channels, func(a, b int) int {
		return cmp.Compare(p.countsOf(b).Bytes, p.countsOf(a).Bytes)
	})
	fmt.Fprintf(p.w, "%-24s %12s %12s\n", "busiest", "packets", "bytes")
	for _, c := range channels[:min(most, len(channels))] {
		from, to := p.channelEnds(c)
		p.writeRow(fmt.Sprintf("%v to %v", from, to), p.countsOf(c))
	}
	p.writeRow(fmt.Sprintf("all links (%d in use)", len(channels)), p.totalCounts())
}

// writeShared lists the traffic through shared memory.
func (p *writer) writeShared() {
	if len(p.Shared) == 0 {
		return
	}
	fmt.Fprintf(p.w, "\n%-24s %12s %12s\n", "shared memory, no link", "messages", "bytes")
	for _, s := range p.Shared {
		p.writeRow(s.String(), Counts{Packets: s.Messages, Bytes: s.Bytes})
	}
}

func (p *writer) writeRow(name string, c Counts) {
	packets := strconv.FormatUint(c.Packets, 10)
	if p.Topology.kind == KindPairs && c.Packets == 0 {
		packets = "-" // nobody counts them
	}
	fmt.Fprintf(p.w, "%-24s %12s %12s\n", name, packets, display.Bytes(c.Bytes))
}
