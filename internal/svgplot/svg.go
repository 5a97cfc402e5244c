package svgplot

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// Sizes, in units of the drawing.
const (
	width      = 480
	plotHeight = 230
	left       = 56
	right      = 14
	top        = 14
	fontSize   = 12
	lineHeight = 17
	charWidth  = 6.9 // of the average letter
	wideChar   = 8.2 // of the larger ones on a narrow screen
	axisSpace  = 38  // below the plot: numbers and label
	legendGap  = 30  // mark and space before a name
)

// canvas collects the elements of a drawing.
type canvas struct{ b strings.Builder }

// formatNumber writes a coordinate; a tenth of a unit is enough.
func formatNumber(v float64) string { return trimZeros(strconv.FormatFloat(snapDigits(v), 'f', 1, 64)) }

func trimZeros(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// snapDigits takes away what the last bits of a number differ by between machines: some compute
// x*y+z in one step.
func snapDigits(v float64) float64 { return math.Round(v*1e6) / 1e6 }

func (c *canvas) addElement(format string, args ...any) { fmt.Fprintf(&c.b, format+"\n", args...) }

func (c *canvas) drawText(x, y float64, anchor, class, s string) {
	c.addElement(`<text x="%s" y="%s" text-anchor="%s" class="%s">%s</text>`, formatNumber(x), formatNumber(y), anchor, class, html.EscapeString(s))
}

func (c *canvas) drawLine(x1, y1, x2, y2 float64, class string) {
	c.addElement(`<line x1="%s" y1="%s" x2="%s" y2="%s" class="%s"/>`, formatNumber(x1), formatNumber(y1), formatNumber(x2), formatNumber(y2), class)
}

// style is what every drawing has, so that it needs no other file. Letters are larger on a
// narrow screen, where the drawing is smaller.
const style = `<style>
.plot text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--plot-fg,#333)}
.plot .label{font-size:12px}.plot .tick{font-size:11px}.plot .reft{font-size:10.5px;fill:var(--plot-ref,#777);paint-order:stroke;stroke:var(--bg,#fff);stroke-width:3px;stroke-linejoin:round}
.plot .val{font-size:10.5px}
.plot .grid{stroke:var(--plot-grid,#e4e4e4);stroke-width:1}.plot .axis{stroke:var(--plot-fg,#333);stroke-width:1}
.plot .ref{stroke:var(--plot-ref,#777);stroke-width:1;stroke-dasharray:5 4}
.plot .curve{fill:none;stroke-width:2;stroke-linejoin:round}.plot .whisk{stroke-width:1.2;opacity:.65}.plot .under{stroke:var(--bg,#fff);stroke-width:3.4;opacity:.55}
@media(max-width:560px){.plot text,.plot .label{font-size:13.5px}.plot .tick{font-size:13px}.plot .reft,.plot .val{font-size:12.5px}}
</style>`

// beginCanvas writes what comes before the elements.
func (c *canvas) beginCanvas(title, desc string, height float64) {
	c.addElement(`<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %s" role="img" aria-label="%s">`,
		width, formatNumber(height), html.EscapeString(title))
	c.addElement("<title>%s</title>", html.EscapeString(title))
	if desc != "" {
		c.addElement("<desc>%s</desc>", html.EscapeString(desc))
	}
	c.addElement("%s", style)
}

func (c *canvas) endCanvas() string {
	c.addElement("</svg>")
	return c.b.String()
}

// fallbacks are the colours without a page's: first those of Okabe and Ito, which
// most people can tell apart, then others as unlike them as possible.
var fallbacks = [...]string{
	"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a6a00", "#8a8a8a", "#6a3d9a", "#222222",
	"#b22222", "#13a3b0", "#8c564b", "#a3a31c", "#e377c2", "#1f3a93", "#00695c", "#ff7f7f", "#5d4037", "#7cb342",
	"#9c8ade", "#bd6b00", "#3d5a00", "#c2185b",
}

// Colours is how many series have a colour of their own.
const Colours = len(fallbacks)

func colourOf(i int) string {
	i %= Colours
	return fmt.Sprintf("var(--plot-%d,%s)", i, fallbacks[i])
}

// drawMark draws the mark of a series at a place; note is shown when pointed at.
func (c *canvas) drawMark(series int, x, y float64, note string) {
	const r = 3.6
	fill := fmt.Sprintf(`style="fill:%s"`, colourOf(series))
	if note != "" {
		note = "<title>" + html.EscapeString(note) + "</title>"
	}
	switch series % 5 {
	case 0:
		c.addElement(`<circle cx="%s" cy="%s" r="%s" %s>%s</circle>`, formatNumber(x), formatNumber(y), formatNumber(r), fill, note)
	case 1:
		c.addElement(`<rect x="%s" y="%s" width="%s" height="%s" %s>%s</rect>`, formatNumber(x-r+.3), formatNumber(y-r+.3), formatNumber(2*r-.6), formatNumber(2*r-.6), fill, note)
	case 2:
		c.addElement(`<path d="M%s %sl%s %sh%sz" %s>%s</path>`, formatNumber(x), formatNumber(y-r-.8), formatNumber(r+.6), formatNumber(2*r), formatNumber(-2*r-1.2), fill, note)
	case 3:
		c.addElement(`<path d="M%s %sl%s %sl%s %sl%s %sz" %s>%s</path>`, formatNumber(x), formatNumber(y-r-1), formatNumber(r+1), formatNumber(r+1), formatNumber(-r-1), formatNumber(r+1), formatNumber(-r-1), formatNumber(-r-1), fill, note)
	default:
		c.addElement(`<path d="M%s %sh%sl%s %sz" %s>%s</path>`, formatNumber(x-r-.6), formatNumber(y-r+.4), formatNumber(2*r+1.2), formatNumber(-r-.6), formatNumber(2*r), fill, note)
	}
}

// entry is an entry of a legend.
type entry struct {
	series int
	name   string
}

// legendRows breaks the entries into rows.
func legendRows(entries []entry) (rows [][]entry) {
	room := 0.0
	for _, e := range entries {
		w := legendGap + charWidth*float64(len([]rune(e.name))) + 10
		if len(rows) == 0 || room < w {
			rows, room = append(rows, nil), width-left-right
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], e)
		room -= w
	}
	return rows
}

// drawLegend draws the rows below y.
func (c *canvas) drawLegend(rows [][]entry, y float64, lines bool) {
	for _, row := range rows {
		x := float64(left)
		for _, e := range row {
			c.addElement(`<g class="key" data-series="%s">`, html.EscapeString(e.name))
			if lines {
				c.addElement(`<line x1="%s" y1="%s" x2="%s" y2="%s" class="curve" style="stroke:%s"/>`, formatNumber(x), formatNumber(y-4), formatNumber(x+22), formatNumber(y-4), colourOf(e.series))
				c.drawMark(e.series, x+11, y-4, "")
			} else {
				c.addElement(`<rect x="%s" y="%s" width="14" height="10" rx="2" style="fill:%s"/>`, formatNumber(x+8), formatNumber(y-9), colourOf(e.series))
			}
			c.drawText(x+legendGap-3, y, "start", "label", e.name)
			c.addElement("</g>")
			x += legendGap + charWidth*float64(len([]rune(e.name))) + 10
		}
		y += lineHeight
	}
}
