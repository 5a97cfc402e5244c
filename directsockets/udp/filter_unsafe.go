package udp

import (
	"syscall"
	"unsafe"
)

const soGetFilter = 26 // SO_GET_FILTER

// filtered reports whether a socket has a filter. A length of 0 asks how many instructions it has;
// the kernel refuses to tell of an eBPF program.
func filtered(fd int) bool {
	n := uint32(0)
	_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), syscall.SOL_SOCKET, soGetFilter, 0, uintptr(unsafe.Pointer(&n)), 0)
	return n != 0 || errno != 0
}
