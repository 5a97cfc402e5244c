package tcpbench

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"exnet/internal/stats"
)

func TestBound(t *testing.T) {
	spec := Spec{Duration: time.Second}
	killed := errors.New("a worker ended without a result")
	wait := func(ctx context.Context) error {
		<-ctx.Done()
		return killed
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cut := errors.New("cable cut")
	cancel(cut)
	if err := spec.Bound(ctx, wait); err != cut {
		t.Errorf("error %v, want the reason of the end", err)
	}
	if err := spec.Bound(t.Context(), func(context.Context) error { return killed }); err != killed {
		t.Errorf("error %v, want the worker's", err)
	}
	spec.Warmup = -spec.timeout() // the time is over
	want := "no result within 0s: the path does not pass data"
	if err := spec.Bound(t.Context(), wait); err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestResult(t *testing.T) {
	spec := Spec{Kind: Stream}
	r, err := spec.checkResult(jobResult{Bytes: 3e9, Seconds: 1.5}, 0.5)
	if err != nil || r != (Result{Bytes: 3e9, Elapsed: 1500 * time.Millisecond, CPU: 0.5}) {
		t.Errorf("result %+v, %v", r, err)
	}
	if got := r.BytesPerSecond(); math.Abs(got-2e9) > 1 {
		t.Errorf("%v bytes per second, want 2e9", got)
	}
	if got := r.CPUPerGB(); math.Abs(got-0.25) > 1e-9 {
		t.Errorf("%v CPU seconds per gigabyte, want 0.25", got)
	}
	h := stats.NewHistogram()
	for _, tt := range []struct {
		kind Kind
		r    jobResult
		want string
	}{
		{Stream, jobResult{}, "nothing arrived in time: give --duration more"},
		{Rate, jobResult{Bytes: 1}, "nothing arrived in time: give --duration more"},
		{Stream, jobResult{Seconds: 1}, "nothing arrived in time: give --duration more"},
		{PingPong, jobResult{Bytes: 1, Seconds: 1}, "no round trip ended in time: give --duration more"},
		{CRR, jobResult{Bytes: 1, Seconds: 1, Latency: h}, "no transaction ended in time: give --duration more"},
	} {
		if _, err := (Spec{Kind: tt.kind}).checkResult(tt.r, 0); err == nil || err.Error() != tt.want {
			t.Errorf("%s, %+v: error %v, want %q", tt.kind, tt.r, err, tt.want)
		}
	}
	h.Record(time.Microsecond)
	want := Result{Bytes: 1, Elapsed: time.Second, Latency: h, CPU: 0.5}
	if r, err := (Spec{Kind: PingPong}).checkResult(jobResult{Bytes: 1, Seconds: 1, Latency: h}, 0.5); err != nil || r != want {
		t.Errorf("result %+v, %v", r, err)
	}
}

func TestCheck(t *testing.T) {
	for _, k := range []Kind{Stream, PingPong, Rate, CRR} {
		if err := shortSpec().with(k, 1).check(); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
}

// TestResultDirect: a measurement of direct sockets that was none fails.
func TestResultDirect(t *testing.T) {
	for _, tt := range []struct {
		transport     Transport
		bytes, shadow int64
		want          string
	}{
		{Direct, 1e6, 1e4, ""},
		{Direct, 1e6, 1e4 + 1, "the direct path was not used: 10001 of 1000000 bytes went over TCP (no broker)"},
		{ZeroCopy, 1e6, 1e4 + 200, ""},
		{ZeroCopy, 1e6, 1e4 + 201, "the direct path was not used: 10201 of 1000000 bytes went over TCP, or were copied (no broker)"},
	} {
		_, err := Spec{Kind: Stream, Size: 100, Transport: tt.transport}.checkResult(jobResult{Bytes: tt.bytes, Seconds: 1, Shadow: tt.shadow, Why: "no broker"}, 0)
		if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("%s, %d of %d: %v, want %q", tt.transport, tt.shadow, tt.bytes, err, tt.want)
		}
	}
}
