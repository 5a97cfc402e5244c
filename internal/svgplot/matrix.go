package svgplot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"exnet/internal/display"
)

// Matrix is who gives how much to whom: Values[from][to].
type Matrix struct {
	Title  string
	Names  []string
	Values [][]float64
	Format func(float64) string // of a value; nil: Number
	Note   string               // what it leaves out, a line below the title
}

// MaxMatrix is how many names a Matrix can have.
const MaxMatrix = 512

func (m Matrix) formatValue(v float64) string {
	if m.Format != nil {
		return m.Format(v)
	}
	return display.Number(v)
}

// largestAndSum returns the largest value, and the sum of all.
func (m Matrix) largestAndSum() (most, sum float64) {
	for _, row := range m.Values {
		for _, v := range row {
			most, sum = max(most, v), sum+v
		}
	}
	return most, sum
}

// figure is an SVG of its own: it needs no style of a page.
type figure struct{ strings.Builder }

func (f *figure) addElement(format string, args ...any) { fmt.Fprintf(f, format, args...) }

func (f *figure) beginMatrix(m Matrix, width, height float64, subtitle string) {
	f.addElement(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" style="max-width:100%%;height:auto" font-family="sans-serif" font-size="11"><title>%s</title>`+"\n",
		width, height, width, height, escapeText(m.Title))
	f.addElement(`<rect width="100%%" height="100%%" fill="#fff"/><text x="10" y="20" font-size="14" font-weight="bold">%s</text><text x="10" y="36" fill="#555">%s</text><text x="10" y="51" fill="#555">%s</text>`+"\n",
		escapeText(m.Title), escapeText(subtitle), escapeText(m.Note))
}

// Sizes of a heat map, in pixels.
const (
	heatSide  = 520.0 // of the square, about
	leastCell = 3.0
	mostCell  = 64.0
	valueCell = 48.0 // a field from this size on shows its value
	heatScale = 240.0
)

// Heat draws the matrix as a square of fields, from row to column; the darker, the more, as the
// scale below says. Where there is room, each field shows its value; pointing at it shows it, too.
func (m Matrix) Heat() string {
	n := float64(max(len(m.Names), 1))
	cell := math.Max(leastCell, math.Min(mostCell, heatSide/n))
	label := 0.0
	for _, name := range m.Names {
		label = max(label, charWidth*float64(len([]rune(name))))
	}
	left, top := label+30, label+72
	side := cell * n
	var f figure
	most, sum := m.largestAndSum()
	f.beginMatrix(m, max(left+side+20, 380), top+side+64, fmt.Sprintf("from row to column; %s in all, at most %s between two", m.formatValue(sum), m.formatValue(most)))
	step := int(math.Ceil(11 / cell)) // not every name has room
	for i, name := range m.Names {
		if i%step == 0 {
			at := (float64(i) + 0.5) * cell
			f.addElement(`<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, left-5, top+at+4, escapeText(name))
			f.addElement(`<text transform="translate(%.1f %.1f) rotate(-90)">%s</text>`+"\n", left+at+4, top-5, escapeText(name))
		}
	}
	for i, row := range m.Values {
		for k, v := range row {
			m.drawField(&f, left+float64(k)*cell, top+float64(i)*cell, cell, i, k, v, most)
		}
	}
	f.addElement(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="none" stroke="#888"/>`+"\n", left, top, side, side)
	m.drawScale(&f, left, top+side+16, most)
	f.addElement("</svg>\n")
	return f.String()
}

// drawField draws a value of the heat map.
func (m Matrix) drawField(f *figure, x, y, cell float64, from, to int, v, most float64) {
	shade := "#fff" // nothing
	if v > 0 {
		shade = display.Colour(v / most)
	}
	f.addElement(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s to %s: %s</title></rect>`+"\n",
		x, y, cell, cell, shade, escapeText(m.Names[from]), escapeText(m.Names[to]), escapeText(m.formatValue(v)))
	if cell < valueCell || v == 0 {
		return
	}
	ink := "#222"
	if v > most/2 {
		ink = "#fff"
	}
	f.addElement(`<text x="%.1f" y="%.1f" text-anchor="middle" fill="%s" pointer-events="none">%s</text>`+"\n", x+cell/2, y+cell/2+4, ink, escapeText(m.formatValue(v)))
}

// drawScale draws which colour is how much.
func (m Matrix) drawScale(f *figure, x, y, most float64) {
	if most == 0 {
		f.addElement(`<text x="%.1f" y="%.1f" fill="#555">nothing was sent</text>`+"\n", x, y+10)
		return
	}
	const steps = 24
	for s := range steps {
		colour := "#fff" // nothing
		if s > 0 {
			colour = display.Colour(float64(s) / (steps - 1))
		}
		f.addElement(`<rect x="%.1f" y="%.1f" width="%.1f" height="10" fill="%s"/>`, x+float64(s)*heatScale/steps, y, heatScale/steps, colour)
	}
	f.addElement(`<rect x="%.1f" y="%.1f" width="%.1f" height="10" fill="none" stroke="#888"/>`, x, y, heatScale)
	f.addElement("\n"+`<text x="%.1f" y="%.1f">0</text><text x="%.1f" y="%.1f" text-anchor="middle">%s</text><text x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n",
		x, y+24, x+heatScale/2, y+24, escapeText(m.formatValue(most/2)), x+heatScale, y+24, escapeText(m.formatValue(most)))
}

// Chord draws the matrix as a circle: each name has an arc as long as what it sends and
// receives, and what it sends is beside its name. A ribbon leads from the sender to an arrowhead
// at the receiver; between the same two names the two directions lie beside each other.
func (m Matrix) Chord() string {
	const size, radius = 720.0, 230.0
	var f figure
	_, sum := m.largestAndSum()
	f.beginMatrix(m, size, size+30, fmt.Sprintf("beside a name: what it sends; a ribbon has the sender's colour, and leads to an arrowhead at the receiver; %s in all", m.formatValue(sum)))
	if sum == 0 {
		f.addElement("</svg>\n")
		return f.String()
	}
	f.addElement(`<g transform="translate(%.0f %.0f)">`+"\n", size/2, size/2+40)
	arcs, ribbons := m.placeChords(sum)
	for _, r := range ribbons { // the largest first: the others stay to be seen
		x1, y1 := onCircle(r.from, radius)
		x2, y2 := onCircle(r.from+r.width, radius)
		x3, y3 := onCircle(r.to, radius-arrowLen)
		x4, y4 := onCircle(r.to+r.width, radius-arrowLen)
		large := map[bool]int{true: 1}[r.width > math.Pi]
		edge := "none"
		if r.width*radius < leastWidth {
			edge = fmt.Sprintf("hsl(%.0f 65%% 40%%)", m.senderColour(r.sender))
		}
		f.addElement(`<path d="M%.1f %.1fA%.0f %.0f 0 %d 1 %.1f %.1fQ0 0 %.1f %.1fA%.0f %.0f 0 %d 1 %.1f %.1fQ0 0 %.1f %.1fZ" fill="hsl(%.0f 65%% 50%%)" fill-opacity="0.5" stroke="%s"><title>%s to %s: %s</title></path>`+"\n",
			x1, y1, radius, radius, large, x2, y2, x3, y3, radius-arrowLen, radius-arrowLen, large, x4, y4, x1, y1,
			m.senderColour(r.sender), edge, escapeText(m.Names[r.sender]), escapeText(m.Names[r.receiver]), escapeText(m.formatValue(m.Values[r.sender][r.receiver])))
	}
	least := min(arrowHalf, 2*math.Pi/(3*float64(len(ribbons))))
	for _, r := range ribbons { // above all ribbons
		m.drawArrow(&f, r.sender, r.to+r.width/2, max(least, min(r.width/2, 3*arrowHalf)), radius-3)
	}
	for i, a := range arcs {
		m.drawArc(&f, i, a[0], a[1], radius)
	}
	f.addElement("</g></svg>\n")
	return f.String()
}

// ribbon is where what one sends to another leaves the circle and comes back, in radians
// clockwise.
type ribbon struct {
	sender, receiver int
	from, to, width  float64
}

// placeChords places an arc for each name, and the ribbons, the widest first. Clockwise on its arc
// a name has its ribbons with the name before it, then those with the one before that, and so on:
// then few cross.
func (m Matrix) placeChords(sum float64) (arcs [][2]float64, ribbons []ribbon) {
	n := len(m.Names)
	gap := min(0.03, math.Pi/float64(n))
	scale := (2*math.Pi - gap*float64(n)) / (2 * sum)
	from, to := make(map[[2]int]float64), make(map[[2]int]float64)
	angle := 0.0
	for i := range n {
		begin := angle
		for step := range n {
			k := (i - 1 - step + n) % n
			from[[2]int{i, k}] = angle
			angle += m.Values[i][k] * scale
			to[[2]int{k, i}] = angle
			angle += m.Values[k][i] * scale
		}
		arcs = append(arcs, [2]float64{begin, angle})
		angle += gap
	}
	for i, row := range m.Values {
		for k, v := range row {
			if v > 0 {
				ribbons = append(ribbons, ribbon{i, k, from[[2]int{i, k}], to[[2]int{i, k}], v * scale})
			}
		}
	}
	slices.SortStableFunc(ribbons, func(a, b ribbon) int { return cmp.Compare(b.width, a.width) })
	return arcs, ribbons
}

// onCircle returns the place of an angle, clockwise from above.
func onCircle(angle, radius float64) (x, y float64) {
	return radius * math.Sin(angle), -radius * math.Cos(angle)
}

// senderColour is the colour of what a name sends.
func (m Matrix) senderColour(i int) float64 { return 360 * float64(i) / float64(len(m.Names)) }

// leastWidth is the width in pixels below which a ribbon has an edge, to be seen.
const leastWidth = 1.5

// Size of an arrowhead: its length in pixels, and half of its usual width in radians.
const (
	arrowLen  = 18.0
	arrowHalf = 0.035
)

// drawArrow draws an arrowhead of a sender that points outwards.
func (m Matrix) drawArrow(f *figure, sender int, angle, half, radius float64) {
	x1, y1 := onCircle(angle, radius)
	x2, y2 := onCircle(angle-half, radius-arrowLen)
	x3, y3 := onCircle(angle+half, radius-arrowLen)
	f.addElement(`<path d="M%.1f %.1fL%.1f %.1fL%.1f %.1fZ" fill="hsl(%.0f 65%% 35%%)" pointer-events="none"/>`+"\n", x1, y1, x2, y2, x3, y3, m.senderColour(sender))
}

// drawArc draws a name, what it has sent, and its arc.
func (m Matrix) drawArc(f *figure, i int, from, to, radius float64) {
	sent := 0.0
	for _, v := range m.Values[i] {
		sent += v
	}
	x1, y1 := onCircle(from, radius+5)
	x2, y2 := onCircle(to, radius+5)
	f.addElement(`<path d="M%.1f %.1fA%.0f %.0f 0 %d 1 %.1f %.1f" fill="none" stroke="hsl(%.0f 65%% 40%%)" stroke-width="7"/>`,
		x1, y1, radius+5, radius+5, map[bool]int{true: 1}[to-from > math.Pi], x2, y2, m.senderColour(i))
	middle := (from + to) / 2
	x, y := onCircle(middle, radius+16)
	anchor, turn := "start", middle*180/math.Pi-90
	if middle > math.Pi {
		anchor, turn = "end", turn+180
	}
	f.addElement(`<text transform="translate(%.1f %.1f) rotate(%.1f)" text-anchor="%s">%s</text>`+"\n", x, y, turn, anchor, escapeText(m.Names[i]+": "+m.formatValue(sent)))
}
