package pager

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// heldTime is how long wait keeps its thread's P, in milliseconds.
const heldTime = 1

// waitForEvents waits for events, up to timeout milliseconds. For the first of these it does not
// tell Go's scheduler that it waits: most waits are shorter, and in each the scheduler would
// look every 20 µs whether to give the thread's P to another, on a CPU that the program needs.
// If it wants the P, it sends a signal, which ends the wait.
func (g *Pager) waitForEvents(events []unix.EpollEvent, timeout int) (int, error) {
	if timeout > 0 {
		held := min(timeout, heldTime)
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(g.poll), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(held), 0, 0)
		if errno != 0 {
			return 0, errno
		}
		if timeout -= held; n > 0 || timeout == 0 {
			return int(n), nil
		}
	}
	return unix.EpollWait(g.poll, events, timeout)
}
