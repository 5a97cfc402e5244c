package velo_test

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
	"exnet/fabric/velo"
)

var broadcast = velo.Descriptor{Group: fabric.GroupBroadcast, VPID: vpid, Tag: 9, Type: 3}

// mailboxes opens vpid on every NIC.
func mailboxes(tb testing.TB, nics []*nic.NIC, cfg velo.Config) (eps []*velo.Endpoint) {
	tb.Helper()
	for _, n := range nics {
		eps = append(eps, fabrictest.OpenVELO(tb, n, vpid, cfg))
	}
	return eps
}

func TestBroadcastReachesAllButTheSender(t *testing.T) {
	eps := mailboxes(t, fabrictest.New(t, 5), velo.Config{})
	d := broadcast
	d.Multicast = true
	if err := eps[2].Send(d, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	for i, e := range eps {
		st, p, ok := e.Peek()
		if ok == (i == 2) {
			t.Fatalf("node %d: message %v", i, ok)
		}
		if !ok {
			continue
		}
		st.Flow = 0
		want := velo.Status{Src: 2, SrcVPID: vpid, Len: 5, Tag: 9, Type: 3, Multicast: true}
		if st != want || string(p) != "hello" {
			t.Errorf("node %d: %+v %q", i, st, p)
		}
		e.Advance()
	}
	if s := eps[2].Stats(); s.Sent != 4 || s.Multicasts != 1 {
		t.Errorf("counters %+v", s)
	}
}

func TestMulticastGroups(t *testing.T) {
	nics := fabrictest.New(t, 4)
	eps := mailboxes(t, nics, velo.Config{Slots: 8, Credits: 4})
	for _, n := range []fabric.NodeID{1, 3} {
		if err := nics[0].Routes().Join(7, n); err != nil {
			t.Fatal(err)
		}
	}
	d := velo.Descriptor{Group: 7, VPID: vpid}
	if err := eps[0].SendMulticast(d, []byte{1}); err != nil {
		t.Fatal(err)
	}
	if got := []int{drain(eps[1]), drain(eps[2]), drain(eps[3])}; !slices.Equal(got, []int{1, 0, 1}) {
		t.Errorf("messages %v", got)
	}
	fill(t, eps[0], 3)
	if n := eps[0].GroupCredits(7, vpid); n != 0 {
		t.Errorf("%d credits for the group, one member has none", n)
	}
	if n := eps[0].GroupCredits(8, vpid); n != math.MaxInt {
		t.Errorf("%d credits for an empty group", n)
	}
	if err := eps[0].SendMulticast(velo.Descriptor{Group: 8, VPID: vpid}, []byte{1}); err != nil {
		t.Errorf("multicast to an empty group: %v", err)
	}
}

// One member without credit: nobody gets the message, nobody loses a credit, and
// OnCredit comes for that member.
func TestMulticastIsAllOrNothing(t *testing.T) {
	eps := mailboxes(t, fabrictest.New(t, 4), velo.Config{Slots: 8, Credits: 4})
	x := eps[0]
	c := watch(x)
	fill(t, x, 2)
	c.take()
	if err := x.SendMulticast(broadcast, []byte{1}); !errors.Is(err, fabric.ErrAgain) {
		t.Fatalf("multicast: %v", err)
	}
	for _, n := range []fabric.NodeID{1, 3} {
		if drain(eps[n]) != 0 || x.Credits(n, vpid) != 4 {
			t.Errorf("node %d: got the message or lost a credit", n)
		}
	}
	drain(eps[2])
	if got := c.take(); !slices.Equal(got, []fabric.NodeID{2}) {
		t.Fatalf("OnCredit(%v)", got)
	}
	if err := x.SendMulticast(broadcast, []byte{1}); err != nil {
		t.Fatal(err)
	}
	for i, e := range eps[1:] {
		if n := drain(e); n != 1 {
			t.Errorf("node %d: %d messages", i+1, n)
		}
	}
}

// One member's mailbox is full, in spite of credit: the others' slots are given
// up and skipped, and the credits come back.
func TestMulticastMeetsFullMailbox(t *testing.T) {
	nics := fabrictest.New(t, 4)
	eps := mailboxes(t, nics[:2], velo.Config{Slots: 8, Credits: 4})
	full := fabrictest.OpenVELO(t, nics[2], vpid, velo.Config{Slots: 4, Credits: 4})
	other := fabrictest.OpenVELO(t, nics[3], 2, velo.Config{})
	fill(t, other, 2)
	c := watch(eps[0])
	if err := eps[0].SendMulticast(broadcast, []byte{1}); !errors.Is(err, fabric.ErrAgain) {
		t.Fatalf("multicast: %v", err)
	}
	if n := drain(eps[1]); n != 0 {
		t.Fatalf("a member got %d messages", n)
	}
	for n := range fabric.NodeID(2) {
		if got := eps[0].Credits(n+1, vpid); got != 4 {
			t.Errorf("node %d: %d credits, want 4", n+1, got)
		}
	}
	if s := eps[1].Stats(); s.Void != 1 || s.BadSlot != 0 {
		t.Errorf("counters of a member %+v", s)
	}
	if n := drain(full); n != 4 {
		t.Fatalf("%d messages of the other source", n)
	}
	if got := c.take(); !slices.Equal(got, []fabric.NodeID{2}) {
		t.Errorf("OnCredit(%v)", got)
	}
	if err := eps[0].SendMulticast(broadcast, []byte{1}); err != nil {
		t.Fatal(err)
	}
	if a, b := drain(eps[1]), drain(full); a != 1 || b != 1 {
		t.Errorf("%d and %d messages", a, b)
	}
	if s := eps[0].Stats(); s.MailboxFull != 1 || s.MulticastAbsent != 2 { // node 3, twice
		t.Errorf("counters %+v", s)
	}
}

func TestMulticastSkip(t *testing.T) {
	eps := mailboxes(t, fabrictest.New(t, 5), velo.Config{Slots: 4, Credits: 4})
	x := eps[0]
	c := watch(x)
	fill(t, x, 2)      // no credit
	read(t, eps[2], 1) // 1, but want is open
	fill(t, eps[1], 3) // no slot
	if err := eps[4].Close(); err != nil {
		t.Fatal(err)
	}
	fill(t, x, 2)
	c.take()
	skipped, err := x.SendMulticastSkip(broadcast, []byte{1})
	if skipped != 2 || err != nil {
		t.Fatalf("%d members left out, %v; want 2", skipped, err)
	}
	if n := drain(eps[1]); n != 1 {
		t.Errorf("node 1: %d messages", n)
	}
	drain(eps[3])
	if n := x.Credits(3, vpid); n != 4 {
		t.Errorf("a member that was left out has %d credits", n)
	}
	if got := c.take(); got != nil {
		t.Errorf("OnCredit(%v) for a member that was left out", got)
	}
	s := x.Stats()
	if s.MulticastSkipped != 2 || s.MulticastAbsent != 1 || s.Multicasts != 1 {
		t.Errorf("counters %+v", s)
	}
}

// SendMulticastTo reaches whom it is given, whoever else is in the group.
func TestMulticastTo(t *testing.T) {
	eps := mailboxes(t, fabrictest.New(t, 4), velo.Config{Slots: 4, Credits: 4})
	x := eps[0]
	if err := x.SendMulticastTo(broadcast, []fabric.NodeID{1, 3}, []byte{1}); err != nil {
		t.Fatal(err)
	}
	fill(t, x, 2)
	for range 3 {
		if err := x.SendMulticastTo(broadcast, []fabric.NodeID{1, 3}, []byte{1}); err != nil {
			t.Fatalf("a member without credit that is not meant: %v", err)
		}
	}
	if err := x.SendMulticastTo(broadcast, []fabric.NodeID{1, 3}, []byte{1}); !errors.Is(err, fabric.ErrAgain) {
		t.Errorf("without credit: %v", err)
	}
	if got := [2]int{drain(eps[1]), drain(eps[3])}; got != [2]int{4, 4} {
		t.Errorf("%v messages, want 4 each", got)
	}
	if s := x.Stats(); s.MulticastSkipped != 4 || s.Multicasts != 4 {
		t.Errorf("counters %+v", s)
	}
}

func TestWantGroupCredits(t *testing.T) {
	nics := fabrictest.New(t, 4)
	eps := mailboxes(t, nics[:3], velo.Config{Slots: 8, Credits: 4})
	x := eps[0]
	c := watch(x)
	if !x.WantGroupCredits(fabric.GroupBroadcast, vpid, 3) {
		t.Fatal("no credits at the beginning")
	}
	for range 2 {
		if err := x.Send(to(2), []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	if x.WantGroupCredits(fabric.GroupBroadcast, vpid, 3) {
		t.Fatal("3 credits, node 2 has 2")
	}
	drain(eps[2])
	if got := c.take(); !slices.Equal(got, []fabric.NodeID{2}) {
		t.Errorf("OnCredit(%v)", got)
	}
	if !x.WantGroupCredits(fabric.GroupBroadcast, vpid, 3) {
		t.Error("no credits though all are back")
	}
}

// Every node broadcasts while every node reads; each message arrives at each
// other node, in the order of its source, and nothing hangs.
func TestBroadcastStorm(t *testing.T) {
	const nodes, each = 4, 500
	nics := fabrictest.New(t, nodes)
	eps := mailboxes(t, nics, velo.Config{Slots: 8, Credits: 4}) // rings fill
	var wg sync.WaitGroup
	for i, e := range eps {
		credit := make(chan struct{}, 1)
		e.OnCredit(func(fabric.NodeID) {
			select {
			case credit <- struct{}{}:
			default:
			}
		})
		wg.Go(func() {
			for seq := range each {
				for {
					err := e.SendMulticast(broadcast, []byte{byte(seq)})
					if err == nil {
						break
					}
					if !errors.Is(err, fabric.ErrAgain) {
						t.Error(err)
						return
					}
					<-credit
				}
			}
		})
		wg.Go(func() {
			var next [nodes]byte
			for n := 0; n < (nodes-1)*each; {
				st, p, ok := e.Peek()
				if !ok {
					runtime.Gosched()
					continue
				}
				if p[0] != next[st.Src] {
					t.Errorf("node %d: message %d of node %d, want %d", i, p[0], st.Src, next[st.Src])
					return
				}
				next[st.Src]++
				e.Advance()
				n++
			}
		})
	}
	wg.Wait()
}
