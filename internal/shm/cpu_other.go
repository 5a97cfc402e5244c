//go:build !amd64

package shm

// CPU is the number of the CPU that the caller runs on, or ran on a moment ago;
// -1 if that cannot be told.
func CPU() int { return getcpu() }

// Ticks reads the counter that all CPUs of the host share, of unknown frequency;
// 0 if there is none that can be read.
func Ticks() uint64 { return 0 }

// Pause returns at once.
func Pause(n uint32) {}

// PrefetchSlot does nothing.
func PrefetchSlot(s *Slot) {}

// SpinSlot looks up to n times whether the lower half of the slot's status word is
// lap.
func SpinSlot(s *Slot, lap, n uint32) bool {
	for range max(n, 1) {
		if uint32(s.Status.Load()) == lap {
			return true
		}
	}
	return false
}

// PrefetchW does nothing.
func PrefetchW(b []byte) {}
