package stats

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	histogramMax    = int64(100 * time.Second)
	histogramDigits = 3
)

// Histogram counts latencies. Its text form, which is also its JSON form, is
// the compressed V2 format that the HdrHistogram tools of every language read.
//
// Concurrency: one goroutine at a time.
type Histogram struct {
	h *hdrhistogram.Histogram
}

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram {
	return &Histogram{hdrhistogram.New(1, histogramMax, histogramDigits)}
}

// Record counts d. It does not allocate.
func (h *Histogram) Record(d time.Duration) {
	// Only a value out of range fails.
	_ = h.h.RecordValue(min(max(int64(d), 1), histogramMax))
}

// Merge adds the counts of other.
func (h *Histogram) Merge(other *Histogram) { h.h.Merge(other.h) }

// Count returns how many latencies were recorded.
func (h *Histogram) Count() int64 { return h.h.TotalCount() }

// Quantile returns the latency that the share q of all latencies did not exceed: 0.5 for the
// median, 0.99, 0.999; 0 if the histogram is empty.
func (h *Histogram) Quantile(q float64) time.Duration {
	return time.Duration(h.h.ValueAtPercentile(q * 100))
}

// Mean returns the arithmetic mean, 0 if the histogram is empty.
func (h *Histogram) Mean() time.Duration { return time.Duration(h.h.Mean()) }

// MarshalText implements encoding.TextMarshaler.
func (h *Histogram) MarshalText() ([]byte, error) {
	text, err := h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, fmt.Errorf("stats: histogram: %w", err)
	}
	return text, nil
}

// UnmarshalText implements encoding.TextUnmarshaler. A histogram with values
// that this package would not have recorded is an error; h is unchanged then.
func (h *Histogram) UnmarshalText(text []byte) error {
	decoded, err := hdrhistogram.Decode(text)
	if err != nil {
		return fmt.Errorf("stats: histogram: %w", err)
	}
	fresh := NewHistogram()
	if dropped := fresh.h.Merge(decoded); dropped > 0 {
		return fmt.Errorf("stats: histogram: %d values are out of range", dropped)
	}
	*h = *fresh
	return nil
}
