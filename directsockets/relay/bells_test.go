package relay

import (
	"slices"
	"testing"
)

// However often one doorbell rings while nobody answers, the others' rings are noted, and memory is
// bounded.
func TestRingsWithoutEnd(t *testing.T) {
	var b bells
	b.mu.Lock()
	for i := range uint32(5 * maxRung) {
		id := uint32(7)
		if i%(maxRung/2) == 0 {
			id = 100 + i
		}
		b.noteLocked(id)
	}
	if n := cap(b.rung); n > 4*maxRung {
		t.Errorf("memory for %d rings", n)
	}
	b.mu.Unlock()
	got := b.take()
	for i := uint32(0); i < 5*maxRung; i += maxRung / 2 {
		if !slices.Contains(got, 100+i) {
			t.Errorf("the ring of %d was lost", 100+i)
		}
	}
	if !slices.Contains(got, 7) {
		t.Error("the ring of 7 was lost")
	}
}
