package paths

import (
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/benchtest"
	"exnet/internal/netns/netnstest"
)

// TestRootExnShmNodeDies: a measurement under way ends at once, says why, and
// leaves nothing, whichever node it is.
func TestRootExnShmNodeDies(t *testing.T) {
	benchtest.RequireExn(t)
	for victim := range 2 {
		left := benchtest.Temporary(t)
		netnstest.CheckFDs(t)
		p := newExnShm(NodeConfig{}).(*exnShmPath)
		if err := p.Setup(t.Context()); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(100*time.Millisecond, p.nodes[victim].Kill)
		defer timer.Stop()
		noticesDeath(t, p)
		if l := left(); len(l) > 0 {
			t.Errorf("left behind: %v", l)
		}
	}
}

func TestExnShmSetupFails(t *testing.T) {
	left := benchtest.Temporary(t)
	netnstest.CheckFDs(t)
	p := newExnShm(NodeConfig{MTU: 1}) // what the options do not let through
	failsInOrder(t, p)
	if l := left(); len(l) > 0 {
		t.Errorf("left behind: %v", l)
	}
}
