package shm_test

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/shm"
	"exnet/fabric/rma"
)

// Regions are lent, read and taken back by several goroutines: what is read is
// what was in the region while it was lent, and everything ends.
func TestLoans(t *testing.T) {
	const regions, size, rounds = 8, 16 << 10, 400
	x, y, lx, _ := pair(t)
	origin := fabrictest.OpenRMA(t, x, vpid, rma.Config{})
	fabrictest.OpenRMA(t, y, vpid, rma.Config{})
	var wg sync.WaitGroup
	var ok, refused, busy atomic.Int64
	type offer struct {
		nla  atu.NLA
		seed byte
	}
	for i := range regions {
		mem, err := y.ATU().Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		src, err := y.ATU().Register(vpid, mem, atu.Read)
		if err != nil {
			t.Fatal(err)
		}
		own, err := x.ATU().Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		dst, err := x.ATU().Register(vpid, own, atu.Write)
		if err != nil {
			t.Fatal(err)
		}
		offers := make(chan offer, 1)
		done := make(chan struct{}, 1)
		wg.Go(func() { // owner: takes back at any moment
			defer close(offers)
			for r := range rounds {
				for j := range mem {
					mem[j] = byte(r + i)
				}
				nla, err := src.Lend(0)
				if err != nil {
					t.Error(err)
					return
				}
				offers <- offer{nla, byte(r + i)}
				if r%2 == 0 {
					<-done
				}
				for !src.Revoke() {
					busy.Add(1)
				}
				if r%2 == 1 {
					for j := range mem { // nobody may see this as data
						mem[j] = 0xee
					}
					<-done
				}
			}
		})
		wg.Go(func() {
			for o := range offers {
				if err := origin.Get(rma.GetReq{Local: dst.NLA(), Remote: o.nla + 5, Len: size - 5, Node: 1, VPID: vpid}); err != nil {
					t.Error(err)
					return
				}
				fabrictest.Eventually(t, "the end of the GET", dst.Revoke)
				switch got := own[0]; {
				case got == o.seed:
					for j, b := range own[:size-5] {
						if b != o.seed {
							t.Errorf("byte %d is %d, not %d", j, b, o.seed)
							break
						}
					}
					ok.Add(1)
				default:
					refused.Add(1)
				}
				done <- struct{}{}
			}
		})
	}
	wg.Wait()
	t.Logf("%d read, %d refused, %d times busy, %d without a request", ok.Load(), refused.Load(), busy.Load(), lx.Stats().Direct)
	if ok.Load() < regions*rounds/2 || lx.Stats().Direct == 0 {
		t.Error("too few")
	}
}

// A peer that says for ever that it reads costs its link, when the region is
// closed.
func TestLoanNotGivenBack(t *testing.T) {
	v := newVictim(t)
	mem, err := v.nic.ATU().Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	r, err := v.nic.ATU().Register(vpid, mem, atu.Read)
	if err != nil {
		t.Fatal(err)
	}
	nla, err := r.Lend(2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range shm.Loans {
		binary.LittleEndian.PutUint64(v.foe.Segment()[shm.ReadOff+8*i:], uint64(nla))
	}
	if r.Revoke() {
		t.Error("taken back under a reader")
	}
	if _, err := r.Lend(1); !errors.Is(err, fabric.ErrAgain) {
		t.Errorf("lent again under a reader: %v", err)
	}
	begun := time.Now()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begun); d > time.Minute {
		t.Errorf("Close took %v", d)
	}
	if !errors.Is(v.link.Err(), shm.ErrBreach) {
		t.Errorf("link: %v", v.link.Err())
	}
	v.alive(t)
}
