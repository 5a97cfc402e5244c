package rma_test

import (
	"errors"
	"sync"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
)

// Many operations are under way at once over a link between hosts, and each end is told to its own.
func TestInitiator(t *testing.T) {
	const size, parts = 4096, 64
	nics := fabrictest.NewStream(t, 2, fabrictest.StreamConfig{Conns: 2})
	i := rma.NewInitiator(fabrictest.OpenRMA(t, nics[0], here, rma.Config{}))
	defer i.Close()
	fabrictest.OpenRMA(t, nics[1], there, rma.Config{})
	local := fabrictest.Register(t, nics[0], here, parts*size, atu.Read|atu.Write)
	remote := fabrictest.Register(t, nics[1], there, parts*size, atu.Read|atu.Write)
	nla, err := remote.Lend(0)
	if err != nil {
		t.Fatal(err)
	}
	for n := range remote.Bytes() {
		remote.Bytes()[n] = byte(n/size + n)
	}
	var all sync.WaitGroup
	each := func(what string, want fabric.Status, at atu.NLA, start func(off atu.NLA, done func(fabric.Status)) error) {
		t.Helper()
		for k := range parts {
			all.Add(1)
			err := start(at+atu.NLA(k*size), func(s fabric.Status) {
				defer all.Done()
				if s != want {
					t.Errorf("%s of part %d: %v", what, k, s)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		all.Wait()
	}
	each("GET", fabric.StatusOK, 0, func(off atu.NLA, done func(fabric.Status)) error {
		return i.Get(rma.GetReq{Local: local.NLA() + off, Remote: nla + off, Len: size, Node: 1, VPID: there}, done)
	})
	for n, b := range local.Bytes() {
		if b != byte(n/size+n) {
			t.Fatalf("byte %d is %d", n, b)
		}
	}
	clear(remote.Bytes())
	each("PUT", fabric.StatusOK, 0, func(off atu.NLA, done func(fabric.Status)) error {
		return i.Put(rma.PutReq{Local: local.NLA() + off, Remote: nla + off, Len: size, Node: 1, VPID: there}, done)
	})
	each("GET", fabric.StatusProtection, 0, func(off atu.NLA, done func(fabric.Status)) error {
		return i.Get(rma.GetReq{Local: local.NLA() + off, Remote: nla + 1<<40 + off, Len: size, Node: 1, VPID: there}, done)
	})
}

// held is a link whose operations end when the test says so.
type held struct {
	link.Port
	ends chan func(fabric.Status)
}

func (h *held) Get(_ link.Get, s link.Sink) { h.ends <- s.Done }

func (h *held) Put(_ link.Put, _ []byte, d link.Done) { h.ends <- d.Done }

func newHeld(t *testing.T) (*nic.NIC, *rma.Initiator, *held, *atu.Region) {
	n := fabrictest.NewNIC(t, 0)
	h := &held{ends: make(chan func(fabric.Status), 16)}
	n.Connect(1, h)
	return n, rma.NewInitiator(fabrictest.OpenRMA(t, n, here, rma.Config{})), h, fabrictest.Register(t, n, here, 8192, atu.Read|atu.Write)
}

// Operations that end in another order than they began: each end is told once, to its own. Two that
// a notification could not tell apart are not under way together.
func TestInitiatorOrder(t *testing.T) {
	_, i, h, local := newHeld(t)
	defer i.Close()
	ends := make(chan int, 16)
	get := func(off, k int) error {
		return i.Get(rma.GetReq{Local: local.NLA() + atu.NLA(off), Len: 100, Node: 1, VPID: there}, func(s fabric.Status) {
			ends <- k*16 + int(s)
		})
	}
	for k := range 3 {
		if err := get(1000*k, k); err != nil {
			t.Fatal(err)
		}
	}
	if err := get(1000, 9); !errors.Is(err, fabric.ErrInUse) {
		t.Errorf("a second GET into the same place: %v", err)
	}
	first, second, third := <-h.ends, <-h.ends, <-h.ends
	for _, end := range []struct {
		f    func(fabric.Status)
		s    fabric.Status
		want int
	}{
		{third, fabric.StatusPeerDown, 2*16 + int(fabric.StatusPeerDown)},
		{first, fabric.StatusNoVPID, int(fabric.StatusNoVPID)},
		{second, fabric.StatusProtection, 16 + int(fabric.StatusProtection)},
	} {
		end.f(end.s)
		if got := <-ends; got != end.want {
			t.Errorf("told %#x, want %#x", got, end.want)
		}
	}
	if err := get(1000, 1); err != nil {
		t.Errorf("the place is free again: %v", err)
	}
	(<-h.ends)(fabric.StatusProtection)
	<-ends
	if err := i.Put(rma.PutReq{Local: local.NLA(), Len: 100, Node: 7, VPID: there}, nil); !errors.Is(err, fabric.ErrNoRoute) {
		t.Errorf("a PUT to nowhere: %v", err)
	}
}

// Close ends what is under way, and what ends later is told nobody. The memory is free when the
// region is closed.
func TestInitiatorClose(t *testing.T) {
	_, i, h, local := newHeld(t)
	told := make(chan fabric.Status, 2)
	put := rma.PutReq{Local: local.NLA(), Len: 100, Node: 1, VPID: there}
	if err := i.Put(put, func(s fabric.Status) { told <- s }); err != nil {
		t.Fatal(err)
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	if s := <-told; s != fabric.StatusPeerDown {
		t.Errorf("told %v", s)
	}
	if err := i.Put(put, nil); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("a PUT after Close: %v", err)
	}
	if err := i.Close(); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("a second Close: %v", err)
	}
	(<-h.ends)(fabric.StatusOK)
	if err := local.Close(); err != nil {
		t.Error(err)
	}
	if len(told) != 0 {
		t.Error("the end is told twice")
	}
}

var _ link.Port = (*held)(nil)
