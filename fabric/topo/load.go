package topo

import "sync/atomic"

// Load counts what crosses the links of a topology, each direction separately.
//
// Concurrency: all methods may be called from many goroutines.
type Load struct {
	channels []channel
	strayed  atomic.Uint64 // packets routed adaptively in this window
}

// channel is one direction of a link, on a cache line of its own.
type channel struct {
	packets, bytes atomic.Uint64
	base           atomic.Uint64 // bytes at the beginning of the window
	_              [40]byte
}

func (c *channel) add(packets, bytes uint64) {
	c.packets.Add(packets)
	c.bytes.Add(bytes)
}

// recentBytes returns how many bytes the channel has carried in this window.
func (c *channel) recentBytes() uint64 {
	base := c.base.Load() // first: the bytes only grow
	return c.bytes.Load() - base
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

// beginWindow begins a new window for adaptive routing when the present one is over, or always with
// begin: what was carried long ago is no load.
func (l *Load) beginWindow(packets uint64, begin bool) {
	if n := l.strayed.Add(packets); !begin && (n < adaptiveWindow || !l.strayed.CompareAndSwap(n, 0)) {
		return
	}
	for i := range l.channels {
		l.channels[i].base.Store(l.channels[i].bytes.Load())
	}
}

// BeginAdaptive has adaptive routing forget the load so far.
func (l *Load) BeginAdaptive() { l.beginWindow(0, true) }

// NewLoad returns counters for the links of t, all 0.
func NewLoad(t *Topology) *Load { return &Load{channels: make([]channel, 2*len(t.links))} }

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
