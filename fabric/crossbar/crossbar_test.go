package crossbar

import (
	"errors"
	"slices"
	"testing"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/topo"
	"exnet/fabric/velo"
	"exnet/foreign"
)

// word is the status word of a message.
func word(tb testing.TB, s velo.Status) (w uint64) {
	tb.Helper()
	b, err := s.AppendBinary(nil)
	if err != nil {
		tb.Fatal(err)
	}
	for i, o := range b {
		w |= uint64(o) << (8 * i)
	}
	return w
}

func TestPackets(t *testing.T) {
	for _, tt := range []struct{ n, count, bytes int }{
		{1, 1, 17}, {496, 1, 512}, {497, 2, 529}, {992, 2, 1024}, {65536, 133, 65536 + 133*16}, {8 << 20, 16913, 8<<20 + 16913*16},
	} {
		if c, b := packets(tt.n); c != tt.count || b != tt.bytes {
			t.Errorf("%d bytes: %d packets of %d bytes, want %d of %d", tt.n, c, b, tt.count, tt.bytes)
		}
	}
}

func TestFlow(t *testing.T) {
	x := line(t, 3)
	below := &target{}
	f, err := x.Port(0, 2, below).OpenFlow(1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Reserve(); f.ID() != 7 || f.Limit() != 9 || !errors.Is(err, fabric.ErrAgain) {
		t.Errorf("ID %d, limit %d, %v", f.ID(), f.Limit(), err)
	}
	f.Raise()
	for _, w := range []uint64{
		word(t, velo.Status{Len: 120, Tag: 255, Type: 15, Src: 65535, SrcVPID: 255, Flow: 65535}),
		word(t, velo.Status{Len: 1}),
		word(t, velo.Status{Len: 64, Multicast: true}), // on its tree
		0, // given up
	} {
		f.Commit(3, w)
	}
	if below.commits != 4 {
		t.Errorf("%d slots committed", below.commits)
	}
	want := topo.Counts{Packets: 2, Bytes: 120 + 1 + 2*16}
	for l := range 2 {
		if got := x.Load().Link(l); got != (topo.LinkLoad{AB: want}) {
			t.Errorf("link %d: %+v, want %+v", l, got, want)
		}
	}
	if _, ok := f.(link.Remote); ok {
		t.Error("a flow whose credit comes by itself is remote")
	}
	below.remote = true
	f, err = x.Port(0, 2, below).OpenFlow(1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, ok := f.(link.Remote)
	if !ok || r.Consumed() != 11 {
		t.Fatalf("remote flow %T", f)
	}
	r.Watch(12)
	r.Commit(0, word(t, velo.Status{Len: 8}))
	if below.watched != 12 || x.Load().Link(0).AB.Packets != 3 {
		t.Errorf("watched %d, load %+v", below.watched, x.Load().Link(0))
	}
	below.err = fabric.ErrPeerDown
	if f, err := x.Port(0, 2, below).OpenFlow(1, 1, nil); f != nil || !errors.Is(err, fabric.ErrPeerDown) {
		t.Errorf("flow %v, error %v", f, err)
	}
}

// The request goes one way and the data the other, in pieces as they come; what
// counts is the transfer.
func TestGet(t *testing.T) {
	x := line(t, 2)
	below := &target{}
	p := x.Port(0, 1, below)
	o := &origin{}
	p.Get(request(), o)
	if got := x.Load().Link(0); got != (topo.LinkLoad{AB: topo.Counts{Packets: 1, Bytes: 16}}) {
		t.Errorf("request: %+v", got)
	}
	if err := below.sink.Data(300, foreign.Of(make([]byte, 600))); !errors.Is(err, fabric.ErrDevice) {
		t.Errorf("the sink's error: %v", err)
	}
	_ = below.sink.Data(0, foreign.Of(make([]byte, 300)))
	below.sink.Done(fabric.StatusDevice)
	if got := x.Load().Link(0).BA; got != (topo.Counts{Packets: 2, Bytes: 900 + 2*16}) {
		t.Errorf("response: %+v", got)
	}
	if !slices.Equal(o.pieces, [][2]int{{300, 600}, {0, 300}}) || !slices.Equal(o.done, []fabric.Status{fabric.StatusDevice}) {
		t.Errorf("the origin got %v and %v", o.pieces, o.done)
	}
	before := x.Load().Link(0)
	p.Get(request(), o)
	below.sink.Done(fabric.StatusProtection)
	one := topo.Counts{Packets: 1, Bytes: 16}
	if d := x.Load().Link(0).Since(before); d != (topo.LinkLoad{AB: one, BA: one}) {
		t.Errorf("refused: %+v", d)
	}
}

func TestPut(t *testing.T) {
	x := line(t, 2)
	below := &target{}
	o := &origin{}
	x.Port(1, 0, below).Put(link.Put{}, make([]byte, 497), o)
	if got := x.Load().Link(0); got != (topo.LinkLoad{BA: topo.Counts{Packets: 2, Bytes: 497 + 2*16}}) || len(below.put) != 497 || len(o.done) != 1 {
		t.Errorf("%+v, %d bytes, %v", got, len(below.put), o.done)
	}
}

func TestMulticast(t *testing.T) {
	x := line(t, 4)
	m := x.Multicast(1)
	members := []fabric.NodeID{0, 3}
	m(4, members, 100)
	m(4, members, 20)
	m(4, nil, 20)
	sum := topo.Counts{Packets: 2, Bytes: 100 + 20 + 2*16}
	want := []topo.LinkLoad{{BA: sum}, {AB: sum}, {AB: sum}}
	if got := x.Load().Links(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	// Another slice is another group, and cut links make another tree.
	m(4, []fabric.NodeID{0, 0}, 1)
	m(4, members, 0)
	if err := x.SetLinkDown(2, 1, true); err != nil {
		t.Fatal(err)
	}
	m(4, members, 1)
	if d := x.Load().Link(0).Since(want[0]); d.BA.Packets != 3 || x.Load().Link(2).AB.Packets != 3 {
		t.Errorf("%+v", x.Load().Links())
	}
	x.Multicast(9)(4, members, 1) // not in the topology
	if got := x.Load().Total().Packets; got != 2*3+1+3+1 {
		t.Errorf("%d hops", got)
	}
	if n := testing.AllocsPerRun(100, func() { m(4, members, 120) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSetLinkDown(t *testing.T) {
	x := line(t, 3)
	r := x.Routes()
	if r.Topology() != x.Topology() || r.Hops(0, 2) != 2 {
		t.Error("routes")
	}
	if err := x.SetLinkDown(0, 2, true); !errors.Is(err, fabric.ErrNoRoute) || x.Routes() != r {
		t.Errorf("a link that is not there: %v", err)
	}
	for _, l := range [][2]fabric.NodeID{{1, 0}, {1, 2}, {0, 1}} {
		if err := x.SetLinkDown(l[0], l[1], true); err != nil {
			t.Fatal(err)
		}
	}
	if cut := x.Routes().Cut(); !slices.Equal(cut, []int{0, 1}) || x.Routes().Reachable(0, 1) {
		t.Errorf("cut %v", cut)
	}
	x.countPackets(0, 2, 0, 1, 1)
	if err := x.SetLinkDown(2, 1, false); err != nil {
		t.Fatal(err)
	}
	if cut := x.Routes().Cut(); !slices.Equal(cut, []int{0}) || x.Routes().Hops(1, 2) != 1 {
		t.Errorf("cut %v", cut)
	}
	if sum := x.Load().Total(); sum != (topo.Counts{}) {
		t.Errorf("without a way: %+v", sum)
	}
}

// TestAdaptive has data take both ways round a square, while messages and requests keep theirs.
func TestAdaptive(t *testing.T) {
	square, err := topo.NewMesh(topo.Dims{2, 2, 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	x, err := New(square)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.SetAdaptive(true); err != nil || !x.Adaptive() {
		t.Fatal(err)
	}
	below := &target{}
	port := x.Port(0, 3, below)
	used := func() (n int) {
		for _, l := range x.Load().Links() {
			for _, c := range []topo.Counts{l.AB, l.BA} {
				if c.Packets > 0 {
					n++
				}
			}
		}
		return n
	}
	for range 20 {
		f, err := port.OpenFlow(1, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		f.Commit(0, word(t, velo.Status{Len: 8}))
		port.Get(request(), &origin{})
	}
	if n := used(); n != 2 {
		t.Errorf("messages and requests took %d links", n)
	}
	port.Put(link.Put{}, make([]byte, 100_000), &origin{})
	if n := used(); n != 4 {
		t.Errorf("with a PUT %d links were taken", n)
	}
	port.Get(request(), &origin{})
	_ = below.sink.Data(0, foreign.Of(make([]byte, 100_000)))
	below.sink.Done(fabric.StatusOK)
	if n := used(); n != 8 {
		t.Errorf("with the response of a GET %d channels were taken", n)
	}
	free, err := topo.New("free", []fabric.NodeID{0, 1}, []topo.Link{{A: topo.End{Node: 0}, B: topo.End{Node: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if x, err = New(free); err != nil {
		t.Fatal(err)
	}
	if err := x.SetAdaptive(true); !errors.Is(err, fabric.ErrInvalid) || x.Adaptive() {
		t.Errorf("a free topology: %v", err)
	}
}
