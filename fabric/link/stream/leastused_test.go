package stream_test

import (
	"slices"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/rma"
)

// TestLeastUsed fetches one piece of data after the other over a link of four connections: those
// for data carry the same, but for one piece at most.
func TestLeastUsed(t *testing.T) {
	const size, count = 32 << 10, 31
	x, y := fabrictest.NewNIC(t, 0), fabrictest.NewNIC(t, 1)
	cfg := fabrictest.StreamConfig{Conns: 4}
	cfg.Link.Driver = loop(t)
	_, ly := fabrictest.JoinStream(t, x, y, cfg, loop(t))
	ex, _ := fabrictest.OpenRMA(t, x, vpid, rma.Config{}), fabrictest.OpenRMA(t, y, vpid, rma.Config{})
	dst := fabrictest.Register(t, x, vpid, size, atu.Write)
	src := fabrictest.Register(t, y, vpid, size, atu.Read)
	nla, err := src.Lend(0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan fabric.Status, 1)
	ex.OnInterrupt(func() {
		for {
			if n, ok := ex.Next(); ok {
				done <- n.Status
			} else if !ex.EnableInterrupt() {
				return
			}
		}
	})
	ex.EnableInterrupt()
	for range count {
		if err := ex.Get(rma.GetReq{Local: dst.NLA(), Remote: nla, Len: size, Node: 1, VPID: vpid, Notify: rma.NotifyCompleter}); err != nil {
			t.Fatal(err)
		}
		if s := <-done; s != fabric.StatusOK {
			t.Fatal(s)
		}
	}
	carried := ly.Carried()
	data := carried[1:]
	if least, most := slices.Min(data), slices.Max(data); least == 0 || most-least > size+1024 {
		t.Errorf("the connections have carried %d bytes", carried)
	}
}
