package profile

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exnet/fabric"
)

// sender is one that counts all its messages.
type sender struct {
	Tally
	sent atomic.Uint64
}

func open(p *Profile, pair Pair) *sender {
	s := new(sender)
	s.sent.Store(1000) // before
	s.Begin(p, pair, &s.sent)
	return s
}

func (s *sender) send(n int) {
	s.sent.Add(1)
	s.Add(n)
}

func TestFlows(t *testing.T) {
	p := New()
	ab, ba := Pair{1, 2, 3, 4, 0}, Pair{3, 4, 1, 2, 0}
	open(p, Pair{9, 9, 9, 9, 0}) // silent
	s := open(p, ab)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 100 {
				s.send(1 + i%2)
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

// The usual size of a flow is not counted message by message: what the profile says about
// it stays right through other sizes, through what is no message, and the flow's end.
func TestUsualSize(t *testing.T) {
	p := New()
	pair := Pair{Src: 1, Dst: 2}
	want := make(map[uint64]uint64)
	check := func(when string) {
		t.Helper()
		got := make(map[uint64]uint64)
		for _, f := range p.Flows() {
			for _, s := range f.Sizes {
				got[s.Size] += s.Count
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	for range 2 { // flows between one pair
		s := open(p, pair)
		for i := range 5 * common {
			n := 8
			switch {
			case i < common-1 || i%7 == 0:
				n = 120
			case i%11 == 0:
				s.sent.Add(1)
				s.Skip()
			}
			s.send(n)
			want[uint64(n)]++
		}
		check("open")
		s.End()
		check("closed")
		s.send(8)
		s.End()
		check("after the end")
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
