package routing

import "exnet/fabric/graph"

// far is the distance of a vertex that has no way.
const far = ^uint16(0)

// distances are the hops from every vertex to hosts. A host that hangs on one switch
// shares the row of that switch: its anchor.
type distances struct {
	graph *graph.Graph
	last  []int32 // by host: the only channel that leads to it, or -1
	rows  map[int32]*row
	queue []int32
	ways  []int32 // what closer lends
	ends  []int32 // by channel: where it leads
	dense bool    // some vertex has many channels
}

// row is what is known about an anchor: the hops from each vertex, and the channels that
// lead closer from those vertices that have many.
type row struct {
	hops []uint16
	ways [][]int32
}

// many is how many channels a vertex has at least for its ways to be kept.
const many = 9

func newDistances(g *graph.Graph) *distances {
	d := &distances{graph: g, last: make([]int32, len(g.Hosts())), rows: make(map[int32]*row)}
	for i, h := range g.Hosts() {
		d.last[i] = -1
		in := g.In(h)
		if len(in) == 1 && g.HostIndex(g.Channels()[in[0]].From) < 0 {
			d.last[i] = in[0]
		}
	}
	for _, c := range g.Channels() {
		d.ends = append(d.ends, c.To)
	}
	for v := range g.Vertices() {
		d.dense = d.dense || len(g.Out(int32(v))) >= many
	}
	return d
}

// toHost returns the hops from each vertex to the anchor of a host, the anchor, and the
// channel from there to the host, -1 if the anchor is the host itself. A switch is its own
// anchor.
func (d *distances) toHost(host int32) (r *row, anchor, last int32) {
	anchor, last = host, -1
	if i := d.graph.HostIndex(host); i >= 0 {
		last = d.last[i]
	}
	if last >= 0 {
		anchor = d.graph.Channels()[last].From
	}
	r = d.rows[anchor]
	if r == nil {
		r = &row{d.searchBack(anchor), d.placeForWays()}
		d.rows[anchor] = r
	}
	return r, anchor, last
}

// placeForWays returns a place for the ways of each vertex, or nil if no vertex has many.
func (d *distances) placeForWays() [][]int32 {
	if !d.dense {
		return nil
	}
	return make([][]int32, len(d.graph.Vertices()))
}

// closerChannels returns the channels that leave a vertex for one that is closer to the anchor
// of r, lent until the next call.
func (d *distances) closerChannels(at int32, r *row) []int32 {
	out := d.graph.Out(at)
	if len(out) < many {
		d.ways = d.appendCloser(d.ways[:0], out, at, r)
		return d.ways
	}
	if r.ways[at] == nil {
		r.ways[at] = d.appendCloser(nil, out, at, r)
	}
	return r.ways[at]
}

func (d *distances) appendCloser(ways, out []int32, at int32, r *row) []int32 {
	for _, c := range out {
		if h := r.hops[d.ends[c]]; h != far && h+1 == r.hops[at] && !d.graph.Down(c) {
			ways = append(ways, c)
		}
	}
	return ways
}

// searchBack walks back from a vertex.
func (d *distances) searchBack(anchor int32) []uint16 {
	g, channels := d.graph, d.graph.Channels()
	row := make([]uint16, len(g.Vertices()))
	for i := range row {
		row[i] = far
	}
	row[anchor] = 0
	queue := append(d.queue[:0], anchor)
	for i := 0; i < len(queue); i++ {
		v := queue[i]
		for _, c := range g.In(v) {
			if from := channels[c].From; row[from] == far && !g.Down(c) {
				row[from] = row[v] + 1
				queue = append(queue, from)
			}
		}
	}
	d.queue = queue
	return row
}
