package lab

import (
	"testing"

	"go.uber.org/goleak"

	"exnet/internal/netns/netnstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leavesNothing fails the test if it leaves descriptors or goroutines behind. Call it first.
func leavesNothing(t *testing.T) {
	t.Helper()
	netnstest.CheckFDs(t)
	t.Cleanup(func() { goleak.VerifyNone(t) })
}
