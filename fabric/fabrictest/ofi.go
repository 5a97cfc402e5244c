package fabrictest

import (
	"sync"
	"testing"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/link/mem"
	"exnet/fabric/link/ofi"
	"exnet/fabric/link/stream"
	"exnet/fabric/nic"
)

// OFILinks returns the kinds of links by libfabric; helper is the path of exn-ofi.
func OFILinks(helper string) []Link {
	kind := func(name string, driven bool) Link {
		return Link{Name: name, Lazy: true, New: func(tb testing.TB, n int) []*nic.NIC { return newOFI(tb, n, helper, driven) }}
	}
	return []Link{kind("ofi", false), kind("ofi-driven", true)}
}

func newOFI(tb testing.TB, n int, helper string, driven bool) []*nic.NIC {
	tb.Helper()
	type pair struct{ a, b *ofi.Engine }
	pairs := make([]pair, n*n)
	var starting sync.WaitGroup // a helper takes 0.3 s to load libfabric
	for i := range n {
		for j := range i {
			starting.Go(func() {
				p := &pairs[i*n+j]
				p.a, p.b = JoinOFI(tb, fabric.NodeID(i), fabric.NodeID(j), helper)
			})
		}
	}
	starting.Wait()
	drivers := make([]link.Driver, n)
	nics := make([]*nic.NIC, n)
	for i := range nics {
		nics[i] = NewNIC(tb, fabric.NodeID(i))
		if err := mem.NewFabric().Attach(nics[i]); err != nil { // the way to itself
			tb.Fatal(err)
		}
		if driven {
			drivers[i] = NewDriver(tb)
		}
		for j := range i {
			p := pairs[i*n+j]
			if p.a == nil || p.b == nil {
				tb.FailNow() // JoinOFI has said why
			}
			cfg := StreamConfig{Conns: 1, Link: stream.Config{Driver: drivers[i], Engine: p.a}, PeerEngine: p.b}
			JoinStream(tb, nics[i], nics[j], cfg, drivers[j])
		}
	}
	return nics
}

// JoinOFI returns the ends of a connection by libfabric's tcp, over the loopback interface.
// Who takes them closes them. It may be called in any goroutine; an engine is nil if the test
// has failed.
func JoinOFI(tb testing.TB, x, y fabric.NodeID, helper string) (a, b *ofi.Engine) {
	tb.Helper()
	c, d := TCP(tb)
	defer c.Close()
	defer d.Close()
	var both sync.WaitGroup
	var errs [2]error
	cfg := ofi.Config{Self: x, Peer: y, Provider: "tcp", Helper: helper, Timeout: longWait}
	both.Go(func() { a, errs[0] = ofi.Join(tb.Context(), c, cfg) })
	far := cfg
	far.Self, far.Peer = y, x
	both.Go(func() { b, errs[1] = ofi.Join(tb.Context(), d, far) })
	both.Wait()
	for _, err := range errs {
		if err != nil {
			tb.Error(err)
		}
	}
	return a, b
}
