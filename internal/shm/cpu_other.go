//go:build !amd64

package shm

// CPU is the number of the CPU that the caller runs on, or ran on a moment ago;
// -1 if that cannot be told.
func CPU() int { return getcpu() }

// Pause returns at once.
func Pause(n uint32) {}
