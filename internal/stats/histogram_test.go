package stats

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

// near allows for the three digits that a histogram keeps.
func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if math.Abs(float64(got-want)) > 0.001*float64(want)+1 {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// thousand returns a histogram of 1, 2, ... 1000 microseconds.
func thousand() *Histogram {
	h := NewHistogram()
	for i := range 1000 {
		h.Record(time.Duration(i+1) * time.Microsecond)
	}
	return h
}

func TestHistogramQuantiles(t *testing.T) {
	h := thousand()
	if h.Count() != 1000 {
		t.Errorf("Count = %d, want 1000", h.Count())
	}
	near(t, "p50", h.Quantile(0.5), 500*time.Microsecond)
	near(t, "p99", h.Quantile(0.99), 990*time.Microsecond)
	near(t, "p999", h.Quantile(0.999), 999*time.Microsecond)
	near(t, "max", h.Quantile(1), 1000*time.Microsecond)
	near(t, "mean", h.Mean(), 500500*time.Nanosecond)
}

func TestHistogramEmpty(t *testing.T) {
	h := NewHistogram()
	if h.Count() != 0 || h.Quantile(0.99) != 0 || h.Mean() != 0 {
		t.Errorf("an empty histogram has count %d, p99 %v, mean %v", h.Count(), h.Quantile(0.99), h.Mean())
	}
}

func TestHistogramClampsToItsRange(t *testing.T) {
	h := NewHistogram()
	h.Record(-time.Second)
	h.Record(0)
	h.Record(time.Hour)
	if h.Count() != 3 {
		t.Fatalf("Count = %d, want 3: a value was lost", h.Count())
	}
	near(t, "smallest", h.Quantile(0), 1)
	near(t, "largest", h.Quantile(1), 100*time.Second)
}

func TestHistogramMerge(t *testing.T) {
	h := thousand()
	slow := NewHistogram()
	for range 1000 {
		slow.Record(time.Second)
	}
	h.Merge(slow)
	if h.Count() != 2000 {
		t.Errorf("Count = %d, want 2000", h.Count())
	}
	near(t, "p50", h.Quantile(0.5), time.Millisecond)
	near(t, "p99", h.Quantile(0.99), time.Second)
}

func TestHistogramJSON(t *testing.T) {
	text, err := json.Marshal(thousand())
	if err != nil {
		t.Fatal(err)
	}
	got := NewHistogram()
	if err := json.Unmarshal(text, got); err != nil {
		t.Fatal(err)
	}
	if !got.h.Equals(thousand().h) {
		t.Error("the histogram changed on its way through JSON")
	}
	got.Record(100 * time.Second) // the range must have survived too
	near(t, "largest", got.Quantile(1), 100*time.Second)
}

func TestHistogramTextErrors(t *testing.T) {
	text, err := thousand().MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	for n := range text {
		h := thousand()
		if err := h.UnmarshalText(text[:n]); err == nil {
			t.Fatalf("a text cut at %d of %d bytes was accepted", n, len(text))
		} else if !strings.HasPrefix(err.Error(), "stats: ") {
			t.Fatalf("error %q does not name the package", err)
		}
		if h.Count() != 1000 {
			t.Fatalf("a text cut at %d bytes changed the histogram", n)
		}
	}
}

func TestHistogramRecordDoesNotAllocate(t *testing.T) {
	h := NewHistogram()
	if n := testing.AllocsPerRun(100, func() { h.Record(1234) }); n != 0 {
		t.Errorf("Record allocates %v times", n)
	}
}

func FuzzHistogramUnmarshalText(f *testing.F) {
	text, err := thousand().MarshalText()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("HISTFAAAAA=="))
	f.Fuzz(func(t *testing.T, text []byte) {
		h := NewHistogram()
		if h.UnmarshalText(text) != nil {
			return
		}
		again, err := h.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		other := NewHistogram()
		if err := other.UnmarshalText(again); err != nil {
			t.Fatal(err)
		}
		if !h.h.Equals(other.h) {
			t.Fatal("the histogram changed on its way through text")
		}
	})
}
