// Package steps has tables of states: which event leads from which state to which next one. Who
// owns a state asks its table for the next one, and nobody else writes the state. SPEC.md has the
// same tables, and package steps/stepstest compares.
//
// # Architecture
//
//	New ─▶ Table ── Next(state, event) ─▶ the next state
//
// # Concurrency
//
// A Table does not change once it is made. Functions may be called from many goroutines.
package steps

import "slices"

// Enum is a state or an event: a number that counts from 0, with a name.
type Enum interface {
	~uint8
	String() string
}

// Step is an event in a state.
type Step[S, E Enum] struct {
	From S
	What E
}

// Table has all steps of one kind of state.
type Table[S, E Enum] struct {
	rows []string
	next [][]uint8 // by state and event: 0, or 1 + the next state
	told func(step Step[S, E], ok bool)
}

// New makes a table of these steps: the next state by state and event.
func New[S, E Enum](to map[S]map[E]S) *Table[S, E] {
	t := &Table[S, E]{}
	for from, row := range to {
		for what, next := range row {
			t.addStep(from, what, next)
		}
	}
	slices.Sort(t.rows)
	return t
}

func (t *Table[S, E]) addStep(from S, what E, next S) {
	for len(t.next) <= int(from) {
		t.next = append(t.next, nil)
	}
	row := &t.next[from]
	for len(*row) <= int(what) {
		*row = append(*row, 0)
	}
	(*row)[what] = uint8(next) + 1
	t.rows = append(t.rows, from.String()+" "+what.String()+" "+next.String())
}

// Next returns where an event leads from a state. False: nowhere.
func (t *Table[S, E]) Next(from S, what E) (next S, ok bool) {
	if int(from) < len(t.next) && int(what) < len(t.next[from]) {
		n := t.next[from][what]
		next, ok = S(n-1), n != 0
	}
	if t.told != nil {
		t.told(Step[S, E]{from, what}, ok)
	}
	return next, ok
}

// Tell has told called by each Next, in tests: before any other use of the table.
func (t *Table[S, E]) Tell(told func(step Step[S, E], ok bool)) { t.told = told }

// Rows returns the steps as rows of SPEC.md: state, event and next state, sorted.
func (t *Table[S, E]) Rows() []string { return t.rows }
