package shm

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func getcpu() int {
	var cpu uint32
	if _, _, errno := syscall.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
		return -1
	}
	return int(cpu)
}
