package accept

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/caller"
	"exnet/internal/leaktest"
)

// helperEnv has this program be the one that connects to the socket of that path.
const helperEnv = "EXNET_ACCEPT_TEST"

func TestMain(m *testing.M) {
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

// An account has so many connections at once, whatever others have; root has as many as it wants.
func TestGate(t *testing.T) {
	g := NewGate(3)
	enter := func(user caller.Account, n int, last bool) {
		t.Helper()
		for i := range n {
			if ok := g.enter(user); ok != (last || i+1 < n) {
				t.Errorf("connection %d of user %d: %v", i+1, user, ok)
			}
		}
	}
	enter(1000, 4, false)
	enter(1001, 3, true)
	enter(caller.Root, 100, true)
	g.leave(1000)
	enter(1000, 2, false)
	for user, n := range map[caller.Account]int{1000: 3, 1001: 3, caller.Root: 100} {
		for range n {
			g.leave(user)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.of) > 0 {
		t.Errorf("%v are left", g.of)
	}
}

// All users of a user namespace have the connections of who has made it.
func TestGateSubordinateUsers(t *testing.T) {
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
	defer ln.Close()
	_ = ln.SetDeadline(time.Now().Add(time.Minute))
	g := NewGate(1)
	for uid := range uint32(2) {
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		cmd.Env, cmd.Stderr = append(os.Environ(), helperEnv+"="+path), os.Stderr
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100000, Size: 65536}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
			Credential: &syscall.Credential{Uid: 7 + uid, Gid: 7}}
		if err := cmd.Start(); err != nil {
			t.Skip(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		conn, err := ln.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if leave, err := g.Enter(conn); (err == nil) != (uid == 0) {
			t.Errorf("user %d: %v", 100007+uid, err)
		} else if err == nil {
			defer leave()
		}
	}
}
