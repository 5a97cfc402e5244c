package emp

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// connected is the accepting end of a connection that this process makes, as a user.
func connected(t *testing.T, uid int) *net.UnixConn {
	t.Helper()
	dir, err := os.MkdirTemp("", "emp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	ln, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := errors.Join(os.Chmod(dir, 0o711), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	fd := -1
	go func() {
		runtime.LockOSThread() // it ends with the goroutine: it has another user
		if uid != os.Geteuid() {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				done <- errno
				return
			}
		}
		var err error
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0); err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}
		done <- err
	}()
	err = <-done
	if fd >= 0 {
		t.Cleanup(func() { unix.Close(fd) })
	}
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestCheck: what says to be a node has to be the process that is linked as that node.
func TestCheck(t *testing.T) {
	dir := tempDir(t)
	a := start(t, Config{Dir: dir, Node: id(1)}, fakeLinker)
	start(t, Config{Dir: dir, Node: id(2)}, fakeLinker)
	b := start(t, Config{Dir: dir, Node: id(10)}, fakeLinker)
	startHelper(t, dir) // node 9, another process
	eventually(t, "all are linked", 30*time.Second, func() bool {
		return slices.Equal(a.up(), []fabric.NodeID{2, 9, 10}) && slices.Equal(b.up(), []fabric.NodeID{1, 2, 9})
	})
	conn := connected(t, os.Geteuid())
	if err := a.Check(conn); err != nil {
		t.Error(err)
	}
	for _, m := range []node{a, b} { // that was connected to, and that has connected
		if err := m.CheckNode(conn, 2); err != nil {
			t.Error(err)
		}
		for _, n := range []fabric.NodeID{9, 7, m.ID()} {
			if err := m.CheckNode(conn, n); !errors.Is(err, ErrRefused) {
				t.Errorf("node %d: as %d: %v", m.ID(), n, err)
			}
		}
	}
}

// TestCheckUser: who is neither root, nor the user, nor of the group is refused.
func TestCheckUser(t *testing.T) {
	if os.Geteuid() != 0 || inUserNS() {
		t.Skip("needs root to be another user")
	}
	m := join(t, Config{Dir: tempDir(t)})
	conn := connected(t, 12345)
	if err := m.Check(conn); !errors.Is(err, ErrRefused) {
		t.Errorf("a stranger: %v", err)
	}
	if err := m.CheckNode(conn, 1); !errors.Is(err, ErrRefused) {
		t.Errorf("a stranger: %v", err)
	}
}
