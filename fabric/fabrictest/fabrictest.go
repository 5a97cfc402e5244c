// Package fabrictest makes small fabrics for tests.
//
// # Architecture
//
// New joins NICs by the mem link, NewSHM by shm links; OpenVELO, OpenRMA and
// Register open what a test needs on them. Everything is closed when the test ends,
// and every failure ends the test. Suite tests what every link promises.
//
// # Concurrency
//
// The functions belong to the test's goroutine.
//
// # Limits
//
// The package injects no faults: a test that needs them writes its own
// link.Port.
package fabrictest

import (
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// New returns n NICs with the node IDs 0 to n-1 on one fabric.
func New(tb testing.TB, n int) []*nic.NIC {
	tb.Helper()
	f := mem.NewFabric()
	nics := make([]*nic.NIC, n)
	for i := range nics {
		nics[i] = NewNIC(tb, fabric.NodeID(i))
		if err := f.Attach(nics[i]); err != nil {
			tb.Fatal(err)
		}
	}
	return nics
}

// NewNIC returns a NIC that is on no fabric.
func NewNIC(tb testing.TB, id fabric.NodeID) *nic.NIC {
	tb.Helper()
	n, err := nic.New(nic.Config{Node: id})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = n.Close() }) // a test may have closed it
	return n
}

// OpenVELO opens a mailbox.
func OpenVELO(tb testing.TB, n *nic.NIC, v fabric.VPID, cfg velo.Config) *velo.Endpoint {
	tb.Helper()
	e, err := n.OpenVELO(v, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// OpenRMA opens the RMA unit.
func OpenRMA(tb testing.TB, n *nic.NIC, v fabric.VPID, cfg rma.Config) *rma.Endpoint {
	tb.Helper()
	e, err := n.OpenRMA(v, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// Register registers size bytes of new memory.
func Register(tb testing.TB, n *nic.NIC, v fabric.VPID, size int, a atu.Access) *atu.Region {
	tb.Helper()
	r, err := n.ATU().Register(v, make([]byte, size), a)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}
