//go:build !amd64

package shm

import (
	"sync/atomic"

	"exnet/foreign"
)

// CPU is the number of the CPU that the caller runs on, or ran on a moment ago;
// -1 if that cannot be told.
func CPU() int { return getcpu() }

// Ticks reads the counter that all CPUs of the host share, of unknown frequency;
// 0 if there is none that can be read.
func Ticks() uint64 { return 0 }

// Pause returns at once.
func Pause(n uint32) {}

// PrefetchSlot does nothing.
func PrefetchSlot(status *atomic.Uint64) {}

// SpinSlot looks up to n times whether the lower half of a slot's status word is lap.
func SpinSlot(status *atomic.Uint64, lap, n uint32) bool {
	for range max(n, 1) {
		if uint32(status.Load()) == lap {
			return true
		}
	}
	return false
}

// PrefetchW does nothing.
func PrefetchW(m foreign.Memory) {}

// FillPast is m.Fill.
func FillPast(m foreign.Memory, p []byte) int { return m.Fill(p) }
