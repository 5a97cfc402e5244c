package napi

import "time"

// Clock is the package's source of time. Tests replace it by one that they advance
// by hand.
type Clock interface {
	// Now returns a monotonic time. Only differences matter.
	Now() time.Duration

	// AfterFunc calls f after d. The clock holds no lock meanwhile, and does not
	// call f from within AfterFunc or Timer.Reset.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a pending call of AfterFunc; *time.Timer is one.
type Timer interface {
	// Stop cancels the call and returns true if f had not been called yet.
	Stop() bool

	// Reset schedules the call of f for d from now.
	Reset(d time.Duration) bool
}

var _ Timer = (*time.Timer)(nil)

// SystemClock returns the system's monotonic clock.
func SystemClock() Clock { return systemClock{time.Now()} }

type systemClock struct{ start time.Time }

func (c systemClock) Now() time.Duration { return time.Since(c.start) }

func (c systemClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
