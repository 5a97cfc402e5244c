//go:build !amd64 || race

package shm

import "sync/atomic"

// Release stores v so that what was written before is seen by whoever loads v.
func Release(w *atomic.Uint64, v uint64) { w.Store(v) }
