package nic_test

import (
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// newFabric returns n NICs on one fabric, node IDs 0 to n-1.
func newFabric(t testing.TB, n int) []*nic.NIC {
	t.Helper()
	f := mem.NewFabric()
	nics := make([]*nic.NIC, n)
	for i := range nics {
		c, err := nic.New(nic.Config{Node: fabric.NodeID(i)})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Attach(c); err != nil {
			t.Fatal(err)
		}
		nics[i] = c
	}
	return nics
}

func openVELO(t testing.TB, n *nic.NIC, v fabric.VPID, cfg velo.Config) *velo.Endpoint {
	t.Helper()
	e, err := n.OpenVELO(v, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func openRMA(t testing.TB, n *nic.NIC, v fabric.VPID, cfg rma.Config) *rma.Endpoint {
	t.Helper()
	e, err := n.OpenRMA(v, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func BenchmarkVELOSendReceive(b *testing.B) {
	nics := newFabric(b, 2)
	x, y := openVELO(b, nics[0], 1, velo.Config{}), openVELO(b, nics[1], 1, velo.Config{})
	payload := make([]byte, 120)
	d := velo.Descriptor{Dst: 1, VPID: 1, Tag: 3}
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Send(d, payload); err != nil {
			b.Fatal(err)
		}
		if _, _, ok := y.Peek(); !ok {
			b.Fatal("no message")
		}
		y.Advance()
	}
}

func BenchmarkVELOPingPong(b *testing.B) {
	nics := newFabric(b, 2)
	x, y := openVELO(b, nics[0], 1, velo.Config{}), openVELO(b, nics[1], 1, velo.Config{})
	go func() {
		pong := make([]byte, 8)
		for {
			st, p, ok := y.Peek()
			if !ok {
				continue
			}
			copy(pong, p)
			y.Advance()
			if err := y.Send(velo.Descriptor{Dst: 0, VPID: 1}, pong); err != nil {
				panic(err)
			}
			if st.Tag == 1 {
				return
			}
		}
	}()
	payload := make([]byte, 8)
	tag := uint8(0)
	round := func() {
		if err := x.Send(velo.Descriptor{Dst: 1, VPID: 1, Tag: tag}, payload); err != nil {
			b.Fatal(err)
		}
		for {
			if _, _, ok := x.Peek(); ok {
				x.Advance()
				return
			}
		}
	}
	for b.Loop() {
		round()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/half-rtt")
	tag = 1
	round()
}

func BenchmarkRMAGet64K(b *testing.B) {
	const n = 64 << 10
	nics := newFabric(b, 2)
	x := openRMA(b, nics[0], 1, rma.Config{})
	openRMA(b, nics[1], 1, rma.Config{})
	sink, err := nics[0].ATU().Register(1, make([]byte, n), atu.Write)
	if err != nil {
		b.Fatal(err)
	}
	src, err := nics[1].ATU().Register(1, make([]byte, n), atu.Read)
	if err != nil {
		b.Fatal(err)
	}
	nla, err := src.Lend(0)
	if err != nil {
		b.Fatal(err)
	}
	r := rma.GetReq{Local: sink.NLA(), Remote: nla, Len: n, Node: 1, VPID: 1, Notify: rma.NotifyCompleter}
	b.Run("get", func(b *testing.B) {
		b.SetBytes(n)
		b.ReportAllocs()
		for b.Loop() {
			if err := x.Get(r); err != nil {
				b.Fatal(err)
			}
			if c, ok := x.Next(); !ok || c.Status != fabric.StatusOK {
				b.Fatal(c, ok)
			}
		}
	})
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(n)
		for b.Loop() {
			copy(sink.Bytes(), src.Bytes())
		}
	})
}
