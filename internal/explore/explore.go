// Package explore visits all states of a model: a small program's states and steps, in a test, of
// which every order is tried.
//
// # Architecture
//
//	begin ──▶ next(state): the states after it, or what is wrong ──▶ those not seen yet ──▶ next ...
//	Result: how many states; what is wrong; Trace, the shortest way there
//
// # Concurrency
//
// A model is explored in one goroutine.
//
// # Limits
//
// All states that were seen stay in memory. It does not find a loop that never ends.
package explore

import (
	"fmt"
	"strings"
)

// Next returns the states that may follow s, or says what is wrong: with s, or on the way to one of
// them. It gives the same answer for the same state, and may use the space of its last answer
// again.
type Next[S comparable] func(s S) (after []S, wrong string)

// Result is what was found.
type Result[S comparable] struct {
	States int    // that were seen
	Wrong  string // what Next has said last; "": nothing is wrong
	Cut    bool   // there are more states than the bound
	begin  []S
	next   Next[S]
}

// All visits each state that can be reached from those of begin, until something is wrong.
func All[S comparable](next Next[S], begin ...S) Result[S] { return Some(0, next, begin...) }

// Some is All until more than most states were seen; 0: there is no bound.
func Some[S comparable](most int, next Next[S], begin ...S) Result[S] {
	r := Result[S]{begin: begin, next: next}
	seen := make(map[S]struct{})
	var todo []S // a stack, which stays short
	add := func(states []S) {
		for _, s := range states {
			if _, ok := seen[s]; !ok {
				seen[s] = struct{}{}
				todo = append(todo, s)
			}
		}
	}
	for add(begin); len(todo) > 0 && r.Wrong == "" && !r.Cut; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		after, wrong := next(s)
		if r.Wrong = wrong; wrong == "" {
			add(after)
			r.Cut = most > 0 && len(seen) > most
		}
	}
	r.States = len(seen)
	return r
}

// Trace returns the shortest way from a state of begin to one with which something is wrong, and
// says what. It explores once more, the nearest states first. nil: nothing is wrong.
func (r Result[S]) Trace() (way []S, wrong string) {
	if r.Wrong == "" {
		return nil, ""
	}
	var states []S
	var before []int // the place in states of the one before
	seen := make(map[S]struct{})
	add := func(from int, list []S) {
		for _, s := range list {
			if _, ok := seen[s]; !ok {
				seen[s] = struct{}{}
				states, before = append(states, s), append(before, from)
			}
		}
	}
	add(-1, r.begin)
	for i := 0; i < len(states); i++ {
		after, wrong := r.next(states[i])
		if wrong == "" {
			add(i, after)
			continue
		}
		for ; i >= 0; i = before[i] {
			way = append([]S{states[i]}, way...)
		}
		return way, wrong
	}
	return nil, ""
}

// String is what a test says of it: what is wrong, and a line for each state on the way there.
func (r Result[S]) String() string {
	way, wrong := r.Trace()
	if wrong == "" {
		return fmt.Sprintf("%d states", r.States)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, after", wrong)
	for _, s := range way {
		fmt.Fprintf(&b, "\n\t%+v", s)
	}
	return b.String()
}
