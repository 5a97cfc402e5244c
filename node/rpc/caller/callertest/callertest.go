// Package callertest has processes of other users, and in other namespaces, connect to a Unix
// socket, for tests of who is at its other end.
package callertest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"exnet/internal/leaktest"
)

// helperEnv has this program be the one that connects to the socket of that path.
const helperEnv = "EXNET_CALLERTEST"

// Main runs the tests, or is the process that Start has started: TestMain calls it.
func Main(m *testing.M) {
	if path := os.Getenv(helperEnv); path != "" {
		conn, err := net.Dial("unix", path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, _ = conn.Read(make([]byte, 1)) // until it was looked at
		return
	}
	leaktest.Main(m)
}

// Listen listens on a socket that all users may connect to, until the test ends.
func Listen(t *testing.T) *net.UnixListener {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		err = os.Chmod(path, 0o777)
	}
	for dir := filepath.Dir(path); err == nil && len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// Start starts a process with these attributes that connects, and returns it with the connection.
// end ends it before the test ends, as the test does. Where there can be none, the test is skipped.
func Start(t *testing.T, ln *net.UnixListener, attr *syscall.SysProcAttr) (conn *net.UnixConn, pid int, end func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), helperEnv+"="+ln.Addr().String())
	cmd.SysProcAttr, cmd.Stderr = attr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Skipf("a process with %+v: %v", attr, err)
	}
	end = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	t.Cleanup(end)
	_ = ln.SetDeadline(time.Now().Add(time.Minute))
	conn, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, cmd.Process.Pid, end
}

// IDs maps n IDs from 0 on, for a user namespace.
func IDs(host, n int) []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: 0, HostID: host, Size: n}}
}
