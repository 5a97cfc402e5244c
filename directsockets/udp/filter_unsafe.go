package udp

import (
	"syscall"
	"unsafe"
)

const soGetFilter = 26 // SO_GET_FILTER

// soMemInfo is SO_MEMINFO, whose word memDrops is SK_MEMINFO_DROPS (linux/sock_diag.h).
const (
	soMemInfo = 55
	memDrops  = 8
)

// hasFilter reports whether a socket has a filter. A length of 0 asks how many instructions it
// has; the kernel refuses to tell of an eBPF program.
func hasFilter(fd int) bool {
	n := uint32(0)
	_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), syscall.SOL_SOCKET, soGetFilter, 0, uintptr(unsafe.Pointer(&n)), 0)
	return n != 0 || errno != 0
}

// kernelDrops returns how many datagrams the kernel has dropped at a socket, mostly for want of
// room.
func kernelDrops(fd int) uint32 {
	var info [memDrops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, _ = syscall.Syscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), syscall.SOL_SOCKET, soMemInfo, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	return info[memDrops]
}
