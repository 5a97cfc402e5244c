package lab

import (
	"testing"

	"go.uber.org/goleak"

	"exnet/internal/netns/netnstest"
	"exnet/internal/tun"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// requireLab skips the test unless exn0 can be had here.
func requireLab(t *testing.T) {
	t.Helper()
	netnstest.Require(t)
	if err := tun.Supported(); err != nil {
		t.Skip(err)
	}
}

// leavesNothing fails the test if it leaves descriptors or goroutines behind. Call it first.
func leavesNothing(t *testing.T) {
	t.Helper()
	netnstest.CheckFDs(t)
	t.Cleanup(func() { goleak.VerifyNone(t) })
}
