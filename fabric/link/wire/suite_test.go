package wire_test

import (
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/wire"
	"exnet/fabric/nic"
	"exnet/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// bad is a medium on which every fiftieth packet has something happen to it.
var bad = wire.Faults{
	Seed: 1, Drop: 0.005, Corrupt: 0.005, Duplicate: 0.005, Reorder: 0.005, Delay: 5 * time.Microsecond, Jitter: 10 * time.Microsecond,
}

func newFabric(tb testing.TB, f wire.Faults, link wire.Config, n int) (*wire.Fabric, []*nic.NIC) {
	tb.Helper()
	fab, err := wire.NewFabric(wire.FabricConfig{Link: link, Faults: f})
	if err != nil {
		tb.Fatal(err)
	}
	nics := make([]*nic.NIC, n)
	for i := range nics {
		nics[i] = fabrictest.NewNIC(tb, fabric.NodeID(i))
		if err := fab.Attach(nics[i]); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = fab.Detach(nics[i]) }) // a test may have done it
	}
	return fab, nics
}

func kind(name string, f wire.Faults, link wire.Config) fabrictest.Link {
	return fabrictest.Link{Name: name, New: func(tb testing.TB, n int) []*nic.NIC {
		_, nics := newFabric(tb, f, link, n)
		return nics
	}}
}

// What every link promises holds over a good medium, over one that loses much, and
// over one whose receiver has room for two packets. No link is given up because the machine is
// busy: one that is, is gone for good.
func TestSuite(t *testing.T) {
	const never = 2 * time.Minute
	for _, l := range []fabrictest.Link{
		kind("good", wire.Faults{}, wire.Config{DownAfter: never}),
		kind("bad", bad, wire.Config{DownAfter: never}),
		kind("narrow", wire.Faults{}, wire.Config{DownAfter: never, Room: 2}),
	} {
		t.Run(l.Name, func(t *testing.T) { fabrictest.Suite(t, l) })
	}
}
