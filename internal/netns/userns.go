package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"exnet/internal/child"

	"golang.org/x/sys/unix"
)

// userNSEnv marks a process that ReexecInUserNS started, and what that starts.
const userNSEnv = "EXN_USERNS"

// ErrUserNS says that user namespaces are not allowed here. The error's text
// names the setting that forbids them.
var ErrUserNS = errors.New("user namespaces are not allowed here")

// InUserNS reports whether ReexecInUserNS started this process.
func InUserNS() bool { return os.Getenv(userNSEnv) != "" }

// ReexecInUserNS runs the current program again, with the same arguments,
// environment and standard streams, in new user, network and mount namespaces
// in which it is root (user_namespaces(7)), and returns its exit status, or 128
// plus the number of the signal that ended it. The caller exits with it.
//
// SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on. The keys of a terminal
// (Ctrl-C) reach both processes by themselves, so while this process is in the
// terminal's foreground, SIGINT and SIGQUIT are not passed on a second time.
// If this process is killed, the other is too.
func ReexecInUserNS() (status int, err error) {
	if InUserNS() {
		return 0, fmt.Errorf("netns: %w: already in one and still without privileges%s", ErrUserNS, userNSHint(unix.EPERM, readSysctl))
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = os.Args
	cmd.Env = append(os.Environ(), userNSEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(signals)

	// Pdeathsig is sent when the thread that forked ends, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("netns: %w: %w%s", ErrUserNS, err, userNSHint(err, readSysctl))
	}
	waited := make(chan struct{})
	go func() {
		err = cmd.Wait()
		close(waited)
	}()
	for {
		select {
		case sig := <-signals:
			if (sig == unix.SIGINT || sig == unix.SIGQUIT) && child.InForeground() {
				continue
			}
			_ = cmd.Process.Signal(sig) // fails only when it has just ended
		case <-waited:
			return exitStatus(cmd.ProcessState), ignoreExit(err)
		}
	}
}

// exitStatus is the status that a shell would show.
func exitStatus(state *os.ProcessState) int {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

// ignoreExit drops the error that says no more than the exit status.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) {
		return nil
	}
	return fmt.Errorf("netns: %w", err)
}

// userNSHint says which setting forbids user namespaces, as sysctl shows it.
func userNSHint(err error, sysctl func(name string) string) string {
	const instead = " (or run as root)"
	switch {
	case sysctl("user.max_user_namespaces") == "0":
		return ": sysctl -w user.max_user_namespaces=15000" + instead
	case sysctl("kernel.unprivileged_userns_clone") == "0": // Debian, Arch
		return ": sysctl -w kernel.unprivileged_userns_clone=1" + instead
	case sysctl("kernel.apparmor_restrict_unprivileged_userns") == "1": // Ubuntu 23.10 and later
		return ": sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" + instead
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		return ": too many are in use: raise the sysctl user.max_user_namespaces" + instead
	case errors.Is(err, unix.EINVAL):
		return ": this kernel has none (CONFIG_USER_NS): run as root"
	}
	return ": a container or a security policy forbids them: run as root"
}
