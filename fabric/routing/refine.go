package routing

import (
	"cmp"
	"slices"
)

// maxPasses is how often refine looks at all flows.
const maxPasses = 8

// refineTables begins with the ways of the tables, and moves a flow, the heaviest first, where
// that makes the busiest channel of its way less busy; until none moves, or maxPasses
// times. No move makes a channel busier than the busiest one was: it is never worse than
// the tables.
func (r *Router) refineTables(flows []Flow, l *Load, use func(Flow, []int32)) error {
	slices.SortStableFunc(flows, func(a, b Flow) int { return cmp.Compare(b.Bytes, a.Bytes) })
	work := *l // what is carried now, while flows move
	work.Bytes = slices.Clone(l.Bytes)
	put := func(path []int32, bytes uint64) { // or takes off, with its complement
		for _, c := range path {
			work.Bytes[c] += bytes
		}
	}
	busiest := func(path []int32, bytes uint64) (most float64) {
		put(path, bytes)
		for _, c := range path {
			most = max(most, work.relativeLoad(c))
		}
		put(path, -bytes)
		return most
	}
	ways := make([][]int32, len(flows))
	for i, f := range flows {
		if f.From == f.To {
			continue
		}
		way, err := r.direct(f, l, nil)
		if err != nil {
			return err
		}
		ways[i] = way
		put(way, f.Bytes)
	}
	var other []int32
	for moved, pass := true, 0; moved && pass < maxPasses; pass++ {
		moved = false
		for i, f := range flows {
			if f.From == f.To {
				continue
			}
			put(ways[i], -f.Bytes)
			var err error
			if other, err = r.path(f, &work, other[:0]); err != nil {
				return err
			}
			if busiest(other, f.Bytes) < busiest(ways[i], f.Bytes) {
				ways[i], moved = slices.Clone(other), true
			}
			put(ways[i], f.Bytes)
		}
	}
	for i, f := range flows {
		if f.From == f.To {
			continue
		}
		for _, c := range ways[i] {
			l.Add(c, f.Bytes)
		}
		use(f, ways[i])
	}
	return nil
}
