// Package irq is the one-shot interrupt line of a mailbox or notification queue.
//
// # Architecture
//
// The writer of a queue publishes an entry and then calls Raise; the reader
// calls Enable and then looks for entries. Both steps are sequentially
// consistent atomics, so that at least one side sees the other: either Raise
// finds the line enabled, or the reader finds the entry. Both may happen.
//
// # Concurrency
//
// All methods may be called from any goroutine. The handler runs in the
// goroutine that called Raise, without any lock.
package irq

import "sync/atomic"

// Line is an interrupt line. The zero Line is disabled and has no handler.
type Line struct {
	enabled atomic.Bool
	handler atomic.Pointer[func()]
	fired   atomic.Uint64
}

// Handle sets the handler; nil takes it away.
func (l *Line) Handle(h func()) {
	if h == nil {
		l.handler.Store(nil)
		return
	}
	l.handler.Store(&h)
}

// Raise calls the handler if the line is enabled, and disables it first.
func (l *Line) Raise() {
	if l.enabled.Load() {
		l.fire()
	}
}

func (l *Line) fire() {
	h := l.handler.Load()
	if h == nil || !l.enabled.CompareAndSwap(true, false) {
		return
	}
	l.fired.Add(1)
	(*h)()
}

// Enable lets the next Raise fire. The caller must look for entries afterwards.
func (l *Line) Enable() { l.enabled.Store(true) }

// Disable keeps the line from firing. A handler that has been taken up by a
// concurrent Raise still runs.
func (l *Line) Disable() { l.enabled.Store(false) }

// Fired is how often the handler was called.
func (l *Line) Fired() uint64 { return l.fired.Load() }
