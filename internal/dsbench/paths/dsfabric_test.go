package paths

import (
	"strings"
	"testing"
	"time"

	"exnet/internal/dsbench/benchtest"
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
	for end := time.Now().Add(3 * time.Minute); err != nil && strings.Contains(err.Error(), "the direct path was not used") && time.Now().Before(end); {
		r, err = p.Measure(t.Context(), spec) // on a busy machine it becomes direct when the measurement is over
	}
	if err != nil || r.Bytes == 0 || len(p.nodes) != 2 {
		t.Errorf("%+v of %d nodes: %v", r, len(p.nodes), err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
