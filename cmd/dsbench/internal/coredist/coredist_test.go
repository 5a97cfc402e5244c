package coredist

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/leaktest"
)

func TestOf(t *testing.T) {
	for _, tt := range []struct {
		line, handOver time.Duration
		want           string
	}{
		{60, 1900, "near: cache line 0.06 us one way, 64 KB handed over in 1.9 us"},
		{120, 9000, "near: cache line 0.12 us one way, 64 KB handed over in 9.0 us"},
		{121, 3800, "far: cache line 0.12 us one way, 64 KB handed over in 3.8 us"},
		{370, 9000, "far: cache line 0.37 us one way, 64 KB handed over in 9.0 us"},
	} {
		if got := classify(tt.line, tt.handOver).String(); got != tt.want {
			t.Errorf("%v, %v: %q, want %q", tt.line, tt.handOver, got, tt.want)
		}
	}
}

func TestCopies(t *testing.T) {
	d := classify(60, 1900)
	d.Hot, d.Cold = 115.4, 21.46
	if got, want := d.String(), "near: cache line 0.06 us one way, 64 KB handed over in 1.9 us; 64 KB copied at 115 GB/s, 64 MB at 21.5"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMeasure(t *testing.T) {
	defer leaktest.None(t)
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for c := range 1024 {
		if set.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	if d := Measure(cpus[0], cpus[0]); d.Cores != One || !strings.HasPrefix(d.String(), "only one CPU; 64 KB copied at ") || d.Hot <= 0 || d.Cold <= 0 {
		t.Errorf("one CPU: %+v", d)
	}
	if d := Measure(cpus[0], 1023); d.Cores != Unknown || !strings.Contains(d.String(), "not measured") {
		t.Errorf("a CPU that is not there: %+v", d)
	}
	if len(cpus) < 2 {
		t.Skip("one CPU")
	}
	d := Measure(cpus[0], cpus[1])
	t.Log(d)
	if d.Cores != Unknown && (d.Line < 0.005 || d.HandOver < 0.3) {
		t.Errorf("too fast to be true: %+v", d)
	}
}

// Neither thread waits for one that does not come once the time is over.
func TestStopped(t *testing.T) {
	s := new(shared)
	s.stop.Store(true)
	if times := s.write(); len(times) > 0 {
		t.Errorf("%d batches with nobody", len(times))
	}
	if times := s.read(); len(times) > 0 {
		t.Errorf("%d hand-overs from nobody", len(times))
	}
}
