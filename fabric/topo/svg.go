package topo

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"exnet/fabric"
	"exnet/internal/display"
)

// WriteSVG writes the drawing as SVG. Each direction of a link is a separate line, to the right of
// the other as seen by the packets; the more it has carried, the darker and wider it is. Traffic
// through shared memory is dotted. Links that close a ring of a torus are drawn as dashed stubs at
// both ends. Missing nodes are dashed. Pointing at a line shows its numbers.
func (d *Drawing) WriteSVG(w io.Writer) error {
	t := d.Topology
	if len(t.nodes) > MaxDrawn {
		return fmt.Errorf("topo: %d nodes are too many to draw; the limit is %d: %w", len(t.nodes), MaxDrawn, fabric.ErrInvalid)
	}
	p := painter{Drawing: d, w: bufio.NewWriter(w)}
	if t.kind == KindFree || t.kind == KindPairs {
		p.layout = ringLayout(len(t.nodes))
	} else {
		p.layout = gridLayout(t.dims)
	}
	if p.peak = d.Peak; p.peak == 0 {
		_, p.peak = d.busiestChannel()
	}
	p.paint()
	return p.w.Flush() // the first error of all writes
}

// painter writes an SVG.
type painter struct {
	*Drawing
	layout
	w    *bufio.Writer
	peak uint64 // bytes of the channel that has carried the most
}

func (p *painter) printf(format string, args ...any) { fmt.Fprintf(p.w, format, args...) }

// Sizes of the legend: its width is at most that of a telephone's screen.
const (
	legendWidth = 340.0
	scaleWidth  = 240.0
	scaleHeight = 40.0 // with the title above, and its ends below
	lineHeight  = 18.0
)

func (p *painter) paint() {
	lines := p.describeLines()
	width, height := max(p.size.x, legendWidth), p.size.y+scaleHeight+lineHeight*float64(len(lines)+1)
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="sans-serif">
<rect width="100%%" height="100%%" fill="#fff"/>
<g stroke-linecap="round" transform="translate(%.0f 0)">
`, width, height, width, height, (width-p.size.x)/2)
	for i := range p.Topology.links {
		p.paintLink(i)
	}
	p.drawShared()
	p.printf("</g>\n<g font-size=\"10\" text-anchor=\"middle\" fill=\"#222\" transform=\"translate(%.0f 0)\">\n", (width-p.size.x)/2)
	for i, n := range p.Topology.nodes {
		p.drawNode(p.at[i], n)
	}
	p.printf("</g>\n")
	p.drawLegend(lines)
	p.printf("</svg>\n")
}

func (p *painter) drawNode(at point, n fabric.NodeID) {
	look, size := `fill="#fff" stroke="#444"`, ""
	if p.isMissing(n) {
		look = `fill="#eee" stroke="#999" stroke-dasharray="2 2"`
	}
	p.printf(`<circle cx="%.1f" cy="%.1f" r="%.0f" %s stroke-width="1.2"/>`, at.x, at.y, nodeRadius, look)
	switch { // five digits fit too
	case n > 9999:
		size = ` font-size="6.5"`
	case n > 999:
		size = ` font-size="8"`
	}
	p.printf("<text x=\"%.1f\" y=\"%.1f\"%s>%d</text>\n", at.x, at.y+3.5, size, n)
}

func (p *painter) paintLink(i int) {
	l := p.Topology.links[i]
	a, b := p.at[p.Topology.positionOf(l.A.Node)], p.at[p.Topology.positionOf(l.B.Node)]
	if !p.isClosingRing(l) {
		p.drawDirections(i, a, b, "")
		return
	}
	out := p.axes[l.A.Port/2]
	out = out.times(stub / out.length())
	p.drawDirections(i, a, a.plus(out), ` stroke-dasharray="4 3"`)
	p.drawDirections(i, b.minus(out), b, ` stroke-dasharray="4 3"`)
}

// isClosingRing reports whether l closes a ring of a torus.
func (p *painter) isClosingRing(l Link) bool {
	t := p.Topology
	if t.kind != KindTorus {
		return false
	}
	dim := l.A.Port / 2
	return t.dims.coordsOf(int(t.positionOf(l.A.Node)))[dim] > t.dims.coordsOf(int(t.positionOf(l.B.Node)))[dim]
}

// drawDirections draws both directions of a link, or of a stub of it, from a to b.
func (p *painter) drawDirections(i int, a, b point, style string) {
	if p.linkDown(i) {
		p.paintCut(i, a, b)
		return
	}
	side := a.toward(b).right().times(2.6)
	p.paintLine(2*i, a.plus(side), b.plus(side), style)
	p.paintLine(2*i+1, a.minus(side), b.minus(side), style)
}

func (p *painter) paintLine(channel int, a, b point, style string) {
	c := p.countsOf(channel)
	level := 0.0
	if p.peak > 0 {
		level = float64(c.Bytes) / float64(p.peak)
	}
	from, to := p.channelEnds(channel)
	p.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f"%s><title>%v to %v: %s</title></line>`+"\n",
		a.x, a.y, b.x, b.y, display.Colour(level), 1.4+2.6*level, style, from, to, p.amountText(c))
}

// drawShared draws the traffic through shared memory, dotted: a curve between two nodes, a
// circle at one.
func (p *painter) drawShared() {
	const look = `stroke="#2b7a78" stroke-width="1.6" stroke-dasharray="0.1 3.5" fill="none"`
	for _, s := range p.Shared {
		if !p.Topology.Has(s.From) || !p.Topology.Has(s.To) {
			continue
		}
		a, b := p.at[p.Topology.positionOf(s.From)], p.at[p.Topology.positionOf(s.To)]
		shape := fmt.Sprintf(`M%.1f %.1fa%.0f %.0f 0 1 0 0.1 0`, a.x, a.y-nodeRadius-4, nodeRadius+4, nodeRadius+4)
		if s.From != s.To {
			bow := a.between(b).plus(a.toward(b).right().times(14))
			shape = fmt.Sprintf(`M%.1f %.1fQ%.1f %.1f %.1f %.1f`, a.x, a.y, bow.x, bow.y, b.x, b.y)
		}
		p.printf(`<path d="%s" %s><title>%v in shared memory, on no link: %d messages, %s</title></path>`+"\n", shape, look, s, s.Messages, display.Bytes(s.Bytes))
	}
}

func (p *painter) paintCut(i int, a, b point) {
	m, l := a.between(b), p.Topology.links[i]
	p.printf(`<g stroke="#1f5fbf"><title>%v: cut</title><line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke-width="1" stroke-dasharray="2 4"/>`, l, a.x, a.y, b.x, b.y)
	p.printf(`<path d="M%.1f %.1fl10 10m0 -10l-10 10" stroke-width="2.5" fill="none"/></g>`+"\n", m.x-5, m.y-5)
}

// plain escapes the text of an element. (Package html would make exn-run 77 KB larger.)
var plain = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// drawLegend draws what the drawing is of and the scale of colours, and lines below.
func (p *painter) drawLegend(lines []string) {
	p.printf("<g font-size=\"12\" fill=\"#222\" transform=\"translate(%.0f %.0f)\">\n", margin, p.size.y+8)
	p.printf("<text font-size=\"14\" font-weight=\"bold\">%s</text>\n", plain.Replace(p.Topology.String()))
	y := 4.0
	if _, most := p.busiestChannel(); most > 0 {
		const steps, width = 24, scaleWidth / 24
		for s := range steps {
			p.printf(`<rect x="%.0f" y="14" width="%.0f" height="10" fill="%s"/>`, float64(s)*width, width, display.Colour(float64(s)/(steps-1)))
		}
		p.printf("\n<text y=\"%.0f\">0</text><text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">%s</text>\n", scaleHeight, scaleWidth, scaleHeight, display.Bytes(p.peak))
		y = scaleHeight
	}
	for _, text := range lines {
		y += lineHeight
		p.printf("<text y=\"%.0f\">%s</text>\n", y, plain.Replace(text))
	}
	p.printf("</g>\n")
}

// describeLines says what the links have carried, and what the marks in the drawing mean.
func (p *painter) describeLines() (list []string) {
	if c, most := p.busiestChannel(); most > 0 {
		sum := p.totalCounts()
		all := p.amountText(sum)
		if p.Flows { // a flow counts on several links
			all = display.Bytes(sum.Bytes)
		}
		from, to := p.channelEnds(c)
		list = append(list, fmt.Sprintf("most: %v to %v", from, to), "all links: "+all)
	} else {
		list = append(list, "no traffic")
	}
	if slices.ContainsFunc(p.Topology.links, p.isClosingRing) {
		list = append(list, "dashed: the link goes round")
	}
	if len(p.Shared) > 0 {
		sum := uint64(0)
		for _, s := range p.Shared {
			sum += s.Bytes
		}
		list = append(list, "dotted: shared memory, no link, "+display.Bytes(sum))
	}
	if len(p.Missing) > 0 {
		list = append(list, "grey circle: not up")
	}
	for i := range p.Topology.links {
		if p.linkDown(i) {
			list = append(list, "blue cross: cut")
			break
		}
	}
	return list
}
