package txloop

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawPoll and rawNap are poll(2) and nanosleep(2) without the runtime's
// entersyscall and exitsyscall: the thread keeps its place (P) in the Go
// scheduler while it sleeps. For the few microseconds between two packets that
// is cheaper than giving it up and getting it back, which takes the help of
// other threads when there is other work. It must be short, since a place is
// taken from the other goroutines meanwhile. The garbage collector need not
// wait: its signal ends either call early.

func rawPoll(fds []unix.PollFd, timeout time.Duration) (ready bool) {
	ts := unix.NsecToTimespec(int64(timeout))
	n, _, errno := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))),
		uintptr(len(fds)), uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	return errno == 0 && n > 0
}

func rawNap(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	syscall.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// rawEpoll is epoll_wait(2) without waiting.
func rawEpoll(fd int, events []unix.EpollEvent) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
			uintptr(len(events)), 0, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// wakeMonitor wakes the Go runtime's monitor, which sleeps while no goroutine runs.
// Until it is awake, this one is not interrupted for others where there is one CPU, and
// nobody looks for the network's events while all CPUs are busy. Any system call that
// the runtime knows of does it.
func wakeMonitor() { syscall.Syscall(unix.SYS_GETPID, 0, 0, 0) }

// currentCPU returns the CPU that the thread runs on; -1 if the kernel does not say.
func currentCPU() int {
	var cpu uint32
	if _, _, errno := syscall.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
		return -1
	}
	return int(cpu)
}
