package shm_test

import (
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/internal/racetest"
)

func TestDataPathDoesNotAllocate(t *testing.T) {
	if racetest.Enabled {
		t.Skip("sync.Pool forgets under the race detector")
	}
	x, y, _, _ := pair(t)
	ex, ey := fabrictest.OpenVELO(t, x, vpid, velo.Config{}), fabrictest.OpenVELO(t, y, vpid, velo.Config{})
	rx, ry := fabrictest.OpenRMA(t, x, vpid, rma.Config{}), fabrictest.OpenRMA(t, y, vpid, rma.Config{})
	region := func(a *atu.ATU, shared bool) *atu.Region {
		mem := make([]byte, 4096)
		if shared {
			var err error
			if mem, err = a.Alloc(4096); err != nil {
				t.Fatal(err)
			}
		}
		r, err := a.Register(vpid, mem, atu.Read|atu.Write)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	local, loan, asked, plain := region(x.ATU(), true), region(y.ATU(), true), region(y.ATU(), true), region(y.ATU(), false)
	lend := func(r *atu.Region, all bool) atu.NLA {
		nla, err := r.Lend(0)
		if all {
			nla, err = r.LendAll()
		}
		if err != nil {
			t.Fatal(err)
		}
		return nla
	}
	// next polls both sides until the origin's notification is there.
	next := func() {
		for {
			if n, ok := rx.Next(); ok {
				if n.Status != fabric.StatusOK {
					t.Fatal(n)
				}
				break
			}
			ry.Next()
		}
		for {
			if _, ok := ry.Next(); !ok {
				break
			}
		}
	}
	get := func(nla atu.NLA) {
		if err := rx.Get(rma.GetReq{Local: local.NLA(), Remote: nla, Len: 4096, Node: 1, VPID: vpid,
			Notify: rma.NotifyCompleter | rma.NotifyResponder}); err != nil {
			t.Fatal(err)
		}
		next()
	}
	msg := make([]byte, 100)
	askedNLA, plainNLA := lend(asked, true), lend(plain, false)
	for name, f := range map[string]func(){
		"message": func() {
			if err := ex.Send(toPeer(1), msg); err != nil {
				t.Fatal(err)
			}
			for {
				if _, _, ok := ey.Peek(); ok {
					break
				}
			}
			ey.Advance()
			ey.Peek()
		},
		"GET of a loan": func() {
			get(lend(loan, false))
			for !loan.Revoke() {
			}
		},
		"GET by request":      func() { get(askedNLA) },
		"GET of plain memory": func() { get(plainNLA) },
		"PUT": func() {
			if err := rx.Put(rma.PutReq{Local: local.NLA(), Remote: askedNLA, Len: 4096, Node: 1, VPID: vpid,
				Notify: rma.NotifyRequester}); err != nil {
				t.Fatal(err)
			}
			next()
		},
	} {
		f()
		best := testing.AllocsPerRun(200, f)
		for range 4 { // the links' goroutines run, too
			best = min(best, testing.AllocsPerRun(200, f))
		}
		if best != 0 {
			t.Errorf("%s: %v allocations", name, best)
		}
	}
}
