package topo

import "math"

// point is a place on the drawing, in pixels, y downwards.
type point struct{ x, y float64 }

func (p point) plus(o point) point               { return point{p.x + o.x, p.y + o.y} }
func (p point) minus(o point) point              { return point{p.x - o.x, p.y - o.y} }
func (p point) times(f float64) point            { return point{p.x * f, p.y * f} }
func (p point) length() float64                  { return math.Hypot(p.x, p.y) }
func (p point) right() point                     { return point{-p.y, p.x} }
func (p point) toward(o point) point             { return o.minus(p).times(1 / o.minus(p).length()) }
func (p point) between(o point) point            { return p.plus(o).times(0.5) }
func (p point) stepTowards(o point, n int) point { return p.plus(o.times(float64(n))) }

const (
	nodeRadius = 12.0
	margin     = 60.0
	stub       = 30.0 // length of a link that closes a ring, from the centre of the node
)

// layout has a place for each node.
type layout struct {
	at   []point
	size point
	axes [3]point // of a grid: one step in x, y and z
}

// gridLayout shows a grid from the front: x to the right, y down, and the nodes with
// equal x and y behind each other in a slanted row, so that no link crosses a node
// that it does not join.
func gridLayout(d Dims) layout {
	const slant, gap = 38.0, 84.0
	deep := slant * float64(d[2]-1)
	l := layout{axes: [3]point{{deep + gap, 0}, {0, deep + gap}, {slant, -slant * 0.86}}}
	origin := point{margin, margin + deep*0.86}
	for i := range d.Nodes() {
		c := d.coordsOf(i)
		p := origin
		for dim, n := range c {
			p = p.stepTowards(l.axes[dim], n)
		}
		l.at = append(l.at, p)
		l.size.x, l.size.y = max(l.size.x, p.x+margin), max(l.size.y, p.y+margin)
	}
	return l
}

// ringLayout puts n nodes on a circle.
func ringLayout(n int) layout {
	r := max(120, float64(n)*nodeRadius*3/(2*math.Pi))
	c := point{r + margin, r + margin}
	l := layout{size: c.times(2)}
	for i := range n {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / float64(n))
		l.at = append(l.at, c.plus(point{r * sin, -r * cos}))
	}
	return l
}
