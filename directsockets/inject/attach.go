package inject

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
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

// attachTime bounds how long the tracer may take to be there.
const attachTime = 20 * time.Second

// ConnFD is the number of the descriptor that the tracer's process has for Trace.
const ConnFD = 3

// Tracer is a tracer's process that has been started.
type Tracer struct {
	conn *os.File
	r    *bufio.Reader
}

// task is what a tracer is told first: the program's file, and the folder of what is kept.
type task struct{ File, Dir string }

// Start starts a tracer, this program's file with arguments and an environment of its own: it is to
// call Trace. It is no child of this process: the program must have no child that it did not start.
// It begins to read file, which the program will be executed from. In dir, which only root and this
// user can write to, it keeps where the system calls of large programs of C are; "": it does not.
func Start(file, dir string, argv, environ []string) (*Tracer, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	mine, its := os.NewFile(uintptr(fds[0]), "tracer"), os.NewFile(uintptr(fds[1]), "tracer")
	defer its.Close()
	t := &Tracer{mine, bufio.NewReader(mine)}
	limit := unix.NsecToTimeval(int64(attachTime))
	err = os.NewSyscallError("setsockopt", unix.SetsockoptTimeval(fds[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit))
	if err == nil {
		err = startDetached(argv, environ, its)
	}
	if err == nil {
		err = json.NewEncoder(mine).Encode(task{file, dir})
	}
	if err != nil {
		mine.Close()
		return nil, err
	}
	return t, nil
}

// Attach has the next execve of this thread, which it locks, inject the library of c into the
// program. The tracer is not needed any more then.
func (t *Tracer) Attach(c Config) error {
	defer t.Close()
	runtime.LockOSThread()
	c.Thread = unix.Gettid()
	line, err := t.r.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the tracer has ended: %w", err)
	}
	tracer, err := strconv.ParseUint(strings.TrimSpace(line), 10, 32)
	if err != nil {
		return fmt.Errorf("the tracer: %w", err)
	}
	_ = unix.Prctl(unix.PR_SET_PTRACER, uintptr(tracer), 0, 0, 0) // it fails where Yama is not: nobody asks then
	if err := json.NewEncoder(t.conn).Encode(c); err != nil {
		return fmt.Errorf("the tracer has ended: %w", err)
	}
	answer, err := t.r.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the tracer has ended: %w", err)
	}
	if answer = strings.TrimSpace(answer); answer != "" {
		return fmt.Errorf("%w (%s)", ErrPtrace, answer)
	}
	return nil
}

// Close ends a tracer that has not been attached. It may be called again.
func (t *Tracer) Close() { t.conn.Close() }

// Gone reports whether there was no program to inject into: it ended, or a script's shell took its
// place.
func Gone(err error) bool { return errors.Is(err, ErrGone) }
