package pager

import (
	"slices"

	"exnet/memory/pager/uffd"
)

// spanSet is a set of addresses: spans in order, which do not touch.
type spanSet struct{ spans []uffd.Span }

// add adds the addresses from start to before end.
func (s *spanSet) add(start, end uint64) {
	if start >= end {
		return
	}
	i := 0
	if n := len(s.spans); n > 0 && s.spans[n-1].End < start {
		i = n
	}
	for i < len(s.spans) && s.spans[i].End < start {
		i++
	}
	j := i
	for j < len(s.spans) && s.spans[j].Start <= end {
		start, end = min(start, s.spans[j].Start), max(end, s.spans[j].End)
		j++
	}
	s.spans = slices.Replace(s.spans, i, j, uffd.Span{Start: start, End: end})
}

// remove removes the addresses from start to before end.
func (s *spanSet) remove(start, end uint64) {
	if start >= end {
		return
	}
	var left []uffd.Span
	for _, t := range s.spans {
		if t.End <= start || t.Start >= end {
			left = append(left, t)
			continue
		}
		if t.Start < start {
			left = append(left, uffd.Span{Start: t.Start, End: start})
		}
		if t.End > end {
			left = append(left, uffd.Span{Start: end, End: t.End})
		}
	}
	s.spans = left
}

// missingSpans returns what of start to before end the set has not.
func (s *spanSet) missingSpans(start, end uint64) []uffd.Span {
	rest := spanSet{[]uffd.Span{{Start: start, End: end}}}
	for _, t := range s.spans {
		if t.End > start && t.Start < end {
			rest.remove(t.Start, t.End)
		}
	}
	return rest.spans
}

// spansWithin returns what the set has of a span.
func (s *spanSet) spansWithin(of uffd.Span) (all []uffd.Span) {
	for _, t := range s.spans {
		if from, to := max(t.Start, of.Start), min(t.End, of.End); from < to {
			all = append(all, uffd.Span{Start: from, End: to})
		}
	}
	return all
}

// clone returns a copy.
func (s *spanSet) clone() spanSet { return spanSet{slices.Clone(s.spans)} }

// has says whether an address is in the set.
func (s *spanSet) has(address uint64) bool {
	i, found := slices.BinarySearchFunc(s.spans, address, func(t uffd.Span, a uint64) int {
		switch {
		case t.End <= a:
			return -1
		case t.Start > a:
			return 1
		}
		return 0
	})
	return found && i >= 0
}
