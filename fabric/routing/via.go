package routing

import (
	"slices"

	"exnet/fabric/graph"
)

// NewVia returns a router that takes flows through a vertex: as the tables say to it, and
// on from there as they say. A flow whose way would come to a vertex twice so, or has an
// end at the vertex, keeps that of the tables.
func NewVia(g *graph.Graph, vertex int32) (*Router, error) {
	r, err := New("tables", g, 0)
	if err != nil {
		return nil, err
	}
	direct := r.path
	r.path = func(f Flow, l *Load, path []int32) ([]int32, error) {
		if f.From == vertex || f.To == vertex {
			return direct(f, l, path)
		}
		path, err := direct(Flow{From: f.From, To: vertex}, l, path)
		if err != nil {
			return nil, err
		}
		if path, err = direct(Flow{From: vertex, To: f.To}, l, path); err != nil {
			return nil, err
		}
		seen := []int32{f.From}
		for _, c := range path {
			at := g.Channels()[c].To
			if slices.Contains(seen, at) {
				return direct(f, l, path[:0])
			}
			seen = append(seen, at)
		}
		return path, nil
	}
	return r, nil
}
