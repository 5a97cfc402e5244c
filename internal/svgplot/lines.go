package svgplot

import (
	"fmt"
	"math"
	"strings"
)

// Point is a measured value with the extremes of its runs; Low and High of 0 draw
// none.
type Point struct{ X, Y, Low, High float64 }

// Series is a line.
type Series struct {
	Name   string
	Colour int // 0 to Colours-1
	Points []Point
}

// Ref is a reference line, such as a value that somebody printed.
type Ref struct {
	Y     float64
	Label string
}

// Lines is a chart of lines.
type Lines struct {
	Title  string // for those who cannot see it
	Desc   string
	X, Y   Axis
	Series []Series
	Refs   []Ref
}

// SVG returns the drawing. Without points it has axes only.
func (l Lines) SVG() string {
	minX, maxX, minY, maxY := l.dataBounds()
	var entries []entry
	for _, s := range l.Series {
		entries = append(entries, entry{s.Colour, s.Name})
	}
	rows := legendRows(entries)
	const bottom = top + plotHeight
	height := bottom + axisSpace + float64(len(rows))*lineHeight + 8
	x := newScale(l.X, minX, maxX, left, width-right)
	if (l.X.Log && minX > 0) || l.X.Tight { // the outermost marks are at the edges
		x.from, x.to = minX, max(maxX, minX*1.0001)
		x.a, x.b = left+8, width-right-8
	}
	y := newScale(l.Y, minY, maxY, bottom, top)

	var c canvas
	c.beginCanvas(l.Title, l.Desc, height)
	for _, t := range y.ticks {
		c.drawLine(left, y.placeOf(t), width-right, y.placeOf(t), "grid")
		c.drawText(left-6, y.placeOf(t)+4, "end", "tick", l.Y.formatValue(t))
	}
	last := math.Inf(-1)
	for _, t := range l.xTicks(x) {
		place := x.placeOf(t)
		label := l.X.formatValue(t)
		half := charWidth * float64(len(label)) / 2
		if place-half < last+4 {
			continue // it would run into the one before
		}
		last = place + half
		c.drawLine(place, bottom, place, bottom+4, "axis")
		c.drawText(place, bottom+16, "middle", "tick", label)
	}
	c.drawLine(left, bottom, width-right, bottom, "axis")
	c.drawLine(left, top, left, bottom, "axis")
	c.drawText((left+width-right)/2, bottom+33, "middle", "label", l.X.labelText())
	c.addElement(`<text transform="translate(13 %s) rotate(-90)" text-anchor="middle" class="label">%s</text>`, formatNumber(top+plotHeight/2), escapeText(l.Y.labelText()))
	c.drawRefs(l.Refs, y)
	for _, s := range l.Series {
		c.drawSeries(s, l, x, y)
	}
	c.drawLegend(rows, bottom+axisSpace+16, true)
	return c.endCanvas()
}

// drawRefs draws reference lines; labels that would lie on each other move up.
func (c *canvas) drawRefs(refs []Ref, y scale) {
	var used []float64
	for _, r := range refs {
		place := y.placeOf(r.Y)
		c.drawLine(left, place, width-right, place, "ref")
		at := place - 4
		for moved := true; moved; {
			moved = false
			for _, u := range used {
				if math.Abs(u-at) < 12 {
					at, moved = u-12.5, true
				}
			}
		}
		used = append(used, at)
		c.drawText(left+6, max(at, 10), "start", "reft", r.Label)
	}
}

// drawSeries draws one line with its marks.
func (c *canvas) drawSeries(s Series, l Lines, x, y scale) {
	if len(s.Points) == 0 {
		return
	}
	var d strings.Builder
	for i, p := range s.Points {
		d.WriteString(map[bool]string{true: "M", false: "L"}[i == 0])
		d.WriteString(formatNumber(x.placeOf(p.X)) + " " + formatNumber(y.placeOf(p.Y)))
	}
	c.addElement(`<g class="series" data-series="%s">`, escapeText(s.Name))
	defer c.addElement("</g>")
	stroke := fmt.Sprintf(`style="stroke:%s"`, colourOf(s.Colour))
	c.addElement(`<path d="%s" class="curve" %s/>`, d.String(), stroke)
	for _, p := range s.Points {
		if p.High > p.Low {
			c.addElement(`<line x1="%s" y1="%s" x2="%s" y2="%s" class="whisk" %s/>`,
				formatNumber(x.placeOf(p.X)), formatNumber(y.clipTo(p.Low)), formatNumber(x.placeOf(p.X)), formatNumber(y.clipTo(p.High)), stroke)
		}
	}
	for _, p := range s.Points {
		note := fmt.Sprintf("%s, %s: %s", s.Name, l.X.formatValue(p.X), l.Y.formatValue(p.Y))
		if p.High > p.Low {
			note += fmt.Sprintf(" (%s to %s)", l.Y.formatValue(p.Low), l.Y.formatValue(p.High))
		}
		c.drawMark(s.Colour, x.placeOf(p.X), y.placeOf(p.Y), note)
	}
}

// xTicks returns where the x axis has numbers: on a logarithmic one at the values
// that were measured.
func (l Lines) xTicks(x scale) []float64 {
	if !l.X.Log || l.X.Ticks != nil {
		return x.ticks
	}
	return distinctX(l.Series)
}

// wild is how many times the largest value an extreme may be, and how many times
// less than the smallest, to be drawn whole.
const wild = 1.5

// dataBounds returns the extremes of all that is drawn.
func (l Lines) dataBounds() (minX, maxX, minY, maxY float64) {
	minX, minY, maxX, maxY = math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	see := func(y float64) {
		if y > 0 || !l.Y.Log {
			minY, maxY = min(minY, y), max(maxY, y)
		}
	}
	for _, s := range l.Series {
		for _, p := range s.Points {
			minX, maxX = min(minX, p.X), max(maxX, p.X)
			see(p.Y)
		}
	}
	// One wild run must not make all else small.
	least, most := minY/wild, maxY*wild
	for _, s := range l.Series {
		for _, p := range s.Points {
			if p.High > p.Low {
				see(max(p.Low, least))
				see(min(p.High, most))
			}
		}
	}
	if math.IsInf(minX, 1) {
		return 1, 10, 1, 10
	}
	for _, r := range l.Refs {
		see(r.Y)
	}
	if math.IsInf(minY, 1) { // nothing that a logarithmic axis could show
		minY, maxY = 1, 10
	}
	return minX, maxX, minY, maxY
}
