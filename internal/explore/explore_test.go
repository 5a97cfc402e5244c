package explore

import (
	"reflect"
	"testing"
)

// counters are two that go up to 3 each; together they are not to be at, if it is not 0.
func counters(at int) Next[[2]int] {
	var after [][2]int
	return func(s [2]int) ([][2]int, string) {
		if at != 0 && s[0]+s[1] == at && s[0] == 2 {
			return nil, "they are there"
		}
		after = after[:0]
		for i := range s {
			if n := s; n[i] < 3 {
				n[i]++
				after = append(after, n)
			}
		}
		return after, ""
	}
}

// Each state is visited once, from wherever it begins.
func TestAll(t *testing.T) {
	if r := All(counters(0), [2]int{}); r.States != 16 || r.Wrong != "" || r.Cut || r.String() != "16 states" {
		t.Errorf("%+v, want 16 states", r)
	}
	if r := All(counters(0), [2]int{3, 2}, [2]int{2, 3}); r.States != 3 {
		t.Errorf("%d states, want 3", r.States)
	}
}

// What is wrong is found, with the shortest way there.
func TestTrace(t *testing.T) {
	r := All(counters(3), [2]int{1, 0}, [2]int{})
	if r.Wrong != "they are there" {
		t.Fatalf("%+v", r)
	}
	way, wrong := r.Trace()
	if want := [][2]int{{1, 0}, {2, 0}, {2, 1}}; wrong != r.Wrong || !reflect.DeepEqual(way, want) {
		t.Errorf("%v: %s, want %v", way, wrong, want)
	}
	if want := "they are there, after\n\t[1 0]\n\t[2 0]\n\t[2 1]"; r.String() != want {
		t.Errorf("%q, want %q", r, want)
	}
}

// A bound ends it.
func TestSome(t *testing.T) {
	if r := Some(5, counters(0), [2]int{}); !r.Cut || r.States < 5 || r.States > 7 || r.Wrong != "" {
		t.Errorf("%+v, want 6 states, cut", r)
	}
	if r := Some(16, counters(0), [2]int{}); r.Cut || r.States != 16 {
		t.Errorf("%+v, want all of 16", r)
	}
}
