package atu

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/fabric"
)

// translate is an access of the whole region by from.
func translate(r *Region, nla NLA, from fabric.NodeID) (Window, error) {
	return r.atu.Translate(nla, r.size, vpid, from, Read)
}

func TestRegionIsClosedUntilLent(t *testing.T) {
	u := New(self)
	r := register(t, u, 100, Read)
	if _, err := translate(r, r.NLA(), peer); !errors.Is(err, ErrNode) {
		t.Errorf("peer, before Lend: %v", err)
	}
	w, err := translate(r, r.NLA(), self)
	if err != nil {
		t.Fatalf("own node: %v", err)
	}
	w.Release()
	nla, err := r.LendAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []fabric.NodeID{self, peer, other} {
		w, err := translate(r, nla, n)
		if err != nil {
			t.Errorf("node %d after LendAll: %v", n, err)
			continue
		}
		w.Release()
	}
}

func TestLendChangesGeneration(t *testing.T) {
	u := New(self)
	r := register(t, u, 100, Read)
	seen := map[NLA]bool{r.NLA(): true}
	for range 100 {
		nla, err := r.Lend(peer)
		if err != nil {
			t.Fatal(err)
		}
		if seen[nla] || nla != r.NLA() {
			t.Fatalf("address %v is not new, or not the current one (%v)", nla, r.NLA())
		}
		seen[nla] = true
		for range 2 { // the second time there is nothing to do
			if !r.Revoke() {
				t.Fatal("Revoke of an idle region")
			}
		}
	}
	if g := nextGeneration(genMask); g != 1 {
		t.Errorf("generation after the last is %d", g)
	}
}

func TestBusyRegionIsNotReused(t *testing.T) {
	u := New(self)
	r := register(t, u, 100, Read)
	nla, _ := r.Lend(peer)
	w1, err := translate(r, nla, peer)
	if err != nil {
		t.Fatal(err)
	}
	w2, err := translate(r, nla, peer)
	if err != nil {
		t.Fatal(err)
	}
	if r.Revoke() {
		t.Fatal("revoked while two transfers run")
	}
	w1.Release()
	if r.Revoke() {
		t.Fatal("revoked while a transfer runs")
	}
	if _, err := r.Lend(other); !errors.Is(err, fabric.ErrAgain) {
		t.Fatalf("Lend while a transfer runs: %v", err)
	}
	w2.Release()
	if !r.Revoke() {
		t.Fatal("not revoked though nothing runs")
	}
	if _, err := translate(r, nla, peer); !errors.Is(err, fabric.ErrProtection) {
		t.Fatalf("late access: %v", err)
	}
}

func TestCloseWaitsForTransfers(t *testing.T) {
	u := New(self)
	r := register(t, u, 100, Read)
	nla, _ := r.Lend(peer)
	w, err := translate(r, nla, peer)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	for u.Stats().Regions != 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := translate(r, nla, peer); !errors.Is(err, fabric.ErrProtection) {
		t.Errorf("access during Close: %v", err)
	}
	select {
	case <-closed:
		t.Fatal("Close did not wait")
	case <-time.After(10 * time.Millisecond):
	}
	w.Release()
	<-closed
	if err := r.Close(); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	if _, err := r.Lend(peer); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Lend after Close: %v", err)
	}
}

// The owner fills a buffer, lends it, takes it back and overwrites it; readers use
// whatever address they saw last. No reader ever sees a buffer change under it.
func TestRandomLendRevoke(t *testing.T) {
	const size = 512
	u := New(self)
	r := register(t, u, size, Read)
	var current atomic.Uint64
	var stop atomic.Bool
	var good, refused atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for !stop.Load() {
				w, err := translate(r, NLA(current.Load()), peer)
				if err != nil {
					refused.Add(1)
					runtime.Gosched()
					continue
				}
				b := w.Bytes()
				for _, x := range b {
					if x != b[0] {
						t.Error("a buffer changed during a transfer")
						stop.Store(true)
						break
					}
				}
				w.Release()
				good.Add(1)
			}
		})
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	// On a busy machine the readers run late: it lasts until they have read.
	begun := time.Now()
	enough := func(rounds int) bool {
		return time.Since(begun) > 300*time.Millisecond && rounds >= 5 && good.Load() > 0
	}
	for i := 0; !enough(i) && !stop.Load(); i++ {
		if time.Since(begun) > 2*time.Minute {
			t.Errorf("%d rounds, %d transfers, %d refused in two minutes", i, good.Load(), refused.Load())
			break
		}
		for j := range r.Bytes() {
			r.Bytes()[j] = byte(i)
		}
		nla, err := r.Lend(peer)
		if err != nil {
			t.Error(err)
			break
		}
		current.Store(uint64(nla))
		for range rnd.IntN(200) {
			if stop.Load() {
				break
			}
		}
		for tries := 0; !r.Revoke() && !stop.Load(); tries++ {
			if tries == 64 { // a reader that is not run holds it: the others let go
				current.Store(0)
			}
			runtime.Gosched()
		}
		if i%8 == 0 {
			runtime.Gosched() // all of them may have one processor
		}
	}
	stop.Store(true)
	wg.Wait()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("%d transfers, %d refused", good.Load(), refused.Load())
}
