//go:build amd64 || arm64

package inject

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	suspendSeccomp = 1 << 21 // PTRACE_O_SUSPEND_SECCOMP
	stopPause      = 200 * time.Microsecond
	yamaScope      = "/proc/sys/kernel/yama/ptrace_scope"
)

// stopThreads stops all threads. Those that begin meanwhile are found as the list is read again.
func (r *running) stopThreads(deadline time.Time) error {
	r.threads = make(map[int]registers)
	for {
		names, err := readNames(r.procPath("task"))
		if err != nil {
			return ErrGone
		}
		var found []int
		for _, name := range names {
			tid, err := strconv.Atoi(name)
			if _, known := r.threads[tid]; err != nil || known || r.threadEnded(tid) {
				continue
			}
			if err := seizeThread(tid); errors.Is(err, unix.ESRCH) {
				continue
			} else if err != nil {
				return refusalOf(err)
			}
			r.threads[tid] = registers{}
			if err := ptraceRequest(unix.PTRACE_INTERRUPT, tid, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			found = append(found, tid)
		}
		if len(found) == 0 && len(r.threads) > 0 {
			return nil
		} else if len(found) == 0 {
			return ErrGone
		}
		step("seized")
		for _, tid := range found {
			if err := r.awaitStop(tid, deadline); err != nil {
				return err
			}
		}
	}
}

// threadEnded reports whether a thread, the first of a process say, waits for the others to end.
func (r *running) threadEnded(tid int) bool {
	stat, err := os.ReadFile(r.procPath("task/" + strconv.Itoa(tid) + "/stat"))
	if err != nil {
		return true
	}
	var state string
	for i := len(stat) - 1; i >= 0; i-- {
		if stat[i] == ')' { // the name before it may have any byte
			_, _ = fmt.Sscan(string(stat[i+1:]), &state) // else there is none
			break
		}
	}
	return state == "Z" || state == "X"
}

// seizeThread begins to trace a thread, which goes on. Its own rules for system calls do not hold
// for those of the tracer, if root may say so.
func seizeThread(tid int) error {
	err := ptraceRequest(unix.PTRACE_SEIZE, tid, unix.PTRACE_O_TRACESYSGOOD|suspendSeccomp)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) {
		err = ptraceRequest(unix.PTRACE_SEIZE, tid, unix.PTRACE_O_TRACESYSGOOD)
	}
	return err
}

// refusalOf says why a thread may not be traced.
func refusalOf(err error) error {
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	if scope, err := os.ReadFile(yamaScope); err == nil && len(scope) > 0 && scope[0] != '0' && os.Geteuid() != 0 {
		return fmt.Errorf("%w: ask as root (%s is %c)", ErrPtrace, yamaScope, scope[0])
	}
	return fmt.Errorf("%w: ask as root of this host", ErrPtrace)
}

// awaitStop waits until a thread stands still, and reads its registers.
func (r *running) awaitStop(tid int, deadline time.Time) error {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(tid, &ws, unix.WALL|unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil, pid == tid && (ws.Exited() || ws.Signaled()):
			delete(r.threads, tid)
			return nil
		case pid == 0:
			if time.Now().After(deadline) {
				return errNoStop
			}
			time.Sleep(stopPause)
			continue
		}
		switch event := int(ws) >> eventBits; {
		case event == stopEvent && ws.StopSignal() != unix.SIGTRAP:
			return errStopped
		case event == stopEvent:
			var regs registers
			if err := getRegisters(tid, &regs); err != nil {
				delete(r.threads, tid) // it was killed
				return nil
			}
			r.threads[tid] = regs
			return nil
		default: // a signal reaches it first
			if err := ptraceRequest(unix.PTRACE_CONT, tid, uintptr(ws.StopSignal())); err != nil {
				delete(r.threads, tid)
				return nil
			}
		}
	}
}

// resumeThreads lets all threads go on. A thread that does not stand still goes on when this
// process, or this thread of it, ends.
func (r *running) resumeThreads() {
	for tid := range r.threads {
		_ = ptraceRequest(unix.PTRACE_DETACH, tid, 0) // it may be gone
	}
}

// callerThreads returns the threads that may make the tracer's system calls: those that wait in a
// call which the kernel repeats come last.
func (r *running) callerThreads(t *tracer) []int {
	tids := slices.Collect(maps.Keys(r.threads))
	slices.SortFunc(tids, func(a, b int) int {
		x, y := r.threads[a], r.threads[b]
		return cmp.Compare(t.callerRank(&x), t.callerRank(&y))
	})
	return tids
}

func (t *tracer) callerRank(regs *registers) int {
	if t.isRepeating(regs) {
		return 1
	}
	return 0
}
