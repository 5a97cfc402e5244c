package mem_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"exnet/fabric"
	"exnet/fabric/crossbar"
	"exnet/fabric/profile"
	"exnet/fabric/rma"
	"exnet/fabric/topo"
	"exnet/fabric/velo"
)

// A profile's matrix times its routes is what the live links have counted, to the byte:
// messages, multicasts, GETs, GETs that are refused, PUTs.
func TestProfileIsExact(t *testing.T) {
	r := torus(t, 4, 4, 1)
	for _, n := range r.nics {
		if err := n.Routes().Join(5, fabric.NodeID(3)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.send(0, 1); err != nil { // a flow that is open already, and not counted
		t.Fatal(err)
	}
	r.spread(t)
	before := r.Load().Links()
	p := profile.New()
	for _, n := range r.nics {
		n.SetProfile(p)
	}
	rng := rand.New(rand.NewPCG(17, 3))
	const rounds = 300
	for range rounds {
		r.something(t, rng)
	}
	for _, n := range r.nics {
		n.SetProfile(nil)
	}
	live := r.Load().Links()
	r.something(t, rng) // after the end
	want := topo.NewLoad(r.topo)
	for _, f := range p.Flows() {
		c := crossbar.Wire(f)
		if !r.Routes().CarryOf(want, f.Src, f.Dst, f.Class, c.Packets, c.Bytes) {
			t.Fatalf("no way for %+v", f)
		}
	}
	for _, m := range p.Multicasts() {
		tree, err := r.Routes().Tree(m.Src, m.Members)
		if err != nil {
			t.Fatal(err)
		}
		c := crossbar.WireMulticast(m)
		tree.Carry(want, c.Packets, c.Bytes)
	}
	if sum := want.Total(); sum.Packets < rounds || len(p.Multicasts()) < 10 {
		t.Fatalf("%+v in all, %d multicasts", sum, len(p.Multicasts()))
	}
	for i, l := range live {
		if got := l.Since(before[i]); got != want.Link(i) {
			t.Errorf("link %d has counted %+v, the profile says %+v", i, got, want.Link(i))
		}
	}
}

// spread gives every pair of nodes in a row or column the other way round for class 3.
func (r *routed) spread(t *testing.T) {
	t.Helper()
	s := crossbar.Reservation{ID: "spread"}
	for _, a := range r.topo.Nodes() {
		for _, p := range []topo.Port{topo.PortXMinus, topo.PortYMinus} {
			o := topo.Override{From: a, Class: 3}
			at := topo.End{Node: a}
			for range 3 {
				at, _ = r.topo.Neighbour(at.Node, p)
				o.Ports = append(o.Ports, p)
			}
			o.To = at.Node
			s.Overrides = append(s.Overrides, o)
		}
	}
	if err := r.Reserve(s, 0); err != nil {
		t.Fatal(err)
	}
}

// something sends something from somewhere to somewhere else, and reads all that came.
func (r *routed) something(t *testing.T, rng *rand.Rand) {
	t.Helper()
	a, b := rng.IntN(len(r.nics)), rng.IntN(len(r.nics)-1)
	if b >= a {
		b++
	}
	to, payload := r.nics[b].ID(), make([]byte, 1+rng.IntN(velo.MaxPayload))
	class := fabric.Class(rng.IntN(2) * 3)
	var err error
	switch rng.IntN(7) {
	case 0, 1, 2:
		err = r.velo[a].Send(velo.Descriptor{Dst: to, VPID: vpid, Class: class}, payload)
	case 3:
		group := []fabric.GroupID{5, fabric.GroupBroadcast}[rng.IntN(2)]
		err = r.velo[a].SendMulticast(velo.Descriptor{Group: group, VPID: vpid}, payload)
	case 4:
		err = r.rma[a].Get(rma.GetReq{Local: r.sink[a].NLA(), Remote: r.source[b], Len: 1 + rng.IntN(getSize), Class: class, Node: to, VPID: vpid, Notify: rma.NotifyCompleter})
	case 5: // refused there: that memory may only be written
		err = r.rma[a].Get(rma.GetReq{Local: r.sink[a].NLA(), Remote: r.sink[b].NLA(), Len: 8, Class: class, Node: to, VPID: vpid, Notify: rma.NotifyCompleter})
	case 6:
		err = r.rma[a].PutImmediate(rma.PutImmediateReq{Len: 1 + rng.IntN(9), Class: class, Remote: r.source[b], Node: to, VPID: vpid, Notify: rma.NotifyRequester})
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.nics {
		for ok := true; ok; {
			if _, _, ok = r.velo[i].Peek(); ok {
				r.velo[i].Advance()
			}
		}
		for ok := true; ok; {
			_, ok = r.rma[i].Next()
		}
	}
}

// A profile that is asked for while another program sends misses nothing of what comes later, and
// two that follow each other count what was sent, together: all but the message that enters the
// flow just then, which may be missing.
func TestProfileWhileSending(t *testing.T) {
	r := torus(t, 2, 1, 1)
	first, second := profile.New(), profile.New()
	r.nics[0].SetProfile(first)
	const each = 500
	done := make(chan error, 1)
	go func() {
		for range each {
			if err := r.send(0, 1); err != nil {
				done <- err
				return
			}
			if _, _, ok := r.velo[1].Peek(); ok {
				r.velo[1].Advance()
			}
		}
		done <- nil
	}()
	r.nics[0].SetProfile(second)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	sum := uint64(0)
	for _, f := range slices.Concat(first.Flows(), second.Flows()) {
		sum += f.Messages()
	}
	if sum != each && sum != each-1 {
		t.Errorf("%d messages were counted of %d", sum, each)
	}
}
