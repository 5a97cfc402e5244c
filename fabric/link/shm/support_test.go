package shm_test

import (
	"testing"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/shm"
	"exnet/fabric/nic"
)

const vpid = fabric.VPID(1)

// pair returns two NICs that are joined.
func pair(tb testing.TB) (x, y *nic.NIC, lx, ly *shm.Link) {
	tb.Helper()
	x, y = fabrictest.NewNIC(tb, 0), fabrictest.NewNIC(tb, 1)
	lx, ly = fabrictest.JoinSHM(tb, x, y)
	return x, y, lx, ly
}
