//go:build amd64 || arm64

package inject

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// startTime bounds how long the tracer may take to be there.
const startTime = 20 * time.Second

// Reasons why nothing is injected.
var (
	errSecure = errors.New("it runs with other rights than its caller's")
	errRules  = errors.New("SELinux governs this system")
	errStart  = errors.New("the tracer cannot be started")
)

// cloneTwice has a child of a child, which shares this memory, run code with an argument on a stack
// of its own, has its thread's number written to tid, and returns the first child, or a negative
// errno. Signals must be blocked.
func cloneTwice(code, argument, stack uintptr, tid *int32) (pid uintptr)

// Launch has the next execve of this thread, which it locks, put the library into the program. Why
// it does not is an error, or what the command of c.Report says when the program runs.
//
// What traces the program is no child of this process: the program must have no child that it did
// not start.
func Launch(c Config) error {
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil {
		return errRules
	}
	p, err := findProgram(c.File, false, c.Dir)
	if err != nil {
		return err
	}
	l, err := readLibrary(c.Library)
	if err != nil {
		return err
	}
	plan, err := newPlan(p, l, c)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	plan.shared.thread = int32(unix.Gettid())
	if err := plan.startTracer(); err != nil {
		return err
	}
	_ = unix.Prctl(unix.PR_SET_PTRACER, uintptr(plan.shared.tracer), 0, 0, 0) // it fails where Yama is not: nobody asks then
	if seized := plan.beginTrace(); seized < 0 {
		return fmt.Errorf("%w (%s)", ErrPtrace, os.NewSyscallError("ptrace", unix.Errno(-seized)))
	} else if seized == 0 {
		return errStart
	}
	p.keepSites()
	return nil
}

// startTracer starts the tracer's process.
func (p *plan) startTracer() error {
	all, before := unix.Sigset_t{}, unix.Sigset_t{}
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return os.NewSyscallError("sigprocmask", err)
	}
	pid := cloneTwice(p.code, p.argument, p.stack, &p.shared.tracer)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err != nil {
		return os.NewSyscallError("sigprocmask", err)
	}
	if int(pid) < 0 {
		return os.NewSyscallError("clone", unix.Errno(-pid))
	}
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(int(pid), &ws, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && ws.ExitStatus() != 0 {
			err = errStart
		}
		return err
	}
}

// The steps of the tracer, as in free/trace.h. It reports the step in which it failed.
const (
	stepDone = iota
	stepRead
	stepSecure
	stepReserve
	stepOpen
	stepMap
	stepStart
)

// Outcome is the error of what the tracer says: a step and an errno. nil: the program has the
// library.
func Outcome(step int, errno unix.Errno, library string) error {
	switch step {
	case stepDone:
		return nil
	case stepSecure:
		return errSecure
	case stepReserve:
		if errors.Is(errno, unix.EEXIST) {
			return errFar
		}
		return wrapError("reserving memory", errno)
	case stepOpen:
		return wrapError("opening "+library, errno)
	case stepMap:
		return wrapError("mapping "+library, errno)
	case stepStart:
		return startError(errno)
	}
	return wrapError("reading where it begins", errno)
}

// startError is the error of the library's start.
func startError(errno unix.Errno) error {
	switch errno {
	case 0:
		return nil
	case unix.EEXIST:
		return errPage
	}
	return fmt.Errorf("starting the library: %w", errno)
}
