package shm_test

import (
	"testing"
	"time"

	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// A target that sleeps hears of each GET of its memory, also when it is the last for
// a long time and its responder's notification alone does not wake it at once. The
// GETs are made by the handler of a message, in the driver's goroutine: there it is
// awake.
func TestQuiet(t *testing.T) {
	nics := fabrictest.NewDriven(t, 2)
	rx := fabrictest.OpenRMA(t, nics[0], vpid, rma.Config{})
	ry := fabrictest.OpenRMA(t, nics[1], vpid, rma.Config{})
	irq := make(chan struct{}, 1)
	ry.OnInterrupt(func() {
		select {
		case irq <- struct{}{}:
		default:
		}
	})
	const size = 4096
	dst := fabrictest.Register(t, nics[0], vpid, size, atu.Write)
	mem, err := nics[1].ATU().Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	src, err := nics[1].ATU().Register(vpid, mem, atu.Read)
	if err != nil {
		t.Fatal(err)
	}
	nla, err := src.Lend(0)
	if err != nil {
		t.Fatal(err)
	}
	ex := fabrictest.OpenVELO(t, nics[0], vpid, velo.Config{})
	ey := fabrictest.OpenVELO(t, nics[1], vpid, velo.Config{})
	ex.OnInterrupt(func() {
		for {
			for {
				_, p, ok := ex.Peek()
				if !ok {
					break
				}
				for range p[0] {
					if err := rx.Get(rma.GetReq{Local: dst.NLA(), Remote: nla, Len: size, Node: 1, VPID: vpid,
						Notify: rma.NotifyCompleter | rma.NotifyResponder}); err != nil {
						t.Error(err)
					}
				}
				ex.Advance()
			}
			if !ex.EnableInterrupt() {
				return
			}
		}
	})
	ex.EnableInterrupt()
	heard := func() (n int) {
		for {
			for {
				if _, ok := ry.Next(); !ok {
					break
				}
				n++
			}
			if !ry.EnableInterrupt() {
				return n
			}
		}
	}
	heard()
	fabrictest.Eventually(t, "mailbox", func() bool { return ey.Credits(0, vpid) > 0 })
	for _, gets := range []byte{1, 3, 7, 8, 9, 30} {
		time.Sleep(3 * time.Millisecond) // all drivers wait
		if err := ey.Send(velo.Descriptor{Dst: 0, VPID: vpid}, []byte{gets}); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < int(gets); n += heard() {
			select {
			case <-irq:
			case <-time.After(3 * time.Minute):
				t.Fatalf("%d of %d notifications", n, gets)
			}
		}
	}
}
