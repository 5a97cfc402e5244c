package rawbench

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"exnet/internal/leaktest"
	"exnet/internal/netns/netnstest"
	"exnet/internal/tcpbench"
)

func TestMain(m *testing.M) {
	// A Pair starts /proc/self/exe as its workers, and that is this binary.
	if len(os.Args) == 2 && os.Args[1] == tcpbench.WorkerCommand {
		if err := tcpbench.RunWorker(os.Stdin, os.Stdout, func() { os.Exit(1) }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

func spec(k tcpbench.Kind, size int) tcpbench.Spec {
	return tcpbench.Spec{
		Kind: k, Size: size, Streams: 1, Duration: 20 * time.Millisecond, Warmup: 2 * time.Millisecond,
		CPUs: tcpbench.Anywhere(),
	}
}

func measure(ctx context.Context, t tcpbench.Transport, s tcpbench.Spec) (tcpbench.Result, error) {
	s.Transport = t
	return tcpbench.Between(tcpbench.End{}, tcpbench.End{}).Measure(ctx, s)
}

func TestMeasure(t *testing.T) {
	netnstest.CheckFDs(t)
	for _, tt := range []struct {
		unit  tcpbench.Transport
		kind  tcpbench.Kind
		sizes []int
	}{
		{VELO, tcpbench.PingPong, []int{1, MaxVELO}},
		{VELO, tcpbench.Rate, []int{64}},
		{VELO, tcpbench.Stream, []int{MaxVELO}},
		{RMA, tcpbench.PingPong, []int{1, 65536}},
		{RMA, tcpbench.Stream, []int{64, 65536, MaxRMA}},
	} {
		for _, size := range tt.sizes {
			s := spec(tt.kind, size)
			r, err := measure(t.Context(), tt.unit, s)
			if err != nil || r.Bytes <= 0 || r.Bytes%int64(size) != 0 || r.Elapsed < s.Duration || r.CPU <= 0 {
				t.Errorf("%s %s, %d bytes: %+v, %v", tt.unit, tt.kind, size, r, err)
			}
			if tt.kind == tcpbench.PingPong && (r.Latency == nil || r.Latency.Count() != r.Bytes/int64(size)) {
				t.Errorf("%s, %d bytes: latencies %v of %d bytes", tt.unit, size, r.Latency, r.Bytes)
			}
		}
	}
}

// TestRing: the bare ring between two processes, on two CPUs and on one.
func TestRing(t *testing.T) {
	netnstest.CheckFDs(t)
	for _, cpus := range []tcpbench.Placement{tcpbench.Apart(), tcpbench.Together()} {
		for _, size := range []int{1, 100, 64 << 10, 3<<20 + 7} {
			s := spec(tcpbench.Stream, size)
			s.CPUs = cpus
			r, err := measure(t.Context(), Ring, s)
			if err != nil || r.Bytes <= 0 || r.Elapsed < s.Duration || r.CPU <= 0 {
				t.Errorf("%d bytes, %v: %+v, %v", size, cpus, r, err)
			}
		}
	}
	if _, err := measure(t.Context(), Ring, spec(tcpbench.PingPong, 64)); err == nil {
		t.Error("a ring has round trips")
	}
}

// TestMeasureErrors: an end that fails ends the other one, and its reason is told.
func TestMeasureErrors(t *testing.T) {
	netnstest.CheckFDs(t)
	start := time.Now()
	if _, err := measure(t.Context(), VELO, spec(tcpbench.PingPong, MaxVELO+1)); err == nil {
		t.Error("a message that is too long was sent")
	}
	if _, err := measure(t.Context(), RMA, spec(tcpbench.CRR, 64)); err == nil {
		t.Error("RMA has connections")
	}
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("it took %v", d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := measure(ctx, RMA, spec(tcpbench.Stream, 64)); err == nil {
		t.Error("a cancelled measurement has a result")
	}
}
