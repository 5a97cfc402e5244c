package mem_test

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/internal/leaktest"
	"exnet/internal/longtest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const vpid = fabric.VPID(1)

func attach(tb testing.TB, f *mem.Fabric, ids ...fabric.NodeID) (nics []*nic.NIC) {
	tb.Helper()
	for _, id := range ids {
		n := fabrictest.NewNIC(tb, id)
		if err := f.Attach(n); err != nil {
			tb.Fatal(err)
		}
		nics = append(nics, n)
	}
	return nics
}

func TestAttachFillsTables(t *testing.T) {
	nics := attach(t, mem.NewFabric(), 5, 1024, 65535)
	for _, n := range nics {
		var others []fabric.NodeID
		for _, p := range nics {
			if n.Routes().Port(p.ID()) == nil {
				t.Errorf("node %d has no way to %d", n.ID(), p.ID())
			}
			if p != n {
				others = append(others, p.ID())
			}
		}
		if got := n.Routes().Members(fabric.GroupBroadcast); !slices.Equal(got, others) {
			t.Errorf("node %d broadcasts to %v, want %v", n.ID(), got, others)
		}
		if n.Routes().Port(6) != nil {
			t.Errorf("node %d has a way to node 6", n.ID())
		}
	}
}

func TestAttachTwice(t *testing.T) {
	f := mem.NewFabric()
	n := attach(t, f, 5)[0]
	if err := f.Attach(n); !errors.Is(err, fabric.ErrInUse) {
		t.Errorf("the same NIC again: %v", err)
	}
	other := fabrictest.NewNIC(t, 5)
	if err := f.Attach(other); !errors.Is(err, fabric.ErrInUse) {
		t.Errorf("another NIC with the same ID: %v", err)
	}
	if err := f.Detach(other); !errors.Is(err, fabric.ErrNoRoute) {
		t.Errorf("detach a NIC that is not attached: %v", err)
	}
	if err := f.Detach(n); err != nil {
		t.Fatal(err)
	}
	if err := f.Attach(other); err != nil {
		t.Errorf("the ID is free again: %v", err)
	}
}

func TestDetach(t *testing.T) {
	f := mem.NewFabric()
	nics := attach(t, f, 1, 2, 3)
	x := fabrictest.OpenVELO(t, nics[0], vpid, velo.Config{})
	y := fabrictest.OpenVELO(t, nics[1], vpid, velo.Config{Slots: 2, Credits: 2})
	send := func(e *velo.Endpoint, n fabric.NodeID) error {
		return e.Send(velo.Descriptor{Dst: n, VPID: vpid}, []byte{1})
	}
	var woken atomic.Int64
	x.OnCredit(func(fabric.NodeID) { woken.Add(1) })
	for send(x, 2) == nil {
	}
	if err := send(y, 1); err != nil {
		t.Fatal(err)
	}
	if err := f.Detach(nics[1]); err != nil {
		t.Fatal(err)
	}
	if woken.Load() != 1 {
		t.Errorf("OnCredit was called %d times: who waits must be told", woken.Load())
	}
	for _, tt := range []struct {
		e *velo.Endpoint
		n fabric.NodeID
	}{{x, 2}, {y, 1}, {y, 2}, {y, 3}} {
		if err := send(tt.e, tt.n); !errors.Is(err, fabric.ErrNoRoute) {
			t.Errorf("send to node %d: %v", tt.n, err)
		}
	}
	r := fabrictest.OpenRMA(t, nics[0], vpid, rma.Config{})
	local := fabrictest.Register(t, nics[0], vpid, 10, atu.Write)
	if err := r.Get(rma.GetReq{Local: local.NLA(), Len: 1, Node: 2, VPID: vpid}); !errors.Is(err, fabric.ErrNoRoute) {
		t.Errorf("GET: %v", err)
	}
	if got := nics[0].Routes().Members(fabric.GroupBroadcast); !slices.Equal(got, []fabric.NodeID{3}) {
		t.Errorf("broadcast group %v", got)
	}
	if got := nics[1].Routes().Members(fabric.GroupBroadcast); len(got) != 0 {
		t.Errorf("the detached NIC broadcasts to %v", got)
	}
	// A successor with the same ID starts from nothing.
	next := attach(t, f, 2)[0]
	z := fabrictest.OpenVELO(t, next, vpid, velo.Config{})
	if err := send(x, 2); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := z.Peek(); !ok {
		t.Error("the successor got nothing")
	}
	if n := x.Credits(2, vpid); n != 127 {
		t.Errorf("%d credits of the successor", n)
	}
}

func TestClosedNIC(t *testing.T) {
	nics := attach(t, mem.NewFabric(), 1, 2)
	x := fabrictest.OpenVELO(t, nics[0], vpid, velo.Config{})
	fabrictest.OpenVELO(t, nics[1], vpid, velo.Config{})
	d := velo.Descriptor{Dst: 2, VPID: vpid}
	if err := x.Send(d, []byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := nics[1].Close(); err != nil {
		t.Fatal(err)
	}
	if err := nics[1].Close(); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	if err := x.Send(d, []byte{1}); !errors.Is(err, fabric.ErrPeerDown) {
		t.Errorf("send to a closed NIC: %v", err)
	}
	if _, err := nics[1].OpenVELO(vpid, velo.Config{}); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("OpenVELO: %v", err)
	}
	if _, err := nics[1].OpenRMA(vpid, rma.Config{}); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("OpenRMA: %v", err)
	}
}

// Nodes come and go while everybody sends to everybody, in every way there is.
// Nothing breaks, and only the errors that the contract names occur.
func TestNodesComeAndGo(t *testing.T) {
	f := mem.NewFabric()
	stable := attach(t, f, 1, 2)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for i, n := range stable {
		e := fabrictest.OpenVELO(t, n, vpid, velo.Config{})
		r := fabrictest.OpenRMA(t, n, vpid, rma.Config{})
		local := fabrictest.Register(t, n, vpid, 100, atu.Write)
		peer := stable[1-i].ID()
		wg.Go(func() {
			for !stop.Load() {
				for _, dst := range []fabric.NodeID{peer, 3, 4} {
					err := e.Send(velo.Descriptor{Dst: dst, VPID: vpid}, []byte{1})
					if err != nil && !errors.Is(err, fabric.ErrAgain) && !errors.Is(err, fabric.ErrPeerDown) && !errors.Is(err, fabric.ErrNoRoute) {
						t.Errorf("send: %v", err)
					}
					err = r.Get(rma.GetReq{Local: local.NLA(), Remote: 1, Len: 1, Node: dst, VPID: vpid, Notify: rma.NotifyCompleter})
					if err != nil && !errors.Is(err, fabric.ErrNoRoute) {
						t.Errorf("GET: %v", err)
					}
					if n, ok := r.Next(); ok == (err != nil) || ok && n.Status == fabric.StatusOK {
						t.Errorf("GET: error %v, notification %+v", err, n)
					}
				}
				err := e.SendMulticast(velo.Descriptor{Group: fabric.GroupBroadcast, VPID: vpid}, []byte{1})
				if err != nil && !errors.Is(err, fabric.ErrAgain) {
					t.Errorf("multicast: %v", err)
				}
				for {
					if _, _, ok := e.Peek(); !ok {
						break
					}
					e.Advance()
				}
			}
		})
	}
	for i := range 200 {
		n, err := nic.New(nic.Config{Node: fabric.NodeID(3 + i%2)})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Attach(n); err != nil {
			t.Fatal(err)
		}
		e := fabrictest.OpenVELO(t, n, vpid, velo.Config{Slots: 16})
		_ = e.SendMulticast(velo.Descriptor{Group: fabric.GroupBroadcast, VPID: vpid}, []byte{1})
		runtime.Gosched()
		if i%3 == 0 {
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Detach(n); err != nil {
			t.Fatal(err)
		}
		_ = n.Close()
	}
	stop.Store(true)
	wg.Wait()
}

// 512 nodes, each of which has broadcast: every pair of mailboxes has a flow.
func TestLargeFabric(t *testing.T) {
	const nodes = 512
	longtest.Skip(t) // 262,144 flows
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	nics := fabrictest.New(t, nodes)
	eps := make([]*velo.Endpoint, nodes)
	for i, n := range nics {
		eps[i] = fabrictest.OpenVELO(t, n, vpid, velo.Config{})
	}
	for _, e := range eps {
		if err := e.SendMulticast(velo.Descriptor{Group: fabric.GroupBroadcast, VPID: vpid}, []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	for i, e := range eps {
		n := 0
		for ; ; n++ {
			if _, _, ok := e.Peek(); !ok {
				break
			}
			e.Advance()
		}
		if n != nodes-1 {
			t.Fatalf("node %d got %d messages", i, n)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	mb := (after.HeapAlloc - before.HeapAlloc) >> 20
	t.Logf("%d MB of heap", mb)
	if mb > 300 {
		t.Errorf("%d nodes take %d MB of heap, at most 300 expected", nodes, mb)
	}
	runtime.KeepAlive(nics)
}
