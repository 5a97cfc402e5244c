package routing

import (
	"slices"

	"exnet/fabric/graph"
)

// Load is what each channel of a network carries now, and has carried.
type Load struct {
	Bytes []uint64 // now
	Flows []int32  // now
	Peak  []uint64 // the most of Bytes at once
	Total []uint64 // all that was ever added
	Count []uint64 // flows that were ever added

	scale []float64 // 1 / capacity; nil: all are 1
}

// NewLoad returns the load of a network that carries nothing.
func NewLoad(g *graph.Graph) *Load {
	n := len(g.Channels())
	l := &Load{Bytes: make([]uint64, n), Flows: make([]int32, n), Peak: make([]uint64, n), Total: make([]uint64, n), Count: make([]uint64, n)}
	for c, ch := range g.Channels() {
		if ch.Capacity != 1 && l.scale == nil {
			l.scale = slices.Repeat([]float64{1}, n)
		}
		if l.scale != nil {
			l.scale[c] = 1 / ch.Capacity
		}
	}
	return l
}

// Add puts bytes on a channel.
func (l *Load) Add(channel int32, bytes uint64) {
	l.Bytes[channel] += bytes
	l.Flows[channel]++
	l.Peak[channel] = max(l.Peak[channel], l.Bytes[channel])
	l.Total[channel] += bytes
	l.Count[channel]++
}

// Remove takes off what flows have put on a channel.
func (l *Load) Remove(channel int32, bytes uint64, flows int32) {
	l.Bytes[channel] -= bytes
	l.Flows[channel] -= flows
}

// Idle reports whether no channel carries anything.
func (l *Load) Idle() bool {
	for i := range l.Bytes {
		if l.Bytes[i] != 0 || l.Flows[i] != 0 {
			return false
		}
	}
	return true
}

// relativeLoad is the load of a channel in proportion to its capacity.
func (l *Load) relativeLoad(channel int32) float64 {
	if l.scale == nil {
		return float64(l.Bytes[channel])
	}
	return float64(l.Bytes[channel]) * l.scale[channel]
}
