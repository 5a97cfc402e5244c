package rma_test

import (
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/rma"
)

// Owners fill buffers, lend them to one node, and take them back at a random
// time; the nodes GET whatever address they have, often too late. A GET either
// delivers exactly what was lent or is refused.
func TestRandomLendGetRevoke(t *testing.T) {
	const buffers, size = 4, 3000
	nics := fabrictest.New(t, 3)
	fabrictest.OpenRMA(t, nics[0], there, rma.Config{})
	// An offer is the address of a buffer and the checksum of what is in it.
	type offer struct {
		nla atu.NLA
		sum uint32
	}
	var offers [2]atomic.Pointer[offer] // to nodes 1 and 2
	var stop atomic.Bool
	var good, late atomic.Int64
	var wg sync.WaitGroup
	for i := range offers {
		e := fabrictest.OpenRMA(t, nics[i+1], here, rma.Config{})
		local := fabrictest.Register(t, nics[i+1], here, size, atu.Write)
		wg.Go(func() {
			for !stop.Load() {
				o := offers[i].Load()
				if o == nil {
					runtime.Gosched()
					continue
				}
				if err := e.Get(rma.GetReq{
					Local: local.NLA(), Remote: o.nla, Len: size, Node: 0, VPID: there, Notify: rma.NotifyCompleter,
				}); err != nil {
					t.Error(err)
					return
				}
				n, ok := e.Next()
				switch {
				case !ok || n.Local != rma.LastFragment(local.NLA(), size):
					t.Errorf("notification %+v, %v", n, ok)
					return
				case n.Status == fabric.StatusProtection:
					late.Add(1)
				case n.Status != fabric.StatusOK:
					t.Errorf("status %v", n.Status)
					return
				case crc32.ChecksumIEEE(local.Bytes()) != o.sum:
					t.Error("a GET delivered something that was not lent")
					return
				default:
					good.Add(1)
				}
			}
		})
	}
	for i := range buffers {
		r := fabrictest.Register(t, nics[0], there, size, atu.Read)
		rnd := rand.New(rand.NewPCG(uint64(i), 1))
		wg.Go(func() {
			for !stop.Load() {
				for j := 0; j < size; j += 8 {
					r.Bytes()[j] = byte(rnd.Uint32())
				}
				to := rnd.IntN(len(offers))
				nla, err := r.Lend(fabric.NodeID(to + 1))
				if err != nil {
					t.Error(err)
					return
				}
				offers[to].Store(&offer{nla, crc32.ChecksumIEEE(r.Bytes())})
				for range rnd.IntN(20) {
					runtime.Gosched()
				}
				for !r.Revoke() {
					runtime.Gosched()
				}
			}
		})
	}
	// On one CPU, or a busy one, it can take a while until both have happened.
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); {
		if time.Sleep(300 * time.Millisecond); t.Failed() || good.Load() > 0 && late.Load() > 0 {
			break
		}
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d GETs delivered, %d too late", good.Load(), late.Load())
	if good.Load() == 0 || late.Load() == 0 {
		t.Error("the test did not try both")
	}
	s := nics[0].Stats()
	if s.RMA.Served != uint64(good.Load()) || s.ATU.Generation+s.ATU.Node != uint64(late.Load()) {
		t.Errorf("counters %+v", s)
	}
}
