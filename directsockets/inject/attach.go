package inject

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Config is what the tracer is told.
type Config struct {
	Thread  int    // which will become the program
	Library string // libexnds-free.so
	Name    string // of the program, for messages
	Format  Format
}

// Format is how the tracer says what it has to say.
type Format struct {
	JSON, Quiet, Explain bool
}

// ErrGone says that the program did not come to be, or ended, which is no failure of the tracer.
var ErrGone = errors.New("inject: the program has ended")

// ErrPtrace says that this process may not be traced, so that nothing can be injected.
var ErrPtrace = errors.New("ptrace is not allowed")

// errMachine says that a program is not for amd64, or this process.
var errMachine = errors.New("it is not for amd64")

// attachTime bounds how long the tracer may take to be there.
const attachTime = 20 * time.Second

// Attach has the next execve of this thread, which it locks, inject the library of c into the
// program. start starts a process that calls Trace with its end of the connection, and is no child
// of this process: the program must have no child that it did not start.
func Attach(c Config, start func(conn *os.File) error) error {
	if !Supported {
		return errMachine
	}
	runtime.LockOSThread()
	c.Thread = unix.Gettid()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	mine, its := os.NewFile(uintptr(fds[0]), "tracer"), os.NewFile(uintptr(fds[1]), "tracer")
	defer mine.Close()
	err = start(its)
	its.Close()
	if err != nil {
		return err
	}
	limit := unix.NsecToTimeval(int64(attachTime))
	if err := unix.SetsockoptTimeval(fds[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	r := bufio.NewReader(mine)
	var tracer uintptr
	if _, err := fmt.Fscanln(r, &tracer); err != nil {
		return fmt.Errorf("the tracer has ended: %w", err)
	}
	_ = unix.Prctl(unix.PR_SET_PTRACER, tracer, 0, 0, 0) // it fails where Yama is not: nobody asks then
	if err := json.NewEncoder(mine).Encode(c); err != nil {
		return fmt.Errorf("the tracer has ended: %w", err)
	}
	answer, err := r.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the tracer has ended: %w", err)
	}
	if answer = strings.TrimSpace(answer); answer != "" {
		return fmt.Errorf("%w (%s)", ErrPtrace, answer)
	}
	return nil
}
