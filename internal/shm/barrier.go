package shm

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Commands of membarrier(2), Linux 4.16.
const (
	membarrierGlobalExpedited         = 1 << 1
	membarrierRegisterGlobalExpedited = 1 << 2
)

func membarrier(cmd uintptr) bool {
	_, _, errno := unix.RawSyscall(unix.SYS_MEMBARRIER, cmd, 0, 0)
	return errno == 0
}

var expedited = sync.OnceValue(func() bool {
	return membarrier(membarrierRegisterGlobalExpedited) && membarrier(membarrierGlobalExpedited)
})

// Expedited registers this process for Membarrier; false if the kernel has none.
func Expedited() bool { return expedited() }

// Membarrier has every thread of every registered process that runs at this
// moment pass a full memory barrier, and passes one itself. One that does not run
// has passed one. So the side that calls it seldom pays for the side that would
// need a fence often.
func Membarrier() { membarrier(membarrierGlobalExpedited) }
