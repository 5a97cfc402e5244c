package mem_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"exnet/fabric"
	"exnet/fabric/topo"
	"exnet/fabric/velo"
)

// Packets go round a cut link, and come back to it.
func TestCutAndRejoin(t *testing.T) {
	r := torus(t, 4, 4, 4)
	l, _ := r.topo.Between(0, 1)
	pairs := func() {
		t.Helper()
		for a := range r.nics {
			for b := range r.nics {
				if err := r.send(a, b); err != nil {
					t.Fatalf("send %d to %d: %v", a, b, err)
				}
				if from := r.received(b); !slices.Equal(from, []int{a}) {
					t.Fatalf("node %d has messages of %v, sent was one of %d", b, from, a)
				}
				if err := r.get(a, b); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	pairs()
	first, whole := r.Load().Link(l), r.Load().Total()
	if err := r.SetLinkDown(1, 0, true); err != nil {
		t.Fatal(err)
	}
	if !r.Routes().Down(l) || r.Routes().Hops(0, 1) != 3 {
		t.Errorf("link %d cut %v, %d hops from 0 to 1", l, r.Routes().Down(l), r.Routes().Hops(0, 1))
	}
	pairs()
	if now := r.Load().Link(l); now != first || first.AB.Packets == 0 || first.BA.Packets == 0 {
		t.Errorf("load of the cut link %+v, before %+v", now, first)
	}
	if detour := r.Load().Total().Packets - whole.Packets; detour <= whole.Packets {
		t.Errorf("%d packets with the link cut, %d before", detour, whole.Packets)
	}
	before := r.Load().Link(l)
	if err := r.SetLinkDown(0, 1, false); err != nil {
		t.Fatal(err)
	}
	pairs()
	if d := r.Load().Link(l).Since(before); d != first {
		t.Errorf("joined again: %+v, the first time %+v", d, first)
	}
}

// A cut that separates nodes disconnects them, and wakes who waits; a link that
// comes back connects them again.
func TestSeparation(t *testing.T) {
	line, err := topo.NewMesh(topo.Dims{4, 1, 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := on(t, line)
	var woken []fabric.NodeID
	r.velo[0].OnCredit(func(n fabric.NodeID) { woken = append(woken, n) })
	for r.send(0, 3) == nil { // until there is no credit
	}
	if err := r.SetLinkDown(1, 2, true); err != nil {
		t.Fatal(err)
	}
	if err := r.SetLinkDown(2, 1, true); err != nil { // is cut already
		t.Fatal(err)
	}
	if !slices.Equal(woken, []fabric.NodeID{3}) {
		t.Errorf("OnCredit for %v", woken)
	}
	r.received(3)
	for a := range 4 {
		for b := range 4 {
			var want error
			if a/2 != b/2 {
				want = fabric.ErrNoRoute
			}
			if err := r.send(a, b); !errors.Is(err, want) {
				t.Errorf("send %d to %d: %v, want %v", a, b, err, want)
			}
			if err := r.get(a, b); !errors.Is(err, want) {
				t.Errorf("GET %d to %d: %v, want %v", a, b, err, want)
			}
		}
		if want := []fabric.NodeID{fabric.NodeID(a ^ 1)}; !slices.Equal(r.nics[a].Routes().Members(fabric.GroupBroadcast), want) {
			t.Errorf("node %d broadcasts to %v, want %v", a, r.nics[a].Routes().Members(fabric.GroupBroadcast), want)
		}
	}
	if err := r.velo[0].SendMulticast(velo.Descriptor{Group: fabric.GroupBroadcast, VPID: vpid}, make([]byte, 8)); err != nil {
		t.Error(err)
	}
	for a := range 4 {
		r.received(a)
	}
	// A NIC that comes now reaches its side only.
	if err := r.Detach(r.nics[3]); err != nil {
		t.Fatal(err)
	}
	if err := r.Attach(r.nics[3]); err != nil {
		t.Fatal(err)
	}
	if r.nics[3].Routes().Port(2) == nil || r.nics[3].Routes().Port(1) != nil || r.nics[0].Routes().Port(3) != nil {
		t.Error("a NIC attached while the link is cut has the wrong routes")
	}
	if err := r.SetLinkDown(1, 2, false); err != nil {
		t.Fatal(err)
	}
	for a := range 4 {
		for b := range 4 {
			if err := r.send(a, b); err != nil {
				t.Errorf("send %d to %d: %v", a, b, err)
			}
			if from := r.received(b); !slices.Equal(from, []int{a}) {
				t.Errorf("node %d has messages of %v, sent was one of %d", b, from, a)
			}
			if err := r.get(a, b); err != nil {
				t.Errorf("GET %d to %d: %v", a, b, err)
			}
		}
		if n := len(r.nics[a].Routes().Members(fabric.GroupBroadcast)); n != 3 {
			t.Errorf("node %d broadcasts to %d nodes", a, n)
		}
	}
	if err := r.SetLinkDown(0, 3, true); !errors.Is(err, fabric.ErrNoRoute) {
		t.Errorf("cut a link that is not there: %v", err)
	}
}

// Links are cut and joined while everybody sends, in every way there is. Only the
// errors that the contract names occur, and in the end everything works.
func TestCutsUnderTraffic(t *testing.T) {
	r := torus(t, 3, 3, 1)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for a := range r.nics {
		wg.Go(func() {
			for b := 0; !stop.Load(); b = (b + 1) % len(r.nics) {
				if err := r.send(a, b); err != nil && !errors.Is(err, fabric.ErrAgain) && !errors.Is(err, fabric.ErrNoRoute) && !errors.Is(err, fabric.ErrPeerDown) {
					t.Errorf("send: %v", err)
				}
				if err := r.get(a, b); err != nil && !errors.Is(err, fabric.ErrNoRoute) {
					t.Errorf("GET: %v", err)
				}
				err := r.velo[a].SendMulticast(velo.Descriptor{Group: fabric.GroupBroadcast, VPID: vpid}, make([]byte, 8))
				if err != nil && !errors.Is(err, fabric.ErrAgain) {
					t.Errorf("multicast: %v", err)
				}
				r.received(a)
			}
		})
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	links := r.topo.Links()
	for range 400 {
		l := links[rnd.IntN(len(links))]
		if err := r.SetLinkDown(l.A.Node, l.B.Node, rnd.IntN(3) > 0); err != nil {
			t.Error(err)
		}
	}
	for _, l := range links {
		if err := r.SetLinkDown(l.A.Node, l.B.Node, false); err != nil {
			t.Error(err)
		}
	}
	stop.Store(true)
	wg.Wait()
	for a := range r.nics {
		r.received(a)
	}
	for a := range r.nics {
		for b := range r.nics {
			if err := r.send(a, b); err != nil {
				t.Errorf("send %d to %d: %v", a, b, err)
			}
			if err := r.get(a, b); err != nil {
				t.Errorf("GET %d to %d: %v", a, b, err)
			}
		}
	}
}
