// Package foreigntest plays the hostile owner of foreign memory in tests: every byte
// changes after its first read, so that code that reads twice always fails.
//
// # Architecture
//
//	reader ── foreign.Memory ──► readhook ──► Reads counts ──► change, as Flip
//
// # Concurrency
//
// All methods may be called from many goroutines; one test at a time watches.
//
// # Limits
//
// For tests only. It does not see reads of atomic words.
package foreigntest

import (
	"sync"
	"testing"

	"exnet/internal/readhook"
)

// Reads is what was read of foreign memory.
type Reads struct {
	mu    sync.Mutex
	bytes map[*byte]int // guarded by mu; how often each was read
}

// Flip turns over every bit of what mem holds. It returns true.
func Flip(mem []byte) bool {
	for i := range mem {
		mem[i] ^= 0xff
	}
	return true
}

// Watch calls change with all foreign memory that is read from now on to the end of
// the test, right after each read; change reports whether that read counts. One test
// at a time can watch. The memory may be mapped for reading only, in which case change
// has to find its own way to it.
func Watch(tb testing.TB, change func(mem []byte) bool) *Reads {
	tb.Helper()
	r := &Reads{bytes: make(map[*byte]int)}
	readhook.Set(func(mem []byte) {
		if !change(mem) {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for i := range mem {
			r.bytes[&mem[i]]++
		}
	})
	tb.Cleanup(r.Stop)
	return r
}

// Stop ends the watch.
func (r *Reads) Stop() { readhook.Set(nil) }

// Bytes returns how many bytes were read, and how many of them more than once.
func (r *Reads) Bytes() (read, again int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.bytes {
		if n > 1 {
			again++
		}
	}
	return len(r.bytes), again
}

// Reset forgets what was read.
func (r *Reads) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.bytes)
}
