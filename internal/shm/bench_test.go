package shm

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// What the side that goes to sleep pays, alone and while another thread of the
// process runs; beside the fence that it saves the other side.
func BenchmarkBarrier(b *testing.B) {
	if !Expedited() {
		b.Skip("this kernel has no membarrier")
	}
	b.Run("membarrier", func(b *testing.B) {
		for b.Loop() {
			Membarrier()
		}
	})
	b.Run("membarrier/other=runs", func(b *testing.B) {
		var stop atomic.Bool
		go func() {
			runtime.LockOSThread()
			for !stop.Load() {
			}
		}()
		for b.Loop() {
			Membarrier()
		}
		stop.Store(true)
	})
	var w atomic.Uint64
	b.Run("store", func(b *testing.B) {
		for b.Loop() {
			w.Store(1)
		}
	})
	b.Run("release", func(b *testing.B) {
		for b.Loop() {
			Release(&w, 1)
		}
	})
	b.Run("cpu", func(b *testing.B) {
		for b.Loop() {
			CPU()
		}
	})
	b.Run("pause", func(b *testing.B) {
		for b.Loop() {
			Pause(1)
		}
	})
}
