package pager

import (
	"bytes"
	"os"
	"testing"
)

// forgetful is a store whose lender may end.
type forgetful struct {
	Store
	gone map[int64]bool
}

func (f forgetful) Keeps(off, _ int64) bool { return !f.gone[off] }

func (f forgetful) ReadAt(p []byte, off int64) (int, error) {
	if f.gone[off] {
		return 0, errGone
	}
	return f.Store.ReadAt(p, off)
}

func (f forgetful) WriteAt(p []byte, off int64) (int, error) {
	for at := off; at < off+int64(len(p)); at += pageSize {
		delete(f.gone, at)
	}
	return f.Store.WriteAt(p, off)
}

// A page that was written to the store, whose lender has ended since, is written anew before its
// slot is given back. What the store still has is not.
func TestWrittenAnew(t *testing.T) {
	const pages = 8
	store := forgetful{Memory(1 << 20), make(map[int64]bool)}
	g := &Pager{limit: 1024, batch: pages, store: store, places: newPlaces(1 << 20), said: make(map[string]bool),
		processes: make(map[*process]bool), buffer: make([]byte, pages*pageSize), say1: func(s string) { t.Error(s) }}
	p, _ := madeUp(t, g, pages)
	mem, err := os.CreateTemp(t.TempDir(), "mem")
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	p.mem = mem
	content := func(slot int) []byte { return bytes.Repeat([]byte{byte(slot + 1)}, pageSize) }
	for slot := range pages {
		if _, err := mem.WriteAt(content(slot), int64(slot)*pageSize); err != nil {
			t.Fatal(err)
		}
		p.ring.pages[slot], p.ring.hasMemory[slot] = uint64(slot+1), true
		p.pages.getPage(uint64(slot + 1)).state = standby
	}
	p.ring.used, p.ring.present = pages, pages
	saves := func() uint64 {
		before := g.counts.Saved
		if !g.cleanSlots(p, 0, pages) {
			t.Fatal("the store takes nothing")
		}
		return g.counts.Saved - before
	}
	if n := saves(); n != pages {
		t.Fatalf("%d pages of %d were saved", n, pages)
	}
	if n := saves(); n != 0 {
		t.Errorf("%d pages were saved twice", n)
	}
	lost := []int{0, 3, 4, 7}
	for _, slot := range lost {
		store.gone[placeOffset(p.pages.getPage(uint64(slot+1)).place)] = true
	}
	if n := saves(); n != uint64(len(lost)) {
		t.Errorf("%d pages were written anew, of %d that are lost", n, len(lost))
	}
	for slot := range pages {
		b := make([]byte, pageSize)
		if _, err := store.ReadAt(b, placeOffset(p.pages.getPage(uint64(slot+1)).place)); err != nil || !bytes.Equal(b, content(slot)) {
			t.Errorf("page %d: %v, or other content", slot+1, err)
		}
	}
}
