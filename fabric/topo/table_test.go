package topo

import "testing"

// Equal local tables are one table in memory.
func TestShelf(t *testing.T) {
	tp, err := NewTorus(Dims{32, 32, 4}, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRoutes(tp)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[*local]bool)
	for _, n := range tp.nodes {
		for _, l := range r.Table(n).global {
			seen[l] = true
		}
	}
	// Per x and y three: z is right, ahead, behind. And the empty one.
	if want := 3*32*32 + 1; len(seen) != want || r.shelf.len() != want {
		t.Errorf("%d local tables in use, %d kept, want %d", len(seen), r.shelf.len(), want)
	}
}
