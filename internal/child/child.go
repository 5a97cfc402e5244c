// Package child helps commands that run other programs: it says why a program
// did not start and how it ended, and assigns the terminal's keys.
//
// # Architecture
//
// Plain functions, used by exn-tun (demo), exn-run and internal/netns.
//
// # Concurrency
//
// All of them may be called from many goroutines.
//
// # Limits
//
// Exit statuses are those of POSIX shells (POSIX.1-2024, XCU 2.8.2).
package child

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"exnet/internal/infile"
	_ "exnet/internal/linux"

	"golang.org/x/sys/unix"
)

// Exit statuses of a command that cannot be started.
const (
	statusFailure       = 1
	statusNotExecutable = 126
	statusNotFound      = 127
)

// StartStatus is the exit status that a shell would have for an error of starting a
// program: 127 not found, 126 what the system refuses, 1 anything else.
func StartStatus(err error) int {
	var errno syscall.Errno
	var lookUp *exec.Error
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return statusNotFound
	case errors.Is(err, fs.ErrPermission), errors.As(err, &errno), errors.As(err, &lookUp):
		return statusNotExecutable // it is there: a directory, a file of another kind
	}
	return statusFailure
}

// LookPath looks a program up as exec.LookPath does. The error for a name of which PATH has only
// what may not be executed is fs.ErrPermission, as of execvp(3), or EISDIR, and not
// exec.ErrNotFound.
func LookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if !errors.Is(err, exec.ErrNotFound) || name == "" {
		return path, err
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return "", &exec.Error{Name: name, Err: syscall.EISDIR}
		} else if err == nil {
			return "", &exec.Error{Name: path, Err: fs.ErrPermission}
		}
	}
	return path, err
}

// startError is a reason in words of its own.
type startError struct {
	text string
	error
}

func (e startError) Error() string { return e.text }
func (e startError) Unwrap() error { return e.error }

// explainStart says what to do about the file of a program that did not start. "": nothing is
// known.
func explainStart(name string, err error) string {
	info, statErr := os.Stat(name)
	switch {
	case statErr != nil:
	case info.IsDir():
		return name + ": is a directory: name a program"
	case errors.Is(err, fs.ErrPermission) && info.Mode()&0o111 == 0:
		return fmt.Sprintf("%s may not be executed: chmod +x %[1]s", name)
	case errors.Is(err, fs.ErrNotExist):
		path := interpreter(name)
		if _, statErr := os.Stat(path); path != "" && errors.Is(statErr, fs.ErrNotExist) {
			return fmt.Sprintf("%s: its interpreter %s does not exist", name, path)
		}
	}
	return ""
}

// interpreter is what a script names in its first line; "": it is none that may be printed.
func interpreter(name string) string {
	f, err := infile.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 256) // as the kernel reads (BINPRM_BUF_SIZE)
	n, _ := io.ReadFull(f, b)
	line, _, _ := strings.Cut(string(b[:n]), "\n")
	line, isScript := strings.CutPrefix(line, "#!")
	if words := strings.Fields(line); isScript && len(words) > 0 {
		return words[0]
	}
	return ""
}

// StartError says what to do about a program that did not start.
func StartError(err error) error {
	name := ""
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		name = path.Path
	} else if lookUp, ok := errors.AsType[*exec.Error](err); ok {
		name = lookUp.Name
	}
	if text := explainStart(name, err); name != "" && !errors.Is(err, exec.ErrNotFound) && text != "" {
		return startError{text, err}
	}
	if StartStatus(err) == statusNotFound {
		var path *fs.PathError
		if errors.As(err, &path) { // without the system call, and the name once
			err = fmt.Errorf("%s: %w", path.Path, path.Err)
		}
		return fmt.Errorf("%w: install it, or check its name and PATH", err)
	}
	return err
}

// ShellStatus is the exit status that a shell would show for a program that has
// ended.
func ShellStatus(state *os.ProcessState) int {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

// InForeground reports whether this process is in the foreground process group
// of its terminal, to which the terminal's keys send their signals.
func InForeground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
