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

func TestStreamResult(t *testing.T) {
	r, err := streamResult(jobResult{Bytes: 3e9, Seconds: 1.5}, 0.5)
	if err != nil || r != (StreamResult{Bytes: 3e9, Elapsed: 1500 * time.Millisecond, CPU: 0.5}) {
		t.Errorf("result %+v, %v", r, err)
	}
	if got := r.BytesPerSecond(); math.Abs(got-2e9) > 1 {
		t.Errorf("%v bytes per second, want 2e9", got)
	}
	const want = "nothing arrived in time: give --duration more"
	for _, bad := range []jobResult{{}, {Bytes: 1}, {Seconds: 1}} {
		if _, err := streamResult(bad, 0); err == nil || err.Error() != want {
			t.Errorf("%+v: error %v, want %q", bad, err, want)
		}
	}
}

func TestPingPongResult(t *testing.T) {
	h := stats.NewHistogram()
	const want = "no round trip ended in time: give --duration more"
	for _, bad := range []jobResult{{}, {RoundTrips: h}} {
		if _, err := pingPongResult(bad, 0); err == nil || err.Error() != want {
			t.Errorf("%+v: error %v, want %q", bad, err, want)
		}
	}
	h.Record(time.Microsecond)
	if r, err := pingPongResult(jobResult{RoundTrips: h}, 0.5); err != nil || r != (PingPongResult{h, 0.5}) {
		t.Errorf("result %+v, %v", r, err)
	}
}
