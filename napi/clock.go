package napi

import "time"

// Clock is where the package's time comes from. A test gives one that it moves
// by hand.
type Clock interface {
	// Now is a time that never goes back. Only differences count.
	Now() time.Duration

	// AfterFunc calls f after d, without a lock of the clock's and never within
	// AfterFunc or Timer.Reset themselves.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a call of AfterFunc to come; *time.Timer is one.
type Timer interface {
	// Stop says whether it kept f from being called.
	Stop() bool

	// Reset lets f be called after d from now.
	Reset(d time.Duration) bool
}

var _ Timer = (*time.Timer)(nil)

// SystemClock returns the system's monotonic clock.
func SystemClock() Clock { return systemClock{time.Now()} }

type systemClock struct{ start time.Time }

func (c systemClock) Now() time.Duration { return time.Since(c.start) }

func (c systemClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
