package paths

import (
	"strings"
	"testing"
	"time"

	"exnet/internal/dsbench/benchtest"
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
		start := time.Now()
		_, err := p.Measure(t.Context(), aMinute())
		if err == nil || !strings.Contains(err.Error(), "a node process ended: a worker ended without a result (signal: killed)") {
			t.Errorf("error %v", err)
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("it took %v to notice", d)
		}
		for range 2 {
			if err := p.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		benchtest.NoChildren(t)
		if l := left(); len(l) > 0 {
			t.Errorf("left behind: %v", l)
		}
	}
}

func TestExnShmSetupFails(t *testing.T) {
	left := benchtest.Temporary(t)
	netnstest.CheckFDs(t)
	p := newExnShm(NodeConfig{MTU: 1}) // what the options do not let through
	err := p.Setup(t.Context())
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	benchtest.NoChildren(t)
	if l := left(); len(l) > 0 {
		t.Errorf("left behind: %v", l)
	}
}
