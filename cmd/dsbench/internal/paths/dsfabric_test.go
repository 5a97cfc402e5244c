package paths

import (
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/benchtest"
	"exnet/internal/netns/netnstest"
	"exnet/internal/tcpbench"
)

// TestRootDSFabric: bytes pass the direct way, which the measurement itself checks, and both
// nodes' CPU time counts.
func TestRootDSFabric(t *testing.T) {
	benchtest.RequireExn(t)
	netnstest.CheckFDs(t)
	p := newDSFabric(NodeConfig{}).(*dsFabricPath)
	if err := p.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	spec := aMinute()
	spec.Kind, spec.Size, spec.Duration = tcpbench.PingPong, 64, 50*time.Millisecond
	r, err := p.Measure(t.Context(), spec)
	if err != nil || r.Bytes == 0 || len(p.nodes) != 2 {
		t.Errorf("%+v of %d nodes: %v", r, len(p.nodes), err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
