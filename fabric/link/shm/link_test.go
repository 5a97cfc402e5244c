package shm_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/shm"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/internal/leaktest"
)

func TestGet(t *testing.T) {
	x, y, lx, ly := pair(t)
	rx := fabrictest.OpenRMA(t, x, vpid, rma.Config{})
	ry := fabrictest.OpenRMA(t, y, vpid, rma.Config{})
	const size = 64 << 10
	for _, shared := range []bool{true, false} {
		mem := make([]byte, size)
		if shared {
			var err error
			if mem, err = y.ATU().Alloc(size); err != nil {
				t.Fatal(err)
			}
		}
		for i := range mem {
			mem[i] = byte(i * 7)
		}
		src, err := y.ATU().Register(vpid, mem, atu.Read)
		if err != nil {
			t.Fatal(err)
		}
		dst := fabrictest.Register(t, x, vpid, size, atu.Write)
		nla, err := src.Lend(0)
		if err != nil {
			t.Fatal(err)
		}
		if err := rx.Get(rma.GetReq{Local: dst.NLA(), Remote: nla, Len: size, Node: 1, VPID: vpid,
			Notify: rma.NotifyCompleter | rma.NotifyResponder}); err != nil {
			t.Fatal(err)
		}
		var n rma.Notification
		fabrictest.Eventually(t, "completer", func() (ok bool) { n, ok = rx.Next(); return ok })
		if n.Status != fabric.StatusOK || n.Len != size {
			t.Errorf("%+v", n)
		}
		if !bytes.Equal(dst.Bytes(), mem) {
			t.Error("wrong data")
		}
		fabrictest.Eventually(t, "responder", func() (ok bool) { n, ok = ry.Next(); return ok })
		if n.Writer != rma.Responder || n.Local != rma.LastFragment(nla, size) {
			t.Errorf("%+v", n)
		}
		if !src.Revoke() {
			t.Error("the region stays busy")
		}
	}
	if n := ly.Stats().Bounced; n != 1 {
		t.Errorf("%d transfers were copied, want 1", n)
	}
	if n := lx.Stats().Direct; n != 1 {
		t.Errorf("%d transfers did without a request, want 1", n)
	}
	if got, sent := lx.Stats().RxBytes, ly.Stats().TxBytes; got < 2*size || got > 3*size || sent < 2*size || sent > 3*size {
		t.Errorf("%d bytes came, %d were sent, of two transfers of %d", got, sent, size)
	}
}

func TestClose(t *testing.T) {
	x, y, lx, ly := pair(t)
	ex := fabrictest.OpenVELO(t, x, vpid, velo.Config{})
	fabrictest.OpenVELO(t, y, vpid, velo.Config{Slots: 4})
	d := velo.Descriptor{Dst: 1, VPID: vpid}
	credited := make(chan struct{}, 10)
	ex.OnCredit(func(fabric.NodeID) { credited <- struct{}{} })
	for ex.Send(d, []byte{1}) == nil {
	}
	if err := ly.Close(); err != nil {
		t.Fatal(err)
	}
	<-lx.Done()
	<-ly.Done()
	<-credited
	if !errors.Is(lx.Err(), shm.ErrGone) || !errors.Is(ly.Err(), fabric.ErrClosed) {
		t.Errorf("%v, %v", lx.Err(), ly.Err())
	}
	if err := ex.Send(d, []byte{1}); !errors.Is(err, fabric.ErrNoRoute) {
		t.Errorf("send: %v", err)
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err != nil || strings.Contains(string(maps), "memfd:exnet-link") {
		t.Errorf("segments are still mapped (%v)", err)
	}
}

func TestMain(m *testing.M) {
	if role := os.Getenv(peerEnv); role != "" {
		os.Exit(peerMain(role))
	}
	leaktest.Main(m)
}
