//go:build amd64 || arm64

package inject

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// vforkTwice has a child of a child execute a file, in a session of its own and with conn as its
// descriptor 3, and returns the child, or a negative errno. Signals must be blocked.
func vforkTwice(path *byte, argv, environ **byte, conn uintptr) (pid uintptr)

// errStart says that the tracer's process could not be started.
var errStart = errors.New("the tracer cannot be started")

// startDetached starts this program's file with other arguments, as no child of this process.
func startDetached(argv, environ []string, conn *os.File) error {
	path, err := unix.BytePtrFromString("/proc/self/exe")
	if err != nil {
		return err
	}
	args, err := pointers(argv)
	if err != nil {
		return err
	}
	vars, err := pointers(environ)
	if err != nil {
		return err
	}
	fd, err := unix.FcntlInt(conn.Fd(), unix.F_DUPFD_CLOEXEC, ConnFD+1) // dup3 wants another number
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	defer unix.Close(fd)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, before := unix.Sigset_t{}, unix.Sigset_t{}
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return os.NewSyscallError("sigprocmask", err)
	}
	pid := vforkTwice(path, &args[0], &vars[0], uintptr(fd))
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err != nil {
		return os.NewSyscallError("sigprocmask", err)
	}
	runtime.KeepAlive(args)
	if int(pid) < 0 {
		return os.NewSyscallError("clone", unix.Errno(-pid))
	}
	var ws unix.WaitStatus
	for {
		_, err = unix.Wait4(int(pid), &ws, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil && ws.ExitStatus() != 0 {
		err = errStart
	}
	return err
}

// pointers returns texts as execve takes them.
func pointers(texts []string) ([]*byte, error) {
	list := make([]*byte, len(texts)+1)
	for i, s := range texts {
		p, err := unix.BytePtrFromString(s)
		if err != nil {
			return nil, err
		}
		list[i] = p
	}
	return list, nil
}
