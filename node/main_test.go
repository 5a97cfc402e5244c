package node

import (
	"os"
	"testing"

	"exnet/internal/leaktest"

	"go.uber.org/goleak"
	"gvisor.dev/gvisor/pkg/refs"
)

// TestMain fails the run if a goroutine or a packet buffer of netstack is left.
func TestMain(m *testing.M) {
	refs.SetLeakMode(refs.LeaksPanic)
	leaktest.Main(m, goleak.Cleanup(func(code int) {
		leaktest.Packets()
		os.Exit(code)
	}))
}
