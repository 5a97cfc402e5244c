package graph

import (
	"bufio"
	"fmt"
	"io"

	"exnet/fabric/topo"
	"exnet/internal/display"
)

// WriteSVG draws the network with what each channel has carried: the more, the darker
// and wider. Pointing at a channel shows its numbers. peak is the load, in bytes a unit of
// capacity, that is drawn darkest; give drawings that are compared the same. 0 means the largest
// here. A fabric looks as exn-tun topo draws it; other networks have their hosts at the bottom and
// switches in rows above.
func (g *Graph) WriteSVG(w io.Writer, bytes, flows []uint64, peak float64) error {
	if n := len(g.vertices); n > topo.MaxDrawn {
		return fmt.Errorf("%w: %d vertices are too many to draw; the limit is %d", ErrInvalid, n, topo.MaxDrawn)
	}
	if g.routes != nil {
		d := topo.Drawing{Topology: g.routes.Topology(), Routes: g.routes, Flows: true, Load: make([]topo.LinkLoad, len(g.channels)/2)}
		if len(g.channels) > 0 { // all have one capacity
			d.Peak = uint64(peak * g.channels[0].Capacity)
		}
		for l := range d.Load {
			d.Load[l] = topo.LinkLoad{
				AB: topo.Counts{Packets: flows[2*l], Bytes: bytes[2*l]},
				BA: topo.Counts{Packets: flows[2*l+1], Bytes: bytes[2*l+1]},
			}
		}
		return d.WriteSVG(w)
	}
	p := painter{g: g, w: bufio.NewWriter(w), bytes: bytes, flows: flows, peak: peak}
	p.placeVertices()
	p.drawAll()
	return p.w.Flush() // the first error of all writes
}

// place is a point of the drawing, y downwards.
type place struct{ x, y float64 }

type painter struct {
	g            *Graph
	w            *bufio.Writer
	bytes, flows []uint64
	peak         float64
	at           []place
	size         place
}

// placeVertices spreads each level over a row, hosts at the bottom.
func (p *painter) placeVertices() {
	level := p.g.levelRows()
	count := map[int]int{}
	top := 0
	for _, l := range level {
		count[l]++
		top = max(top, l)
	}
	widest := 0
	for _, n := range count {
		widest = max(widest, n)
	}
	const rowHeight, step, margin = 130.0, 34.0, 40.0
	p.size = place{max(520, float64(widest)*step) + 2*margin, float64(top)*rowHeight + 2*margin}
	next := map[int]int{}
	for _, l := range level {
		share := (p.size.x - 2*margin) / float64(count[l])
		p.at = append(p.at, place{margin + share*(float64(next[l])+0.5), margin + rowHeight*float64(top-l)})
		next[l]++
	}
}

// levelRows returns the rows of all vertices: as they say, or if none does the hops to the
// next host.
func (g *Graph) levelRows() []int {
	level := make([]int, len(g.vertices))
	said := false
	for i, v := range g.vertices {
		level[i] = v.Level
		said = said || v.Level > 0
	}
	if said {
		return level
	}
	for i := range level {
		level[i] = -1
	}
	queue := append([]int32(nil), g.hosts...)
	for _, h := range g.hosts {
		level[h] = 0
	}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		for _, c := range g.Out(v) {
			if to := g.channels[c].To; level[to] < 0 {
				level[to] = level[v] + 1
				queue = append(queue, to)
			}
		}
	}
	for i := range level {
		level[i] = max(level[i], 0)
	}
	return level
}

func (p *painter) printf(format string, args ...any) { fmt.Fprintf(p.w, format, args...) }

func (p *painter) drawAll() {
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="sans-serif">
<rect width="100%%" height="100%%" fill="#fff"/>
<g stroke-linecap="round">
`, p.size.x, p.size.y+60, p.size.x, p.size.y+60)
	most, busiest := 0.0, int32(0)
	for c := range p.g.channels {
		if l := p.relativeLoad(int32(c)); l > most {
			most, busiest = l, int32(c)
		}
	}
	if p.peak == 0 {
		p.peak = most
	}
	for c := range p.g.channels {
		p.drawChannel(int32(c))
	}
	p.printf("</g>\n<g font-size=\"9\" text-anchor=\"middle\" fill=\"#222\">\n")
	for i, v := range p.g.vertices {
		p.drawVertex(p.at[i], v)
	}
	p.printf("</g>\n<g font-size=\"12\" fill=\"#222\" transform=\"translate(40 %.0f)\"><text font-weight=\"bold\">%s</text>", p.size.y+8, escape(p.g.name))
	if most > 0 {
		p.printf(`<text y="20">most: %s, %s</text>`, escape(p.g.ChannelName(busiest)), display.Bytes(uint64(p.bytes[busiest])))
		p.drawLegend()
	} else {
		p.printf(`<text y="20">no traffic</text>`)
	}
	p.printf("</g>\n</svg>\n")
}

func (p *painter) relativeLoad(c int32) float64 {
	return float64(p.bytes[c]) / p.g.channels[c].Capacity
}

// drawLegend draws the scale of colours, from nothing to the peak.
func (p *painter) drawLegend() {
	const steps, width = 24, 5
	p.printf(`<text x="0" y="38">0</text>`)
	for i := range steps {
		p.printf(`<rect x="%d" y="29" width="%d" height="10" fill="%s"/>`, 12+i*width, width, display.Colour(float64(i)/(steps-1)))
	}
	p.printf(`<text x="%d" y="38">Darkest: %s</text>`, 18+steps*width, display.Bytes(uint64(p.peak)))
}

// drawChannel draws one direction, to the right of the other as seen by what flows.
func (p *painter) drawChannel(c int32) {
	ends := p.g.channels[c]
	a, b := p.at[ends.From], p.at[ends.To]
	side := 2.2
	if a.y < b.y || a.y == b.y && a.x < b.x {
		side = -side
	}
	level := 0.0
	if p.peak > 0 {
		level = min(p.relativeLoad(c)/p.peak, 1)
	}
	p.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f"><title>%s: %s, %s</title></line>`+"\n",
		a.x+side, a.y, b.x+side, b.y, display.Colour(level), 1+3*level, escape(p.g.ChannelName(c)), display.Count(int(p.flows[c]), "flow"), display.Bytes(p.bytes[c]))
}

func (p *painter) drawVertex(at place, v Vertex) {
	shape := `<rect x="%.1f" y="%.1f" width="30" height="18" rx="3" fill="#fff" stroke="#444"/>`
	p.printf(shape+`<text x="%.1f" y="%.1f">%s</text>`+"\n", at.x-15, at.y-9, at.x, at.y+3, escape(v.Name))
}
