package topo

import "sync/atomic"

// Load counts what crosses the links of a topology, each direction separately.
//
// Concurrency: all methods may be called from many goroutines.
type Load struct {
	channels []channel
}

// channel is one direction of a link, on a cache line of its own.
type channel struct {
	packets, bytes atomic.Uint64
	_              [48]byte
}

func (c *channel) add(packets, bytes uint64) {
	c.packets.Add(packets)
	c.bytes.Add(bytes)
}

func (c *channel) counts() Counts { return Counts{c.packets.Load(), c.bytes.Load()} }

// Counts is what has crossed a link in one direction.
type Counts struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

func (c Counts) plus(o Counts) Counts { return Counts{c.Packets + o.Packets, c.Bytes + o.Bytes} }

func (c Counts) minus(o Counts) Counts { return Counts{c.Packets - o.Packets, c.Bytes - o.Bytes} }

// LinkLoad is what has crossed a link from A to B, and back.
type LinkLoad struct {
	AB Counts `json:"ab"`
	BA Counts `json:"ba"`
}

// Add returns the sum of two loads of the same link, such as two nodes have counted.
func (l LinkLoad) Add(o LinkLoad) LinkLoad { return LinkLoad{l.AB.plus(o.AB), l.BA.plus(o.BA)} }

// Since returns what was added since an earlier load of the same link.
func (l LinkLoad) Since(o LinkLoad) LinkLoad { return LinkLoad{l.AB.minus(o.AB), l.BA.minus(o.BA)} }

// NewLoad returns counters for the links of t, all 0.
func NewLoad(t *Topology) *Load { return &Load{make([]channel, 2*len(t.links))} }

// Link returns the load of the link with a number.
func (l *Load) Link(link int) LinkLoad {
	return LinkLoad{l.channels[2*link].counts(), l.channels[2*link+1].counts()}
}

// Links returns the load of every link, by its number. The counters are read one by
// one while traffic continues.
func (l *Load) Links() []LinkLoad {
	all := make([]LinkLoad, len(l.channels)/2)
	for i := range all {
		all[i] = l.Link(i)
	}
	return all
}

// Total returns the sum over all links and both directions: a packet counts once for
// each hop.
func (l *Load) Total() (sum Counts) {
	for i := range l.channels {
		sum = sum.plus(l.channels[i].counts())
	}
	return sum
}
