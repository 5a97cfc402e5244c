// Package readhook lets a test see which foreign memory is read, to change it behind
// the reader's back: code that reads a byte a second time then finds another value.
// In a program no hook is set, and a read costs one extra load.
//
// # Architecture
//
//	foreign.Memory ── On, Read ──► the function that Set was given (internal/foreigntest)
//
// # Concurrency
//
// All functions may be called from many goroutines. Set is for one test at a time.
//
// # Limits
//
// For package foreign and for tests.
package readhook

import "sync/atomic"

var (
	on   atomic.Bool
	hook atomic.Pointer[func(mem []byte)]
)

// On reports whether somebody wants to know of reads.
func On() bool { return on.Load() }

// Read tells that the first n bytes of mem were read, each once.
func Read(mem []byte, n int) {
	if h := hook.Load(); h != nil && n > 0 {
		(*h)(mem[:n])
	}
}

// Set has f called after every read with the memory that was read, which f may
// write; nil ends it. f may be called from many goroutines at a time.
func Set(f func(mem []byte)) {
	if f == nil {
		on.Store(false)
		hook.Store(nil)
		return
	}
	hook.Store(&f)
	on.Store(true)
}
