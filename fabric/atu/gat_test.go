package atu

import (
	"errors"
	"math/rand/v2"
	"testing"

	"exnet/fabric"
)

// Regions of random sizes come and go. Addresses never overlap, every page leads
// to its region, and in the end all is free and in one piece.
func TestAddressSpace(t *testing.T) {
	u := New(self)
	rnd := rand.New(rand.NewPCG(7, 7))
	var live []*Region
	for range 2000 {
		if len(live) > 0 && rnd.IntN(2) == 0 {
			i := rnd.IntN(len(live))
			if err := live[i].Close(); err != nil {
				t.Fatal(err)
			}
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
			continue
		}
		size := 1 + rnd.IntN(20*PageSize)
		if rnd.IntN(10) == 0 {
			size = 1 + rnd.IntN(3*leafPages*PageSize)
		}
		r, err := u.RegisterDevice(vpid, nullDevice{}, size, Write)
		if err != nil {
			t.Fatal(err)
		}
		if r.pages >= leafPages && r.base.Page()%leafPages != 0 {
			t.Fatalf("large region at page %#x", r.base.Page())
		}
		live = append(live, r)
	}
	for i, r := range live {
		for _, off := range []int{0, r.size / 2, r.size - 1} {
			if got := u.regionAt(r.base + NLA(off)); got != r {
				t.Fatalf("byte %d of region %d leads to another region", off, i)
			}
		}
		for _, o := range live[:i] {
			if r.base < o.base+NLA(o.pages*PageSize) && o.base < r.base+NLA(r.pages*PageSize) {
				t.Fatalf("regions at %v and %v overlap", r.base, o.base)
			}
		}
	}
	for _, r := range live {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if u.regionAt(r.base) != nil || u.regionAt(r.base+NLA(r.size-1)) != nil {
			t.Fatal("a closed region is still mapped")
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, list := range u.free {
		if len(list) != 1 || list[0] != (extent{0, PagesPerGAT}) {
			t.Errorf("GAT %d has free list %v", i, list)
		}
	}
}

func TestAddressSpaceEnds(t *testing.T) {
	u := New(self)
	var regions []*Region
	for range GATs {
		r, err := u.RegisterDevice(vpid, nullDevice{}, MaxRegion, Write)
		if err != nil {
			t.Fatal(err)
		}
		regions = append(regions, r)
	}
	if _, err := u.Register(vpid, make([]byte, 1), Read); !errors.Is(err, fabric.ErrAgain) {
		t.Fatalf("the 1025th GAT: %v", err)
	}
	last := regions[GATs-1]
	if end := last.base + MaxRegion - 1; end != addrMask || u.regionAt(end) != last {
		t.Errorf("last region ends at %v", end)
	}
	if err := regions[500].Close(); err != nil {
		t.Fatal(err)
	}
	r, err := u.Register(vpid, make([]byte, 1), Read)
	if err != nil || r.base.GAT() != 500 {
		t.Errorf("after one was freed: %v, GAT %d", err, r.base.GAT())
	}
}
