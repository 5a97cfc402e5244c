package rma_test

import (
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link"
	"exnet/fabric/rma"
	"exnet/foreign"
)

// Own operations use up their half of the queue and are refused; reading makes
// room.
func TestOwnNotificationsCannotOverflow(t *testing.T) {
	r := newRig(t, 100, rma.Config{Notifications: 8})
	started := 0
	for range 10 {
		err := r.origin.Get(r.get(1, rma.NotifyCompleter))
		if errors.Is(err, fabric.ErrAgain) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		started++
	}
	if started != 4 {
		t.Fatalf("%d operations in half of a queue of 8", started)
	}
	if err := r.origin.Put(r.put(1, rma.NotifyRequester)); !errors.Is(err, fabric.ErrAgain) {
		t.Errorf("PUT: %v", err)
	}
	if err := r.origin.Get(r.get(1, 0)); err != nil {
		t.Errorf("GET without notification: %v", err)
	}
	if _, ok := r.origin.Next(); !ok {
		t.Fatal("no notification")
	}
	if err := r.origin.Put(r.put(1, rma.NotifyRequester)); err != nil {
		t.Errorf("after one was read: %v", err)
	}
	if n := len(all(r.origin)); n != 4 {
		t.Errorf("%d notifications, want 4", n)
	}
	if r.origin.Err() != nil || r.nics[0].Stats().RMA.QueueFull != 2 {
		t.Errorf("Err %v, counters %+v", r.origin.Err(), r.nics[0].Stats().RMA)
	}
}

// An operation of a peer that fails leaves no notification, and takes no room for one.
func TestFailedOperationsTakeNoRoom(t *testing.T) {
	r := newRig(t, 100, rma.Config{Notifications: 8})
	dev, err := r.nics[1].ATU().RegisterDevice(there, &sink{err: io.ErrClosedPipe}, 100, atu.Write)
	if err != nil {
		t.Fatal(err)
	}
	device, err := dev.Lend(0)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		c := new(collector)
		r.nics[1].ServeGet(0, link.Get{From: here, To: there, Remote: ^atu.NLA(0), Len: 1, Notify: true}, c)
		r.nics[1].ServePut(0, link.Put{From: here, To: there, Remote: device, Notify: true}, foreign.Of([]byte{1}), c)
		if want := []fabric.Status{fabric.StatusProtection, fabric.StatusDevice}; !slices.Equal(c.status, want) {
			t.Fatalf("status %v, want %v", c.status, want)
		}
		l, st := r.nics[1].LendGet(0, link.Get{From: here, To: there, Remote: r.remoteNLA, Len: 1, Notify: true})
		if st != fabric.StatusOK {
			t.Fatalf("memory to be read by its peer: %v", st)
		}
		l.End(false)
	}
	if n := all(r.target); len(n) != 0 || r.target.Err() != nil {
		t.Errorf("notifications %v, error %v", n, r.target.Err())
	}
}

// A peer's operations beyond its half are refused before data moves; the target
// is told by a sticky error, the origin by a status. The target's own operations
// still have their half.
func TestPeersNotificationsCannotOverflowSilently(t *testing.T) {
	r := newRig(t, 100, rma.Config{Notifications: 8})
	both := rma.NotifyCompleter | rma.NotifyResponder
	for i := range 6 {
		r.remote.Bytes()[0], r.local.Bytes()[0] = 7, 0
		if err := r.origin.Get(r.get(1, both)); err != nil {
			t.Fatal(err)
		}
		n := all(r.origin)
		want, data := fabric.StatusOK, byte(7)
		if i >= 4 {
			want, data = fabric.StatusOverrun, 0
		}
		if len(n) != 1 || n[0].Status != want || r.local.Bytes()[0] != data {
			t.Fatalf("GET %d: %+v, data %d", i, n, r.local.Bytes()[0])
		}
		if overrun := errors.Is(r.target.Err(), fabric.ErrOverrun); overrun != (i >= 4) {
			t.Fatalf("GET %d: Err %v", i, r.target.Err())
		}
	}
	if n := r.nics[1].Stats().RMA.Overruns; n != 2 {
		t.Errorf("%d overruns counted", n)
	}
	mine, err := r.local.Lend(1)
	if err != nil {
		t.Fatal(err)
	}
	own := rma.GetReq{Local: r.remote.NLA(), Remote: mine, Len: 1, Node: 0, VPID: here, Notify: rma.NotifyCompleter}
	if err := r.target.Get(own); err != nil {
		t.Errorf("own operation beside the overrun: %v", err)
	}
	if n := len(all(r.target)); n != 5 {
		t.Errorf("%d notifications, want 5", n)
	}
	if err := r.origin.Get(r.get(1, both)); err != nil {
		t.Fatal(err)
	}
	if n := all(r.origin); len(n) != 1 || n[0].Status != fabric.StatusOK {
		t.Errorf("after the queue was read: %+v", n)
	}
	if r.target.Err() == nil {
		t.Error("the overrun has been forgotten")
	}
}

func TestInterrupt(t *testing.T) {
	r := newRig(t, 100, rma.Config{})
	var order []string
	r.origin.OnInterrupt(func() { order = append(order, "completer") })
	r.target.OnInterrupt(func() { order = append(order, "responder") })
	get := func() {
		t.Helper()
		if err := r.origin.Get(r.get(1, rma.NotifyCompleter|rma.NotifyResponder)); err != nil {
			t.Fatal(err)
		}
	}
	get()
	if len(order) != 0 {
		t.Fatal("interrupt while disabled")
	}
	if !r.origin.EnableInterrupt() || !r.target.EnableInterrupt() {
		t.Fatal("EnableInterrupt does not see the notifications")
	}
	get()
	get()
	if len(order) != 2 || order[0] != "responder" || order[1] != "completer" {
		t.Fatalf("interrupts %v", order)
	}
	all(r.origin)
	if r.origin.EnableInterrupt() {
		t.Fatal("EnableInterrupt sees notifications in an empty queue")
	}
	r.origin.DisableInterrupt()
	get()
	if len(order) != 2 {
		t.Fatal("interrupt after DisableInterrupt")
	}
	if n := r.nics[0].Stats().RMA.Interrupts; n != 1 {
		t.Errorf("%d interrupts counted", n)
	}
	if err := r.origin.Close(); err != nil {
		t.Fatal(err)
	}
	if n := r.nics[0].Stats().RMA.Interrupts; n != 1 {
		t.Errorf("%d interrupts counted after Close", n)
	}
}

// A handler may start operations: here the target's answers every GET with one
// into the other direction, in the same goroutine.
func TestHandlersNest(t *testing.T) {
	r := newRig(t, 100, rma.Config{})
	back, err := r.local.LendAll()
	if err != nil {
		t.Fatal(err)
	}
	hops := 0
	r.target.OnInterrupt(func() {
		all(r.target)
		if hops++; hops < 20 {
			r.target.EnableInterrupt()
			if err := r.target.Get(rma.GetReq{
				Local: r.remote.NLA(), Remote: back, Len: 100, Node: 0, VPID: here,
				Notify: rma.NotifyCompleter | rma.NotifyResponder,
			}); err != nil {
				t.Error(err)
			}
		}
	})
	r.target.EnableInterrupt()
	if err := r.origin.Get(r.get(100, rma.NotifyCompleter|rma.NotifyResponder)); err != nil {
		t.Fatal(err)
	}
	if hops != 20 {
		t.Errorf("%d hops", hops)
	}
}

// Many goroutines on several nodes write into one queue, and a consumer that
// sleeps until it is interrupted reads them: none is lost.
func TestNoLostInterrupt(t *testing.T) {
	const peers, each = 3, 4000
	nics := fabrictest.New(t, peers+1)
	dst := fabrictest.OpenRMA(t, nics[peers], there, rma.Config{Notifications: 256})
	src := fabrictest.Register(t, nics[peers], there, 64, atu.Read)
	nla, err := src.LendAll()
	if err != nil {
		t.Fatal(err)
	}
	wake := make(chan struct{}, 1)
	dst.OnInterrupt(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	dst.EnableInterrupt()
	var served atomic.Int64
	var wg sync.WaitGroup
	for i := range peers {
		e := fabrictest.OpenRMA(t, nics[i], here, rma.Config{})
		local := fabrictest.Register(t, nics[i], here, 64, atu.Write)
		wg.Go(func() {
			for range each {
				if err := e.Get(rma.GetReq{
					Local: local.NLA(), Remote: nla, Len: 64, Node: peers, VPID: there,
					Notify: rma.NotifyCompleter | rma.NotifyResponder,
				}); err != nil {
					t.Error(err)
					return
				}
				if n, ok := e.Next(); !ok || n.Status != fabric.StatusOK && n.Status != fabric.StatusOverrun {
					t.Errorf("notification %+v, %v", n, ok)
				} else if n.Status == fabric.StatusOK {
					served.Add(1)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	for read := int64(0); ended != nil || read < served.Load(); {
		select {
		case <-ended:
			ended = nil
			continue
		case <-wake:
		case <-time.After(3 * time.Minute):
			t.Fatalf("an interrupt is lost: %d notifications read, %d GETs served", read, served.Load())
		}
		for {
			read += int64(len(all(dst)))
			if !dst.EnableInterrupt() {
				break
			}
			dst.DisableInterrupt()
		}
	}
	if n := all(dst); n != nil {
		t.Errorf("%d notifications too many", len(n))
	}
}
