package lab

import (
	"testing"

	"exnet/internal/leaktest"
	"exnet/internal/netns/netnstest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// leavesNothing fails the test if it leaves descriptors or goroutines behind. Call it first.
func leavesNothing(t *testing.T) {
	t.Helper()
	netnstest.CheckFDs(t)
	t.Cleanup(func() { leaktest.None(t) })
}
