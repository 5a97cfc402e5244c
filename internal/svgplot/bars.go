package svgplot

import (
	"html"
	"math"
	"slices"
)

// Bar is a bar with the extremes of its runs; Low and High of 0 draw none.
type Bar struct {
	Name      string
	Colour    int
	Value     float64
	Low, High float64
}

// Bars is a chart of horizontal bars, which leaves room for long names.
type Bars struct {
	Title string // for those who cannot see it
	Desc  string
	X     Axis // of the values
	Bars  []Bar
	Refs  []Ref // vertical, at a value
}

const (
	barHeight = 15.0
	barStep   = 24.0
)

// SVG returns the drawing.
func (b Bars) SVG() string {
	names := 0
	low, high := math.Inf(1), 0.0
	for _, bar := range b.Bars {
		names = max(names, len([]rune(bar.Name)))
		high = max(high, bar.Value)
		if v := bar.Value; v > 0 {
			low = min(low, v)
		}
	}
	for most, i := high*wild, 0; i < len(b.Bars); i++ {
		high = max(high, min(b.Bars[i].High, most))
	}
	for _, r := range b.Refs {
		high, low = max(high, r.Y), min(low, r.Y)
	}
	if b.X.Log {
		low /= 2 // the shortest bar has a length, too
	}
	start := min(wideChar*float64(names)+12, width/2)
	bottom := top + barStep*float64(len(b.Bars)) + 4
	x := newScale(b.X, low, high, start, width-right-46)

	var c canvas
	c.beginCanvas(b.Title, b.Desc, bottom+axisSpace+2)
	last := math.Inf(-1)
	for _, t := range x.ticks {
		place, label := x.placeOf(t), b.X.formatValue(t)
		c.drawLine(place, top, place, bottom, "grid")
		if half := charWidth * float64(len(label)) / 2; place-half >= last+4 {
			last = place + half
			c.drawText(place, bottom+15, "middle", "tick", label)
		}
	}
	for i, bar := range b.Bars {
		y := top + barStep*float64(i) + 4
		end := x.placeOf(bar.Value)
		c.addElement(`<rect x="%s" y="%s" width="%s" height="%s" rx="2" style="fill:%s"><title>%s: %s</title></rect>`,
			formatNumber(start), formatNumber(y), formatNumber(max(end-start, 1)), formatNumber(barHeight), colourOf(bar.Colour), escapeText(bar.Name), escapeText(b.X.formatValue(bar.Value)))
		if bar.High > bar.Low {
			c.drawLine(x.clipTo(bar.Low), y+barHeight/2, min(x.clipTo(bar.High), end), y+barHeight/2, "under") // to be seen on a dark bar
			c.drawLine(x.clipTo(bar.Low), y+barHeight/2, x.clipTo(bar.High), y+barHeight/2, "axis whisk")
		}
		c.drawText(start-6, y+12, "end", "label", bar.Name)
		c.drawText(max(end, x.clipTo(bar.High))+5, y+12, "start", "val", b.X.formatValue(bar.Value))
	}
	for _, r := range b.Refs {
		c.drawLine(x.placeOf(r.Y), top, x.placeOf(r.Y), bottom, "ref")
		c.drawText(x.placeOf(r.Y)+3, top-3, "start", "reft", r.Label)
	}
	c.drawLine(start, top, start, bottom, "axis")
	c.drawText((start+width-right)/2, bottom+32, "middle", "label", b.X.labelText())
	return c.endCanvas()
}

func escapeText(s string) string { return html.EscapeString(s) }

// distinctX returns the x of all points, in order.
func distinctX(series []Series) []float64 {
	var xs []float64
	for _, s := range series {
		for _, p := range s.Points {
			xs = append(xs, p.X)
		}
	}
	slices.Sort(xs)
	return slices.Compact(xs)
}
