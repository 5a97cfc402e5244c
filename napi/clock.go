package napi

import (
	"sync"
	"time"
)

// Clock is where the package's time comes from. A test gives one that it moves
// by hand.
type Clock interface {
	// Now is a time that never goes back. Only differences count.
	Now() time.Duration

	// AfterFunc calls f after d, without a lock of the clock's and never within
	// AfterFunc or Timer.Reset themselves.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a call of AfterFunc to come; *time.Timer is one, too.
type Timer interface {
	// Stop says whether it kept f from being called.
	Stop() bool

	// Reset lets f be called after d from now.
	Reset(d time.Duration) bool
}

var _ Timer = (*lazyTimer)(nil)

// SystemClock returns the system's monotonic clock.
func SystemClock() Clock { return systemClock{time.Now()} }

type systemClock struct{ start time.Time }

func (c systemClock) Now() time.Duration { return time.Since(c.start) }

func (c systemClock) AfterFunc(d time.Duration, f func()) Timer {
	t := &lazyTimer{clock: c, f: f}
	t.mu.Lock()
	t.on, t.armed, t.at = true, true, c.Now()+d
	t.rings = t.at
	t.timer = time.AfterFunc(d, t.ring)
	t.mu.Unlock()
	return t
}

// lazyTimer is a timer that is set anew and stopped tens of thousands of times a second and
// seldom ends. To set a timer of the runtime's may wake a thread that waits for the next one, so
// that runs on, and when it rings it is set for what is left.
type lazyTimer struct {
	clock systemClock
	f     func()

	mu    sync.Mutex
	timer *time.Timer   // guarded by mu
	on    bool          // guarded by mu; f is to be called
	at    time.Duration // guarded by mu; when
	armed bool          // guarded by mu; timer will ring
	rings time.Duration // guarded by mu; when
}

// Stop implements Timer.
func (t *lazyTimer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.on
	t.on = false
	return on
}

// Reset implements Timer.
func (t *lazyTimer) Reset(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	on := t.on
	t.on, t.at = true, t.clock.Now()+d
	if !t.armed || t.rings > t.at {
		t.armed, t.rings = true, t.at
		t.timer.Reset(d)
	}
	return on
}

// ring is what the runtime's timer calls.
func (t *lazyTimer) ring() {
	t.mu.Lock()
	left := t.at - t.clock.Now()
	switch {
	case !t.on:
		t.armed = false
		t.mu.Unlock()
	case left > 0:
		t.armed, t.rings = true, t.at
		t.timer.Reset(left)
		t.mu.Unlock()
	default:
		t.on, t.armed = false, false
		t.mu.Unlock()
		t.f()
	}
}
