package paths

import (
	"errors"
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/benchtest"
	"exnet/fabric/link/ofi"
	"exnet/internal/netns/netnstest"
	"exnet/internal/tcpbench"
)

// TestRootExnStream: bytes pass, and both nodes' CPU time counts.
func TestRootExnStream(t *testing.T) {
	benchtest.RequireExn(t)
	passes(t, newExnStream)
}

// TestRootExnOFI is the same over libfabric.
func TestRootExnOFI(t *testing.T) {
	benchtest.RequireExn(t)
	if err := ofi.Check(t.Context(), "tcp"); errors.Is(err, ofi.ErrMissing) {
		t.Skip(err)
	}
	passes(t, newExnOFI)
}

func passes(t *testing.T, open func(NodeConfig) Path) {
	t.Helper()
	netnstest.CheckFDs(t)
	p := open(NodeConfig{}).(*exnStreamPath)
	if err := p.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	spec := aMinute()
	spec.Kind, spec.Size, spec.Duration = tcpbench.Stream, 65536, 50*time.Millisecond
	r, err := p.Measure(t.Context(), spec)
	if err != nil || r.Bytes == 0 || len(p.nodes) != 2 {
		t.Errorf("%+v of %d nodes: %v", r, len(p.nodes), err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestRootExnStreamNodeDies: a measurement under way ends at once, and says why.
func TestRootExnStreamNodeDies(t *testing.T) {
	benchtest.RequireExn(t)
	for victim := range 2 {
		netnstest.CheckFDs(t)
		p := newExnStream(NodeConfig{}).(*exnStreamPath)
		if err := p.Setup(t.Context()); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(100*time.Millisecond, p.nodes[victim].Kill)
		defer timer.Stop()
		noticesDeath(t, p)
	}
}

func TestExnStreamSetupFails(t *testing.T) {
	netnstest.CheckFDs(t)
	failsInOrder(t, newExnStream(NodeConfig{MTU: 1})) // what the options do not let through
}
