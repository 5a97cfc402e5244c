//go:build amd64 || arm64

package inject

import (
	"encoding/binary"
	"os"
	"slices"
	"strconv"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// libraryCalls are the system calls that the library makes where the program may make none of them:
// a filter may answer them by an error, and may not end the program.
var libraryCalls = []uint32{
	unix.SYS_ACCEPT4, unix.SYS_BIND, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOSE, unix.SYS_CONNECT, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL,
	unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_FCNTL, unix.SYS_FSTAT, unix.SYS_FTRUNCATE, unix.SYS_FUTEX, unix.SYS_GETDENTS64, unix.SYS_GETEUID,
	unix.SYS_GETPEERNAME, unix.SYS_GETPID, unix.SYS_GETRANDOM, unix.SYS_GETSOCKNAME, unix.SYS_GETSOCKOPT, unix.SYS_GETTID, unix.SYS_IOCTL,
	unix.SYS_LSEEK, unix.SYS_MADVISE, unix.SYS_MEMBARRIER, unix.SYS_MEMFD_CREATE, unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_MUNMAP, unix.SYS_NANOSLEEP,
	unix.SYS_NEWFSTATAT, unix.SYS_OPENAT, unix.SYS_PPOLL, unix.SYS_PRCTL, unix.SYS_PREAD64, unix.SYS_PRLIMIT64, unix.SYS_READ, unix.SYS_READLINKAT, unix.SYS_RECVFROM,
	unix.SYS_RECVMSG, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_SCHED_YIELD, unix.SYS_SENDMSG, unix.SYS_SENDTO, unix.SYS_SETSOCKOPT,
	unix.SYS_SHUTDOWN, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_TGKILL, unix.SYS_WRITE,
}

// unfiltered looks for a filter by which a call of the library would end the program. Only threads
// that are stopped can be asked, and by root alone.
func (r *running) unfiltered() error {
	var known []unix.SockFilter // most often all threads have the same
	for tid := range r.threads {
		status, err := os.ReadFile(r.procPath("task/" + strconv.Itoa(tid) + "/status"))
		if err != nil {
			return ErrGone
		}
		for number := range statusField(status, "Seccomp_filters") {
			filter, err := filterOf(tid, number)
			if err != nil {
				return errFiltered
			}
			if slices.Equal(filter, known) {
				continue
			}
			if filterEnds(filter) {
				return errFiltered
			}
			known = filter
		}
	}
	return nil
}

// Answers of a filter (linux/seccomp.h).
const (
	answerMask  = 0xffff0000
	answerErrno = 0x00050000 // the call fails; those below end the process or raise a signal
	answerLog   = 0x7ffc0000
	answerAllow = 0x7fff0000
)

// filterEnds reports whether a filter ends the program for a call of the library, or may: then it
// is not understood.
func filterEnds(filter []unix.SockFilter) bool {
	raw := make([]bpf.RawInstruction, len(filter))
	for i, f := range filter {
		raw[i] = bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	instructions, whole := bpf.Disassemble(raw)
	vm, err := bpf.NewVM(instructions)
	if err != nil || !whole {
		return true
	}
	for _, call := range libraryCalls {
		// struct seccomp_data, each word as bpf reads one of a packet.
		const size = 64
		data := binary.BigEndian.AppendUint32(make([]byte, 0, size), call)
		data = binary.BigEndian.AppendUint32(data, filterMachine)
		answer, err := vm.Run(data[:size])
		if err != nil {
			return true
		}
		switch uint32(answer) & answerMask {
		case answerErrno, answerLog, answerAllow:
		default:
			return true
		}
	}
	return false
}
