package routing

import "container/heap"

// search is the scratch memory of a search; entries of another round are not there.
type search struct {
	round uint32
	seen  []uint32
	best  []float64
	via   []int32 // the channel that leads there
	queue []int32
}

func (s *search) reset(n int) {
	if s.seen == nil {
		s.seen, s.best, s.via = make([]uint32, n), make([]float64, n), make([]int32, n)
	}
	s.round++
	s.queue = s.queue[:0]
}

// leastLoaded takes the shortest path with the least load, as join adds a channel's load to
// that of the way before it. Channels of the shortest paths lead from one distance to
// the next, so a vertex is final when the queue comes to it. The first wins a tie.
func (r *Router) leastLoaded(join func(way, channel float64) float64) func(Flow, *Load, []int32) ([]int32, error) {
	return func(f Flow, l *Load, path []int32) ([]int32, error) {
		row, anchor, last := r.dist.toHost(f.To)
		if row.hops[f.From] == far {
			return nil, r.noWay(f)
		}
		s, ends := &r.search, r.dist.ends
		s.reset(len(row.hops))
		s.seen[f.From], s.best[f.From] = s.round, 0
		s.queue = append(s.queue, f.From)
		for i := 0; i < len(s.queue) && s.queue[i] != anchor; i++ {
			v := s.queue[i]
			for _, c := range r.dist.closerChannels(v, row) {
				to := ends[c]
				way := join(s.best[v], l.relativeLoad(c))
				switch {
				case s.seen[to] != s.round:
					s.seen[to] = s.round
					s.queue = append(s.queue, to)
				case way >= s.best[to]:
					continue
				}
				s.best[to], s.via[to] = way, c
			}
		}
		path = r.appendPath(f.From, anchor, path)
		if last >= 0 {
			path = append(path, last)
		}
		return path, nil
	}
}

// appendPath appends the channels that the search has taken to a vertex.
func (r *Router) appendPath(from, to int32, path []int32) []int32 {
	first := len(path)
	for at := to; at != from; at = r.graph.Channels()[r.search.via[at]].From {
		path = append(path, r.search.via[at])
	}
	for i, j := first, len(path)-1; i < j; i, j = i+1, j-1 {
		path[i], path[j] = path[j], path[i]
	}
	return path
}

// place is a vertex that Dijkstra's algorithm has still to look at.
type place struct {
	cost float64
	at   int32
}

// places is a heap: the cheapest first, the lowest vertex among equals.
type places []place

func (p places) Len() int { return len(p) }
func (p places) Less(i, j int) bool {
	return p[i].cost < p[j].cost || p[i].cost == p[j].cost && p[i].at < p[j].at
}
func (p places) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *places) Push(x any)   { *p = append(*p, x.(place)) }
func (p *places) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}

// cheapestPath is Algorithm 3 with the cost 1 + flows, by capacity: with the flows alone a
// path may wander over channels that are free. Hosts of a tree forward nothing.
func (r *Router) cheapestPath(f Flow, l *Load, path []int32) ([]int32, error) {
	s, channels := &r.search, r.graph.Channels()
	s.reset(len(r.graph.Vertices()))
	s.seen[f.From], s.best[f.From] = s.round, 0
	todo := places{{0, f.From}}
	for len(todo) > 0 {
		p := heap.Pop(&todo).(place)
		if p.cost > s.best[p.at] {
			continue // a cheaper way was found since
		}
		if p.at == f.To {
			return r.appendPath(f.From, f.To, path), nil
		}
		for _, c := range r.graph.Out(p.at) {
			if r.graph.Down(c) {
				continue
			}
			to := channels[c].To
			cost := p.cost + (1+float64(l.Flows[c]))/channels[c].Capacity
			if s.seen[to] != s.round || cost < s.best[to] {
				s.seen[to], s.best[to], s.via[to] = s.round, cost, c
				heap.Push(&todo, place{cost, to})
			}
		}
	}
	return nil, r.noWay(f)
}
