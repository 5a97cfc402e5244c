package paths

import (
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/benchtest"
	"exnet/internal/netns/netnstest"
	"exnet/internal/tcpbench"
)

// The relay carries all kinds of measurement, its process is among those whose CPU time
// is counted, and it leaves nothing behind.
func TestRootRelay(t *testing.T) {
	benchtest.RequireExn(t)
	netnstest.CheckFDs(t)
	p := newRelay(NodeConfig{MTU: 9000})
	if err := p.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []tcpbench.Kind{tcpbench.Stream, tcpbench.PingPong, tcpbench.CRR} {
		r, err := p.Measure(t.Context(), tcpbench.Spec{
			Kind: kind, Size: 1000, Streams: 1, Duration: 50 * time.Millisecond, Congestion: "cubic", CPUs: tcpbench.Anywhere(),
		})
		if err != nil {
			t.Fatal(kind, err)
		}
		if r.CPU <= 0 {
			t.Errorf("%v: %+v", kind, r)
		}
	}
	if i := p.Info(); i.MTU != 9000 || i.RxMode != "" {
		t.Errorf("%+v", i)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestRootRelayDies(t *testing.T) {
	benchtest.RequireExn(t)
	netnstest.CheckFDs(t)
	p := newRelay(NodeConfig{}).(*relayPath)
	if err := p.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(300*time.Millisecond, p.nodes[0].Kill)
	defer timer.Stop()
	noticesDeath(t, p)
}
