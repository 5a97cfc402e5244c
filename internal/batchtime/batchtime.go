// Package batchtime is the clock of benchmarks that report the best and the median
// batch beside the mean.
//
// # Architecture
//
//	loop ── Tick ──▶ Meter ── Report ──▶ testing.B: best-UNIT, median-UNIT
//
// # Concurrency
//
// A Meter belongs to one goroutine.
//
// # Limits
//
// It keeps the first 65536 batches.
package batchtime

import (
	"slices"
	"testing"
	"time"
)

// Meter takes the time of batches. On a machine that has other things to do the
// mean says little; the best and the median batch say what the path can do.
type Meter struct {
	batch   int
	n       int
	begun   time.Time
	batches []time.Duration
}

// New returns a Meter of batches of so many ticks.
func New(batch int) *Meter {
	return &Meter{batch: batch, batches: make([]time.Duration, 0, 1<<16)}
}

// Tick ends one of whatever is measured.
func (m *Meter) Tick() {
	if m.n++; m.n%m.batch != 0 {
		return
	}
	now := time.Now()
	if !m.begun.IsZero() && len(m.batches) < cap(m.batches) {
		m.batches = append(m.batches, now.Sub(m.begun))
	}
	m.begun = now
}

// Report gives what one of per is worth, in the best and the median batch.
func (m *Meter) Report(b *testing.B, per float64, unit string, value func(seconds float64) float64) {
	if len(m.batches) == 0 {
		return
	}
	slices.Sort(m.batches)
	of := func(d time.Duration) float64 { return value(d.Seconds() / float64(m.batch) / per) }
	b.ReportMetric(of(m.batches[0]), "best-"+unit)
	b.ReportMetric(of(m.batches[len(m.batches)/2]), "median-"+unit)
}

// Nanoseconds is a value for Report, as are PerSecond and Bandwidth.
func Nanoseconds(s float64) float64 { return s * 1e9 }

// PerSecond is millions a second.
func PerSecond(s float64) float64 { return 1e-6 / s }

// Bandwidth is GB/s of pieces of size bytes.
func Bandwidth(size int) func(float64) float64 {
	return func(s float64) float64 { return float64(size) / s / 1e9 }
}
