//go:build amd64 || arm64

package inject

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests of ptrace for which package unix has no call, and what they are about.
const (
	getRegSet   = 0x4204
	setRegSet   = 0x4205
	getSigMask  = 0x420a
	setSigMask  = 0x420b
	sigMaskSize = 8
	getFilter   = 0x420c // PTRACE_SECCOMP_GET_FILTER
	maxFilter   = 4096   // instructions: BPF_MAXINSNS
)

// getBlocked returns the signals that a thread blocks, as it has them outside of a system call.
func getBlocked(tid int) (mask uint64, err error) {
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, getSigMask, uintptr(tid), sigMaskSize, uintptr(unsafe.Pointer(&mask)), 0, 0)
	if e != 0 {
		return 0, os.NewSyscallError("ptrace", e)
	}
	return mask, nil
}

func setBlocked(tid int, mask uint64) error {
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, setSigMask, uintptr(tid), sigMaskSize, uintptr(unsafe.Pointer(&mask)), 0, 0)
	if e != 0 {
		return os.NewSyscallError("ptrace", e)
	}
	return nil
}

// regSet reads or writes a set of a thread's registers, and returns how many bytes of b it has.
func regSet(how, tid, kind int, b []byte) (int, error) {
	v := unix.Iovec{Base: &b[0], Len: uint64(len(b))}
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, uintptr(how), uintptr(tid), uintptr(kind), uintptr(unsafe.Pointer(&v)), 0, 0)
	if e != 0 {
		return 0, os.NewSyscallError("ptrace", e)
	}
	return int(v.Len), nil
}

// filterOf returns the filter for system calls of a thread with a number, of which 0 is the last
// that was added. It takes CAP_SYS_ADMIN.
func filterOf(tid, number int) ([]unix.SockFilter, error) {
	b := make([]unix.SockFilter, maxFilter)
	n, _, e := unix.Syscall6(unix.SYS_PTRACE, getFilter, uintptr(tid), uintptr(number), uintptr(unsafe.Pointer(&b[0])), 0, 0)
	if e != 0 {
		return nil, os.NewSyscallError("ptrace", e)
	}
	return b[:n], nil
}
