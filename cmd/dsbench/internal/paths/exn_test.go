package paths

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/benchtest"
	"exnet/internal/netns/netnstest"
	"exnet/internal/tcpbench"
	"exnet/node"
)

// TestRootExnCountsTheNode: the process that carries the packets is counted.
func TestRootExnCountsTheNode(t *testing.T) {
	benchtest.RequireExn(t)
	p := newExn(NodeConfig{}).(*exnPath)
	if err := p.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	spec := tcpbench.Spec{
		Kind: tcpbench.Stream, Size: 65536, Streams: 1,
		Duration: 100 * time.Millisecond, Congestion: "cubic", CPUs: tcpbench.Anywhere(),
	}
	var ends [2]tcpbench.End
	for i := range ends {
		ends[i] = tcpbench.End{NS: p.namespaces[i], Addr: node.Addr4(i).Addr()}
	}
	uncounted := tcpbench.Between(ends[0], ends[1])
	// What else the machine does may be more than the difference.
	benchtest.Eventually(t, "a run that takes more CPU time with the node than another without", func() bool {
		with, err := p.Measure(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		without, err := uncounted.Measure(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return with.CPU > without.CPU
	})
}

// TestRootExnNodeDies: a measurement under way ends at once and says why.
func TestRootExnNodeDies(t *testing.T) {
	benchtest.RequireExn(t)
	netnstest.CheckFDs(t)
	p := newExn(NodeConfig{}).(*exnPath)
	if err := p.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(300*time.Millisecond, p.nodes[0].Kill)
	defer timer.Stop()
	noticesDeath(t, p)
}

// noticesDeath measures over a path of which a node is about to be killed: the measurement
// ends before its time and says why, and the path leaves no process.
func noticesDeath(t *testing.T, p Path) {
	t.Helper()
	defer func(d time.Duration) { nodeGoneTime = d }(nodeGoneTime)
	nodeGoneTime = time.Minute
	spec := aMinute()
	spec.Duration = 5 * time.Minute // after which there is no error
	_, err := p.Measure(t.Context(), spec)
	if err == nil || !strings.Contains(err.Error(), "a node process ended: a worker ended without a result (signal: killed)") {
		t.Errorf("error %v", err)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	benchtest.NoChildren(t)
}

// failsInOrder sets up a path that cannot be: one line says why, and no process is left.
func failsInOrder(t *testing.T, p Path) {
	t.Helper()
	err := p.Setup(t.Context())
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	benchtest.NoChildren(t)
}

// aMinute is a measurement that has to be ended.
func aMinute() tcpbench.Spec {
	return tcpbench.Spec{
		Kind: tcpbench.PingPong, Size: 64, Streams: 1,
		Duration: time.Minute, Congestion: "cubic", CPUs: tcpbench.Anywhere(),
	}
}

func TestExnSetupFails(t *testing.T) {
	netnstest.CheckFDs(t)
	p := newExn(NodeConfig{MTU: 1}) // what the options do not let through
	failsInOrder(t, p)
}

// TestRootNodesInProcess does the same for the nodes.
func TestRootNodesInProcess(t *testing.T) {
	benchtest.RequireExn(t)
	ctx, end := context.WithCancel(t.Context())
	var got [2]nodeUp
	_, err := runNodes(ctx, NodeConfig{MTU: 9000}, func(v any) error {
		got = v.([2]nodeUp)
		end()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got[0].MTU != 9000 || !got[0].Addr.IsValid() || got[0].Addr == got[1].Addr || got[0].Namespace == got[1].Namespace {
		t.Errorf("nodes %+v", got)
	}
	refused := errors.New("nobody listens")
	if _, err := runNodes(t.Context(), NodeConfig{}, func(any) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("error %v, want %v", err, refused)
	}
}
