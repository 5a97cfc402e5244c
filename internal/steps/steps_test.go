package steps

import (
	"slices"
	"testing"
)

type state uint8

func (s state) String() string { return [...]string{"shut", "open", "gone"}[s] }

type event uint8

func (e event) String() string { return [...]string{"push", "pull", "burn"}[e] }

// TestTable asks a table for each step that there could be.
func TestTable(t *testing.T) {
	all := map[state]map[event]state{0: {0: 1}, 1: {1: 0, 2: 2}}
	told := 0
	table := New(all)
	table.Tell(func(_ Step[state, event], ok bool) {
		if ok {
			told++
		}
	})
	for from := state(0); from <= 2; from++ {
		for what := event(0); what <= 2; what++ {
			want, wantOK := all[from][what]
			if next, ok := table.Next(from, what); ok != wantOK || ok && next != want {
				t.Errorf("%v, %v: %v, %v", from, what, next, ok)
			}
		}
	}
	if told != 3 {
		t.Errorf("told of %d steps, not 3", told)
	}
	if rows := table.Rows(); !slices.Equal(rows, []string{"open burn gone", "open pull shut", "shut push open"}) {
		t.Errorf("%q", rows)
	}
}
