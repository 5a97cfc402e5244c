package exnrun

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
	"exnet/node/control"
	"exnet/node/rpc/caller"
)

// newTestKeeper makes a keeper and returns the path of its socket.
func newTestKeeper(t *testing.T) (k *keeper, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "broker"+client.KeepSuffix)
	k, err := newKeeper(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.close(); err != nil {
			t.Error(err)
		}
	})
	return k, path
}

func (k *keeper) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.byPID)
}

// descriptorsOpen is how many this process has.
func descriptorsOpen(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A process that has ended before the broker looks at it is not waited for: the broker
// would stay for ever.
func TestKeepEnded(t *testing.T) {
	k, _ := newTestKeeper(t)
	cmd := exec.Command("/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 500 { // before its end, at it, and after it
		k.holdFor(cmd.Process.Pid, 0)
	}
	for end := time.Now().Add(time.Minute); k.idleTime() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d processes that have ended are kept", k.count())
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// One process that asks repeatedly takes one descriptor, and each time gets its
// answer.
func TestKeepOften(t *testing.T) {
	k, path := newTestKeeper(t)
	ask := func() {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if n, err := conn.Read(make([]byte, 2)); n != 1 {
			t.Fatalf("answer of %d bytes, %v", n, err)
		}
	}
	ask()
	before := descriptorsOpen(t)
	for range 3000 {
		ask()
	}
	if n := k.count(); n != 1 || k.idleTime() != 0 {
		t.Errorf("one process is kept %d times", n)
	}
	if now := descriptorsOpen(t); now > before+2 { // the last one may be about to be closed
		t.Errorf("%d descriptors, %d before", now, before)
	}
}

// A user with many processes has the broker stay for some of them, and leaves room for
// those of others.
func TestKeepMany(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to have a process of another user")
	}
	k, _ := newTestKeeper(t)
	start := func(uid uint32) int {
		cmd := exec.Command("/bin/sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd.Process.Pid
	}
	const nobody, daemon = 65534, 1
	k.mu.Lock()
	k.users[nobody] = maxKept - 2 // as if it had so many
	k.mu.Unlock()
	for range 5 {
		k.holdFor(start(nobody), nobody)
	}
	if n := k.count(); n != 2 {
		t.Errorf("%d more are kept, and 2 were free", n)
	}
	k.holdFor(start(daemon), daemon)
	k.holdFor(start(0), 0)
	if n := k.count(); n != 4 {
		t.Errorf("%d are kept: not those of other users", n)
	}
}

// listenAs makes a socket as another user, at which nobody accepts.
func listenAs(t *testing.T, uid int, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with it
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
			done <- e
			return
		}
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err == nil {
			t.Cleanup(func() { ln.Close() })
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A broker that was killed leaves its keeper's socket. The next one in its place, which may be a
// node's and has no keeper, removes that: exn-run would wait for it.
func TestKeeperOfKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broker"+client.SocketSuffix)
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: control.Beside(path, client.KeepSuffix), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	s, err := broker.New(broker.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if kept, err := keepBroker(path); !kept || err != nil {
		t.Errorf("%v, %v", kept, err)
	}
}

// A keeper of another user is not waited for, nor believed.
func TestKeeperOfAnother(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "exnrun-test-")
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	listenAs(t, 65534, filepath.Join(dir, "broker"+client.KeepSuffix))
	if kept, err := keepBroker(filepath.Join(dir, "broker.sock")); kept || !errors.Is(err, caller.ErrUntrusted) {
		t.Errorf("%v, %v", kept, err)
	}
}

// What another user has put where this user's broker would be is not looked at: a socket by a link
// to one of root's, and a keeper that never answers.
func TestPlaceOfAnother(t *testing.T) {
	run, err := os.MkdirTemp("/tmp", "exnrun-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	t.Setenv("XDG_RUNTIME_DIR", run)
	t.Setenv(client.PathEnv, "")
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		t.Fatal(err)
	}
	name := strconv.FormatUint(st.Ino, 10)
	if _, err := os.Lstat(filepath.Join(client.SystemDir, name+client.SocketSuffix)); err == nil {
		t.Skip("this namespace has a broker of root's")
	}
	dir := filepath.Join(run, "exn/ds")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(run, "roots.sock")
	ln, err := net.ListenUnix(client.Network, &net.UnixAddr{Name: roots, Net: client.Network})
	if err == nil {
		defer ln.Close()
		err = os.Symlink(roots, filepath.Join(dir, name+client.SocketSuffix))
	}
	if err != nil {
		t.Fatal(err)
	}
	find := func() error { _, err := client.Find(); return err }
	if err := find(); err != nil {
		t.Errorf("in this user's own directory: %v", err)
	}
	for _, path := range []string{filepath.Dir(dir), dir} {
		if os.Geteuid() == 0 {
			if err := os.Chown(path, 65534, 65534); err != nil {
				t.Fatal(err)
			}
			if err := find(); err == nil {
				t.Errorf("%s is another's, and what is in it is used", path)
			}
			if err := os.Chown(path, 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := find(); err == nil {
			t.Errorf("anybody may write %s, and what is in it is used", path)
		}
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := filepath.Join(run, "elsewhere")
	if err := os.Rename(filepath.Dir(dir), elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	if err := find(); err == nil {
		t.Error("a link leads there, and what is in it is used")
	}
}
