package profile

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exnet/fabric"
)

func TestFlows(t *testing.T) {
	p := New()
	ab, ba := Pair{1, 2, 3, 4}, Pair{3, 4, 1, 2}
	p.Messages(Pair{9, 9, 9, 9}) // open, but silent
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 100 {
				p.Messages(ab).Add(1 + i%2)
				p.Request(ab)
				p.Transfer(ba, 496+i%2)
			}
		})
	}
	all.Wait()
	p.Transfer(ba, 0)
	want := []Flow{
		{Pair: ab, Unit: RMA, Sizes: []Size{}, Empty: 400},
		{Pair: ab, Unit: VELO, Sizes: []Size{{1, 200}, {2, 200}}},
		{Pair: ba, Unit: RMA, Sizes: []Size{{496, 200}, {497, 200}}, Empty: 1},
	}
	got := p.Flows()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if f := got[2]; f.Messages() != 400 || f.Bytes() != 496*200+497*200 {
		t.Errorf("%d messages, %d bytes", f.Messages(), f.Bytes())
	}
}

// Sizes are bounded: a peer cannot make the list of them long.
func TestSizesAreBounded(t *testing.T) {
	p := New()
	for n := range 5000 {
		p.Transfer(Pair{}, n+1)
	}
	f := p.Flows()[0]
	if len(f.Sizes) > maxSizes+13 || f.Messages() != 5000 {
		t.Errorf("%d sizes of %d messages", len(f.Sizes), f.Messages())
	}
}

func TestMulticasts(t *testing.T) {
	p := New()
	members := []fabric.NodeID{2, 3}
	p.Multicast(1, 5, 6, 7, members, 10)
	p.Multicast(1, 5, 6, 7, members, 10)
	p.Multicast(1, 5, 6, 7, nil, 10)
	members[1] = 4 // the caller's
	p.Multicast(1, 5, 6, 7, members, 20)
	want := []Multicast{
		{1, 5, 6, 7, []fabric.NodeID{2, 3}, []Size{{10, 2}}},
		{1, 5, 6, 7, []fabric.NodeID{2, 4}, []Size{{20, 1}}},
	}
	if diff := cmp.Diff(want, p.Multicasts()); diff != "" {
		t.Error(diff)
	}
}
